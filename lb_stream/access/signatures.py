"""Signatures of Kafka records: Ed25519 over the bytes as they are sent.

A signed record has three headers: its signer's key id, the time of the signature, and the
signature. Signed are topic, key, kind, time and the SHA-256 of the value, encoded as DSSE encodes
what it signs (https://github.com/secure-systems-lab/dsse/blob/master/protocol.md). Keys are in
`signing_keys`, which imports the library that computes signatures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

KEY_HEADER = "lb-key"
TIME_HEADER = "lb-signed-us"
SIGNATURE_HEADER = "lb-signature"
JOB = "job:"
"""Prefix of the name of a job's signer; `stream.pipeline_id` follows it."""


def is_user(name: str) -> bool:
    """Return whether a signer's name is a user's: agents and jobs send no commands."""
    return name != "" and "/" not in name and not name.startswith(JOB)


class SignatureRejected(ValueError):
    """A record that is not signed as it must be: its field, the value, and what was expected."""

    def __init__(self, field_name: str, value: str, expected: str) -> None:
        super().__init__(f"{field_name} = {value}: expected {expected}")
        self.field, self.value, self.expected = field_name, value, expected


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a record, as its headers have it. `signed_us`: µs since the epoch."""

    key_id: str
    signed_us: int
    value: bytes

    @staticmethod
    def from_headers(headers: Iterable[tuple[str, bytes | None]]) -> Signature | None:
        """Return the signature in a record's headers; None if one of the three is missing.

        Of several headers of a name the last one counts, as in Kafka's own clients.
        """
        found = dict(headers)
        key_id, signed_at, value = map(found.get, (KEY_HEADER, TIME_HEADER, SIGNATURE_HEADER))
        if key_id is None or value is None or not re.fullmatch(rb"\d{1,18}", signed_at or b""):
            return None
        return Signature(key_id.decode(errors="replace"), int(signed_at or b""), value)


def digest_value(value: bytes) -> bytes:
    """Return the SHA-256 of a record's value, which is signed in the value's place.

    Ed25519 reads its message with SHA-512, at half the speed.
    """
    return sha256(value).digest()


def encode_signed(topic: str, key: bytes, kind: str, signed_us: int, digest: bytes) -> bytes:
    """Return the bytes that are signed: `DSSEv1`, then length and bytes of each part.

    `digest`: of the value (`digest_value`).
    """
    parts = (topic.encode(), key, kind.encode(), str(signed_us).encode(), digest)
    return b"DSSEv1 " + b" ".join(b"%d %b" % (len(part), part) for part in parts)
