"""One set of Kafka client settings, given under kafka-python's names, for both clients: kafka-python and Spark's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lb_stream.contracts.settings import Settings

_SAME_MEANING = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "request_timeout_ms": "request.timeout.ms",
    "client_id": "client.id",
}
_PEM_FILES = {
    "ssl_certfile": "ssl.keystore.certificate.chain",
    "ssl_keyfile": "ssl.keystore.key",
    "ssl_cafile": "ssl.truststore.certificates",
}
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(settings: Settings) -> dict[str, Any]:
    """Arguments of every kafka-python client."""
    return {"bootstrap_servers": settings.kafka.bootstrap_servers.split(","), **settings.kafka.options}


def spark_options(settings: Settings) -> dict[str, str]:
    """The same for Spark's Kafka source, each with the prefix `kafka.`. Raises ValueError for one without a counterpart there."""
    given = dict(settings.kafka.options)
    options = {"bootstrap.servers": settings.kafka.bootstrap_servers}
    user, password = given.pop("sasl_plain_username", None), given.pop("sasl_plain_password", None)
    if user is not None:
        module = _LOGIN_MODULES[str(given.get("sasl_mechanism", "PLAIN"))]
        options["sasl.jaas.config"] = f"{module} required username={_quoted(user)} password={_quoted(password)};"
    for name, _path in list(given.items()):
        if name in _PEM_FILES:
            options[_PEM_FILES[name]] = Path(str(given.pop(name))).read_text()
            options["ssl.truststore.type" if name == "ssl_cafile" else "ssl.keystore.type"] = "PEM"
    for name, value in given.items():
        if name not in _SAME_MEANING:
            known = ", ".join(sorted([*_SAME_MEANING, *_PEM_FILES, "sasl_plain_username", "sasl_plain_password"]))
            raise ValueError(f"kafka.options.{name}: the stream's own client has no such option; expected one of {known}")
        options[_SAME_MEANING[name]] = ("https" if value else "") if name == "ssl_check_hostname" else str(value)
    return {f"kafka.{name}": value for name, value in options.items()}


def _quoted(text: Any) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
