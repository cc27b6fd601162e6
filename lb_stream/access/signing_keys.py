"""Keys that sign records, and the file of those that may: OpenSSH's allowed_signers.

Private keys are PKCS#8 in PEM. `man ssh-keygen` describes the file of signers, which the tools of
OpenSSH can write and read, too.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from lb_stream.access.signatures import (
    KEY_HEADER,
    SIGNATURE_HEADER,
    TIME_HEADER,
    Signature,
    SignatureRejected,
    digest_value,
    encode_signed,
)
from lb_stream.contracts.patterns import matches_wildcards

KEY_TYPE = "ssh-ed25519"
WINDOW_MS = 300_000
"""How far a signature's time may be from the append time of its record."""
_PREFIX = len(KEY_TYPE).to_bytes(4, "big") + KEY_TYPE.encode() + (32).to_bytes(4, "big")
"""What comes before the 32 bytes of a key in OpenSSH's encoding of it."""
_KEY_ID = re.compile(r"[0-9a-f]{16}")


class KeyFileError(ValueError):
    """A private key or the file of signers can't be read. The text names file and fault."""


def find_key_id(public_key: Ed25519PublicKey) -> str:
    """Return a public key's id: the first 16 hex digits of the SHA-256 of its 32 bytes."""
    return sha256(public_key.public_bytes_raw()).hexdigest()[:16]


