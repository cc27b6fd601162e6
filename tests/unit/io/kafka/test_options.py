"""TLS and SASL settings reach both clients, each under its own names."""

from base64 import b64encode
from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import KafkaSettings, Settings
from lb_stream.io.kafka.options import client_options, spark_options
from tests.support.wordings import check_wording

CONTENT = {
    "ssl_cafile": "-----BEGIN CERTIFICATE-----\nof those whom we trust",
    "ssl_certfile": "-----BEGIN CERTIFICATE-----\nour own",
    "ssl_keyfile": "-----BEGIN PRIVATE KEY-----\nour own",
}


def settings(**options: object) -> Settings:
    return Settings(kafka=KafkaSettings(bootstrap_servers="one:9093,two:9093", options=options))


def test_without_options_only_the_servers_are_told() -> None:
    assert client_options(settings()).keys() == {
        "bootstrap_servers",
        "kafka_client",
        "reconnect_backoff_max_ms",
        "retry_backoff_ms",
    }
    assert client_options(settings())["bootstrap_servers"] == ["one:9093", "two:9093"]
    assert spark_options(settings()) == {"kafka.bootstrap.servers": "one:9093,two:9093"}


def test_a_sasl_login_becomes_a_jaas_line_and_its_quotes_stay_harmless() -> None:
    given = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="lb",
        sasl_plain_password='p"w\\d; required',
    )
    assert client_options(given)["sasl_plain_password"] == 'p"w\\d; required'
    options = spark_options(given)
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    check_wording(options["kafka.sasl.jaas.config"])


def test_pem_files_go_to_the_stream_by_their_content(tmp_path: Path) -> None:
    files = {}
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path = tmp_path / f"{name}.pem"
        path.write_text(CONTENT[name])
        files[name] = str(path)
    options = spark_options(settings(security_protocol="SSL", ssl_check_hostname=False, **files))
    assert options["kafka.ssl.truststore.certificates"] == CONTENT["ssl_cafile"]
    assert options["kafka.ssl.keystore.certificate.chain"] == CONTENT["ssl_certfile"]
    assert options["kafka.ssl.keystore.key"] == CONTENT["ssl_keyfile"]
    assert options["kafka.ssl.truststore.type"] == options["kafka.ssl.keystore.type"] == "PEM"
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""


def test_the_password_of_a_key_goes_to_both_and_is_asked_for(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    given = settings(security_protocol="SSL", ssl_certfile=str(both), ssl_password="opens it")
    assert client_options(given)["ssl_password"] == "opens it"
    options = spark_options(given)
    assert options["kafka.ssl.key.password"] == "opens it"
    assert (
        options["kafka.ssl.keystore.key"]
        == options["kafka.ssl.keystore.certificate.chain"]
        == both.read_text()
    )
    with pytest.raises(SettingError) as error:
        spark_options(settings(security_protocol="SSL", ssl_certfile=str(both)))
    check_wording(error.value)


def test_a_key_that_java_cannot_read_is_named_with_what_turns_it_into_one(tmp_path: Path) -> None:
    (tmp_path / "old.key").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    with pytest.raises(SettingError) as error:
        spark_options(settings(security_protocol="SSL", ssl_keyfile=str(tmp_path / "old.key")))
    check_wording(error.value)


def test_a_key_that_java_cannot_open_is_named_with_what_turns_it_into_one(tmp_path: Path) -> None:
    # How a key begins that `openssl genpkey -aes256` makes.
    pbes2 = b64encode(bytes.fromhex("3082013c305f06092a864886f70d01050d3052")).decode()
    (tmp_path / "new.key").write_text(
        f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{pbes2}\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    given = {
        "security_protocol": "SSL",
        "ssl_keyfile": str(tmp_path / "new.key"),
        "ssl_password": "opens it",
    }
    assert client_options(settings(**given))["ssl_keyfile"] == given["ssl_keyfile"], (
        "Python's client opens it"
    )
    with pytest.raises(SettingError) as error:
        spark_options(settings(**given))
    check_wording(error.value)


def test_a_bearer_token_comes_from_one_file_for_both(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("head.claims.signature")
    given = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_file=str(tmp_path / "token"),
    )
    assert client_options(given)["sasl_oauth_token_provider"].token() == "head.claims.signature"
    assert "sasl_oauth_token_file" not in client_options(given)
    module = "org.apache.kafka.common.security.oauthbearer"
    options = spark_options(given)
    assert options["kafka.sasl.mechanism"] == "OAUTHBEARER"
    assert options["kafka.sasl.jaas.config"] == f"{module}.OAuthBearerLoginModule required;"
    assert (
        options["kafka.sasl.login.callback.handler.class"]
        == f"{module}.OAuthBearerLoginCallbackHandler"
    )
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == f"file://{tmp_path}/token"


def test_an_option_that_the_stream_cannot_have_is_named_with_those_it_can() -> None:
    with pytest.raises(SettingError, match=r"kafka\.options\.api_version.*security_protocol"):
        spark_options(settings(api_version="3"))


def test_a_file_that_is_not_there_and_an_unknown_mechanism_are_named() -> None:
    with pytest.raises(SettingError) as error:
        spark_options(settings(ssl_cafile="nowhere.pem"))
    check_wording(error.value)
    with pytest.raises(SettingError, match=r"sasl_mechanism = 'PIGEON'.*SCRAM-SHA-512"):
        spark_options(settings(sasl_mechanism="PIGEON", sasl_plain_username="lb"))
