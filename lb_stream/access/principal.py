"""Finds the principal that a client logs in as: the user that Kafka's ACLs name."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

ANONYMOUS = "User:ANONYMOUS"
_SHORT_NAMES = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}
"""OpenSSL's name of an attribute → the name in a distinguished name."""


class _Certificate(TypedDict):
    """A decoded certificate, as far as it is used here."""

    subject: tuple[tuple[tuple[str, str], ...], ...]


def principal_of(options: Mapping[str, object]) -> str:
    """Return the principal, `User:<name>`, for the setting `kafka.options`.

    With SASL the name is the user's or the token's subject. With TLS it is the certificate's
    distinguished name, as Kafka writes it without `ssl.principal.mapping.rules`.
    """
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    if protocol.startswith("SASL"):
        if "sasl_plain_username" in options:
            return f"User:{options['sasl_plain_username']}"
        if subject := _read_subject(str(options.get("sasl_oauth_token_file"))):
            return f"User:{subject}"
        return f"this user ({options.get('sasl_mechanism', 'SASL')})"
    if protocol == "SSL" and "ssl_certfile" in options:
        return f"User:{_distinguished_name(str(options['ssl_certfile']))}"
    return ANONYMOUS


def _distinguished_name(path: str) -> str:
    """Return that of a PEM file's first certificate, the most specific part first."""
    try:
        decoded: _Certificate = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ssl.SSLError):
        return f"the subject of {path}"
    parts = [
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in attributes)
        for attributes in decoded["subject"]
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    return "".join(f"\\{letter}" if letter in ',+"\\<>;' else letter for letter in value)


def _read_subject(path: str) -> str | None:
    """Return the claim `sub` of the token in a file; None if it can't be read."""
    try:
        claims = Path(path).read_text().strip().split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return str(found["sub"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return None
