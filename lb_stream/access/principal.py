"""As whom a client's settings log in: the principal that Kafka's ACLs name."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ANONYMOUS = "User:ANONYMOUS"
_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}


def principal_of(options: Mapping[str, Any]) -> str:
    """`User:<name>`: by SASL the user's name or the token's subject, by TLS the certificate's
    distinguished name, as Kafka writes it without rules of its own (`ssl.principal.mapping.rules`).
    """
    protocol = str(options.get("security_protocol", "PLAINTEXT"))
    if protocol.startswith("SASL"):
        if "sasl_plain_username" in options:
            return f"User:{options['sasl_plain_username']}"
        subject = _subject_of_token(options.get("sasl_oauth_token_file"))
        return (
            f"User:{subject}" if subject else f"this user ({options.get('sasl_mechanism', 'SASL')})"
        )
    if protocol == "SSL" and "ssl_certfile" in options:
        return f"User:{_distinguished_name(str(options['ssl_certfile']))}"
    return ANONYMOUS


def _distinguished_name(path: str) -> str:
    """Of a PEM file's first certificate, the most special part first."""
    try:
        decoded: dict[str, Any] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ssl.SSLError):
        return f"the subject of {path}"
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in several)
        for several in decoded["subject"]
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    return "".join(f"\\{letter}" if letter in ',+"\\<>;' else letter for letter in value)


def _subject_of_token(path: Any) -> str | None:
    """The claim `sub` of a token in a file; None where that can't be read."""
    try:
        claims = Path(str(path)).read_text().strip().split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return str(found["sub"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return None
