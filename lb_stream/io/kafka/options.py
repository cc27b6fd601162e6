"""Client settings of Kafka for both clients, kafka-python and Spark's own, from one setting.

The setting `kafka.options` has kafka-python's names; Spark's client reads Java's.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import Settings
from lb_stream.io.kafka.clients import FAST_RETRY, TOKEN_FILE, kafka_python_options

_LOGIN = ("sasl_plain_username", "sasl_plain_password")
_SAME_MEANING = {
    "ssl_password": "ssl.key.password",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "request_timeout_ms": "request.timeout.ms",
    "client_id": "client.id",
}
"""kafka-python's name → Java's name, where the values mean the same."""
_PEM_FILES = {
    "ssl_certfile": "ssl.keystore.certificate.chain",
    "ssl_keyfile": "ssl.keystore.key",
    "ssl_cafile": "ssl.truststore.certificates",
}
"""kafka-python's name of a file → Java's name of its content."""
_PKCS8 = re.compile(r"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----")
_ENCRYPTED = re.compile(r"-----BEGIN ENCRYPTED PRIVATE KEY-----([A-Za-z0-9+/=\s]*)")
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""The object identifier at the beginning of keys that openssl encrypts by its defaults.

Kafka's client in Java finds no such algorithm.
"""
_KEY_FOR_JAVA = (
    "a key that Kafka's client in Java opens: one without a password, or encrypted as before PBES2 "
    "(openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in KEY -out NEW)"
)
_BEARER = "org.apache.kafka.common.security.oauthbearer"
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(settings: Settings) -> dict[str, object]:
    """Return the arguments of the job's kafka-python clients."""
    return {
        "bootstrap_servers": settings.kafka.bootstrap_servers.split(","),
        **FAST_RETRY,
        **kafka_python_options(settings.kafka.options),
    }


def spark_options(settings: Settings) -> dict[str, str]:
    """Return the options of Spark's Kafka source, each with the prefix `kafka.`.

    Raises SettingError for an option that Java's client doesn't have, an unknown SASL mechanism, or
    a file that can't be read.
    """
    options = {"bootstrap.servers": settings.kafka.bootstrap_servers}
    given: dict[str, object] = dict(settings.kafka.options)

    # The login: a token in a file, or user and password.
    login = {name: given.pop(name) for name in _LOGIN if name in given}
    if TOKEN_FILE in given:
        options |= _bearer_options(str(given.pop(TOKEN_FILE)))
    elif login:
        mechanism = str(given.get("sasl_mechanism", "PLAIN"))
        options["sasl.jaas.config"] = _jaas_line(login, mechanism)

    # A certificate and its key may be in one file.
    if "ssl_certfile" in given:
        given.setdefault("ssl_keyfile", given["ssl_certfile"])

    for name, value in given.items():
        if name in _PEM_FILES:
            options[_PEM_FILES[name]] = _read_pem(name, str(value), settings.kafka.options)
            store = "truststore" if name == "ssl_cafile" else "keystore"
            options[f"ssl.{store}.type"] = "PEM"
        elif name == "ssl_check_hostname":
            options[_SAME_MEANING[name]] = "https" if value else ""
        elif name in _SAME_MEANING:
            options[_SAME_MEANING[name]] = str(value)
        else:
            known = ", ".join(sorted([*_SAME_MEANING, *_PEM_FILES, *_LOGIN, TOKEN_FILE]))
            raise SettingError(f"kafka.options.{name}", value, f"one of {known}")
    return {f"kafka.{name}": value for name, value in options.items()}


def _jaas_line(login: Mapping[str, object], mechanism: str) -> str:
    if mechanism not in _LOGIN_MODULES:
        expected = f"one of {', '.join(_LOGIN_MODULES)}"
        raise SettingError("kafka.options.sasl_mechanism", mechanism, expected)
    user, password = (_quoted(str(login.get(name, ""))) for name in _LOGIN)
    return f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"


def _bearer_options(path: str) -> dict[str, str]:
    """Return the options by which Java's client reads the token in a file.

    It reads the file again before the token expires. The JVM must be allowed to (`token_url`).
    """
    return {
        "sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{_BEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": token_url(path),
    }


def token_url(path: str) -> str:
    """Return the URL by which Java knows a token's file."""
    return Path(path).resolve().as_uri()


def _read_pem(name: str, path: str, given: Mapping[str, object]) -> str:
    """Read a PEM file, and require that Java's client can use it. Raises SettingError."""
    option = f"kafka.options.{name}"
    try:
        text = Path(path).read_text()
    except OSError as error:
        expected = f"a PEM file that can be read ({error.strerror})"
        raise SettingError(option, path, expected) from None
    if name != "ssl_keyfile":
        return text
    if not _PKCS8.search(text):
        expected = "a key as Java reads it, PKCS#8 (openssl pkcs8 -topk8 -in KEY -out NEW)"
        raise SettingError(option, path, expected)
    if encrypted := _ENCRYPTED.search(text):
        if "ssl_password" not in given:
            expected = f"the password of the key in {path}"
            raise SettingError("kafka.options.ssl_password", None, expected)
        if _PBES2 in _decode_pem(encrypted[1]):
            raise SettingError(option, path, _KEY_FOR_JAVA)
    return text


def _decode_pem(base64: str) -> bytes:
    """Return the bytes of a PEM block; empty if the text isn't base64."""
    try:
        return b64decode("".join(base64.split()), validate=True)
    except ValueError:
        return b""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