class Signer:
    """Signs the records that a program sends. Any thread may call."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key
        self._last_us = 0
        self._lock = threading.Lock()
        self.key_id = find_key_id(private_key.public_key())

    @staticmethod
    def from_pem(text: bytes, passphrase: bytes | None = None, source: str = "key") -> Signer:
        """Return the signer of a private key in PEM (PKCS#8). Raises KeyFileError."""
        try:
            private_key = load_pem_private_key(text, passphrase)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise KeyFileError(f"{source}: {error}") from None
        except InternalError:  # OpenSSL can't make a key of these bytes; its text is for developers
            raise KeyFileError(f"{source}: a damaged key, expected an Ed25519 key") from None
        if not isinstance(private_key, Ed25519PrivateKey):
            raise KeyFileError(f"{source}: expected an Ed25519 key (`lbctl keys new` makes one)")
        return Signer(private_key)

    def sign(
        self, topic: str, key: bytes, value: bytes | None, kind: str = ""
    ) -> list[tuple[str, bytes]]:
        """Return the headers that sign a record. `kind`: that of its header, empty without one.

        Times of one signer increase, so that a record that comes again is known to be a copy. They
        begin anew after a clock that was far ahead has been set right.
        """
        with self._lock:
            now_us = time.time_ns() // 1000
            is_ahead = self._last_us > now_us + 1000 * WINDOW_MS
            self._last_us = signed_us = now_us if is_ahead else max(self._last_us + 1, now_us)
        signed = encode_signed(topic, key, kind, signed_us, digest_value(value or b""))
        return [
            (KEY_HEADER, self.key_id.encode()),
            (TIME_HEADER, str(signed_us).encode()),
            (SIGNATURE_HEADER, self._private_key.sign(signed)),
        ]


@dataclass(frozen=True)
class AllowedSigner:
    """A line of the file of signers: a public key, who signs with it, and from when until when.

    `principals`: a user's name, `<cluster>/<broker>` of a broker's agent, or `job:<pipeline>`;
    patterns with `*` and `?`, those after `!` excepted. Times are ms since the epoch; None: no
    limit.
    """

    principals: str
    public: bytes
    valid_after_ms: int | None = None
    valid_before_ms: int | None = None
    comment: str = ""

    @cached_property
    def public_key(self) -> Ed25519PublicKey:
        """The key itself."""
        return Ed25519PublicKey.from_public_bytes(self.public)

    @cached_property
    def key_id(self) -> str:
        """The key's id."""
        return find_key_id(self.public_key)

    @cached_property
    def _patterns(self) -> tuple[list[str], list[str]]:
        """The patterns of wanted and of excepted names."""
        given = self.principals.split(",")
        wanted = [text for text in given if not text.startswith("!")]
        return wanted, [text[1:] for text in given if text.startswith("!")]

    @property
    def name(self) -> str | None:
        """The first of its names that is no pattern; None: there is none."""
        names = (name for name in self.principals.split(",") if not set(name) & set("*?!"))
        return next(names, None)

    def is_for(self, principal: str) -> bool:
        """Return whether the key signs for a principal."""
        wanted, excepted = self._patterns
        return any(matches_wildcards(pattern, principal) for pattern in wanted) and not any(
            matches_wildcards(pattern, principal) for pattern in excepted
        )

    def is_valid_at(self, at_ms: int) -> bool:
        """Return whether the key is valid at a time."""
        after, before = self.valid_after_ms, self.valid_before_ms
        return (after is None or at_ms >= after) and (before is None or at_ms < before)

    def format_line(self) -> str:
        """Return the line of the file."""
        options = [
            f'{name}="{_format_time(at_ms)}"'
            for name, at_ms in (
                ("valid-after", self.valid_after_ms),
                ("valid-before", self.valid_before_ms),
            )
            if at_ms is not None
        ]
        encoded = base64.b64encode(_PREFIX + self.public).decode()
        parts = [self.principals, ",".join(options), KEY_TYPE, encoded, self.comment]
        return " ".join(part for part in parts if part)


_TIME_FORMATS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


def _format_time(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{moment.year:04d}{moment:%m%d%H%M%SZ}"  # not every %Y has four digits


def _parse_time(text: str) -> int:
    """Parse a time of the file, YYYYMMDD[HHMM[SS]]Z; it must be in UTC. Raises ValueError."""
    digits = text.removesuffix("Z")
    if digits == text or not digits.isdecimal() or len(digits) not in _TIME_FORMATS:
        raise ValueError(f"{text!r}: expected YYYYMMDD[HHMM[SS]]Z, a time in UTC")
    moment = datetime.strptime(digits, _TIME_FORMATS[len(digits)])
    return int(moment.replace(tzinfo=UTC).timestamp() * 1000)


def parse_line(line: str) -> AllowedSigner:
    """Parse a line of the file of signers. Raises ValueError: what is wrong, and what is right."""
    principals, _, rest = line.strip().partition(" ")
    times: dict[str, int] = {}
    words = rest.split(maxsplit=2)
    if words and words[0] != KEY_TYPE:
        for option in words[0].split(","):
            name, _, text = option.partition("=")
            if name not in ("valid-after", "valid-before"):
                raise ValueError(f"{name!r}: expected valid-after, valid-before or {KEY_TYPE}")
            times[name] = _parse_time(text.strip('"'))
        words = rest.split(maxsplit=3)[1:]
    if len(words) < 2 or words[0] != KEY_TYPE:
        raise ValueError(f"expected NAME [OPTIONS] {KEY_TYPE} KEY [COMMENT]")
    try:
        encoded = base64.b64decode(words[1], validate=True)
    except ValueError:
        encoded = b""
    if not encoded.startswith(_PREFIX) or len(encoded) != len(_PREFIX) + 32:
        raise ValueError(f"{words[1][:20]!r}: expected the base64 text of an {KEY_TYPE} key")
    return AllowedSigner(
        principals,
        encoded[len(_PREFIX) :],
        times.get("valid-after"),
        times.get("valid-before"),
        " ".join(words[2:]).strip(),
    )


def parse_signers(text: str, source: str = "signers") -> list[AllowedSigner]:
    """Parse a file of signers; empty lines and lines with `#` are left out. Raises KeyFileError."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found.append(parse_line(line))
        except ValueError as error:
            raise KeyFileError(f"{source}, line {number}: {error}") from None
    return found


def change_signers(text: str, change: Callable[[AllowedSigner], AllowedSigner]) -> str:
    """Return a file of signers with changed lines; comments and unchanged lines stay as they are.

    Raises KeyFileError.
    """
    parse_signers(text)
    lines = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            lines.append(line)
            continue
        before = parse_line(line)
        after = change(before)
        lines.append(line if after == before else after.format_line())
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Keyring:
    """The keys that may sign. A key that is in two lines counts for the principals of both."""

    signers: tuple[AllowedSigner, ...] = ()
    window_ms: int = WINDOW_MS
    _by_id: Mapping[str, tuple[AllowedSigner, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_id: dict[str, tuple[AllowedSigner, ...]] = {}
        for signer in self.signers:
            by_id[signer.key_id] = (*by_id.get(signer.key_id, ()), signer)
        object.__setattr__(self, "_by_id", by_id)

    def find_name(self, key_id: str) -> str | None:
        """Return the name for which a key signs; None: no line of the file has one."""
        names = (signer.name for signer in self._by_id.get(key_id, ()))
        return next((name for name in names if name is not None), None)

    def verify(
        self,
        signature: Signature | None,
        topic: str,
        key: bytes,
        kind: str,
        digest: Callable[[], bytes],
        at_ms: int,
        principal: str | None = None,
    ) -> AllowedSigner:
        """Return the signer of a record. `at_ms`: when Kafka has stored it.

        `digest`: returns that of the value. `principal`: for whom the key must sign; None: for
        anybody. Raises SignatureRejected. Digest and signature are computed last, because all else
        is cheap.
        """
        if signature is None:
            expected = f"the headers {KEY_HEADER}, {TIME_HEADER} and {SIGNATURE_HEADER}"
            raise SignatureRejected(SIGNATURE_HEADER, "none", expected)
        known = self._by_id.get(signature.key_id, ())
        if not known:
            shown = signature.key_id if _KEY_ID.fullmatch(signature.key_id) else "not a key's id"
            raise SignatureRejected(KEY_HEADER, shown, "the id of a key in security.signers")
        if abs(at_ms - signature.signed_us // 1000) > self.window_ms:
            raise SignatureRejected(
                TIME_HEADER,
                str(signature.signed_us),
                f"a time within {self.window_ms // 1000} s of the record's append time "
                f"({at_ms} ms)",
            )
        valid = [signer for signer in known if signer.is_valid_at(at_ms)]
        if not valid:
            raise SignatureRejected(KEY_HEADER, signature.key_id, "a key that is valid now")
        speaking = valid if principal is None else [one for one in valid if one.is_for(principal)]
        if not speaking:
            raise SignatureRejected(
                KEY_HEADER,
                f"{signature.key_id} of {valid[0].principals}",
                f"a key of {principal}",
            )
        signed = encode_signed(topic, key, kind, signature.signed_us, digest())
        try:
            speaking[0].public_key.verify(signature.value, signed)
        except InvalidSignature:
            raise SignatureRejected(
                SIGNATURE_HEADER,
                f"of key {signature.key_id}",
                "the signature of this topic, key, kind, time and value",
            ) from None
        return speaking[0]
