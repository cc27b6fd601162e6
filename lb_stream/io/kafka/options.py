"""One set of Kafka client settings, given under kafka-python's names, for both clients:
kafka-python and Spark's own."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.clients import FAST_RETRY, TOKEN_FILE, kafka_python_options

_SAME_MEANING = {
    "ssl_password": "ssl.key.password",
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
_PKCS8 = re.compile(r"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----")
_ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----([A-Za-z0-9+/=\s]*)")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""How openssl encrypts keys by itself: this object identifier stands at their beginning.

Kafka's client in Java finds no such algorithm.
"""
_OPENED_BY_JAVA = (
    "a key that Kafka's client in Java opens: one without a password, or encrypted as it was usual "
    "before PBES2 "
    "(openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in KEY -out NEW)"
)
_BEARER = "org.apache.kafka.common.security.oauthbearer"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(settings: Settings) -> dict[str, Any]:
    """Arguments of every kafka-python client."""
    return {
        "bootstrap_servers": settings.kafka.bootstrap_servers.split(","),
        **FAST_RETRY,
        **kafka_python_options(settings.kafka.options),
    }


def spark_options(settings: Settings) -> dict[str, str]:
    """The same for Spark's Kafka source, each with the prefix `kafka.`.

    Raises SettingError for an option without a counterpart there, an unknown SASL mechanism, a file
    that can't be read.
    """
    options = {"bootstrap.servers": settings.kafka.bootstrap_servers}
    given = dict(settings.kafka.options)
    login: dict[str, Any] = {
        name: given.pop(name)
        for name in ("sasl_plain_username", "sasl_plain_password")
        if name in given
    }
    if TOKEN_FILE in given:
        options |= _bearer(str(given.pop(TOKEN_FILE)))
    elif login:
        options["sasl.jaas.config"] = _login(login, str(given.get("sasl_mechanism", "PLAIN")))
    if "ssl_certfile" in given:
        given.setdefault("ssl_keyfile", given["ssl_certfile"])  # both may be in one file
    for name, value in given.items():
        if name in _PEM_FILES:
            options[_PEM_FILES[name]] = _content(name, str(value), settings.kafka.options)
            options["ssl.truststore.type" if name == "ssl_cafile" else "ssl.keystore.type"] = "PEM"
        elif name == "ssl_check_hostname":
            options[_SAME_MEANING[name]] = "https" if value else ""
        elif name in _SAME_MEANING:
            options[_SAME_MEANING[name]] = str(value)
        else:
            known = ", ".join(
                sorted(
                    [
                        *_SAME_MEANING,
                        *_PEM_FILES,
                        "sasl_plain_username",
                        "sasl_plain_password",
                        TOKEN_FILE,
                    ]
                )
            )
            raise SettingError(f"kafka.options.{name}", value, f"one of {known}")
    return {f"kafka.{name}": value for name, value in options.items()}


def _login(login: dict[str, Any], mechanism: str) -> str:
    if mechanism not in _LOGIN_MODULES:
        raise SettingError(
            "kafka.options.sasl_mechanism", mechanism, f"one of {', '.join(_LOGIN_MODULES)}"
        )
    user, password = (
        _quoted(login.get(f"sasl_plain_{part}", "")) for part in ("username", "password")
    )
    return f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"


def _bearer(path: str) -> dict[str, str]:
    """Java's client reads the token from the file by itself, anew before it expires; the JVM must
    be told that it may."""
    return {
        "sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{_BEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": token_url(path),
    }


def token_url(path: str) -> str:
    """A token's file as Java names it."""
    return Path(path).resolve().as_uri()


def _content(name: str, path: str, given: Mapping[str, Any]) -> str:
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise SettingError(
            f"kafka.options.{name}", path, f"a PEM file that can be read ({error.strerror})"
        ) from None
    if name == "ssl_keyfile" and not _PKCS8.search(text):
        raise SettingError(
            f"kafka.options.{name}",
            path,
            "a key as Java reads it, PKCS#8 (openssl pkcs8 -topk8 -in KEY -out NEW)",
        )
    if name == "ssl_keyfile" and (encrypted := _ENCRYPTED.search(text)):
        if "ssl_password" not in given:
            raise SettingError(
                "kafka.options.ssl_password", None, f"the password of the key in {path}"
            )
        if _PBES2 in _bytes(encrypted[1]):
            raise SettingError(f"kafka.options.{name}", path, _OPENED_BY_JAVA)
    return text


def _bytes(base64: str) -> bytes:
    """Of a PEM block; empty where it is none."""
    try:
        return b64decode("".join(base64.split()), validate=True)
    except ValueError:
        return b""


def _quoted(text: Any) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
