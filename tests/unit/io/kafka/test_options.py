"""TLS and SASL settings reach both clients, each under its own names."""

from pathlib import Path

import pytest

from lb_stream.contracts.settings import KafkaSettings, Settings
from lb_stream.core.config.cluster_config import SettingError
from lb_stream.io.kafka.options import client_options, spark_options


def settings(**options: object) -> Settings:
    return Settings(kafka=KafkaSettings(bootstrap_servers="one:9093,two:9093", options=options))


def test_without_options_only_the_servers_are_told() -> None:
    assert client_options(settings()) == {"bootstrap_servers": ["one:9093", "two:9093"]}
    assert spark_options(settings()) == {"kafka.bootstrap.servers": "one:9093,two:9093"}


def test_a_sasl_login_becomes_a_jaas_line_and_its_quotes_stay_harmless() -> None:
    given = settings(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_plain_username="lb", sasl_plain_password='p"w\\d; required'
    )
    assert client_options(given)["sasl_plain_password"] == 'p"w\\d; required'
    options = spark_options(given)
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="lb" password="p\\"w\\\\d; required";'
    )


def test_pem_files_go_to_the_stream_by_their_content(tmp_path: Path) -> None:
    files = {}
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path = tmp_path / f"{name}.pem"
        path.write_text(f"content of {name}")
        files[name] = str(path)
    options = spark_options(settings(security_protocol="SSL", ssl_check_hostname=False, **files))
    assert options["kafka.ssl.truststore.certificates"] == "content of ssl_cafile"
    assert options["kafka.ssl.keystore.certificate.chain"] == "content of ssl_certfile"
    assert options["kafka.ssl.keystore.key"] == "content of ssl_keyfile"
    assert options["kafka.ssl.truststore.type"] == options["kafka.ssl.keystore.type"] == "PEM"
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""


def test_an_option_that_the_stream_cannot_have_is_named_with_those_it_can() -> None:
    with pytest.raises(SettingError, match=r"kafka\.options\.api_version.*security_protocol"):
        spark_options(settings(api_version="3"))


def test_a_file_that_is_not_there_and_an_unknown_mechanism_are_named() -> None:
    with pytest.raises(SettingError, match=r"kafka\.options\.ssl_cafile = 'nowhere.pem'.*can be read"):
        spark_options(settings(ssl_cafile="nowhere.pem"))
    with pytest.raises(SettingError, match=r"sasl_mechanism = 'PIGEON'.*SCRAM-SHA-512"):
        spark_options(settings(sasl_mechanism="PIGEON", sasl_plain_username="lb"))
