"""A Kafka producer whose records are signed, and the check of records that a program reads."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafka import KafkaProducer

from lb_stream.access.signatures import (
    JOB,
    TIME_HEADER,
    Signature,
    SignatureRejected,
    digest_value,
)
from lb_stream.contracts.settings import SecuritySettings
from lb_stream.settings.signing import SignersFile

if TYPE_CHECKING:
    from lb_stream.access.signing_keys import Signer

log = logging.getLogger(__name__)

LOG_EVERY_S = 60.0
LONGEST_LOGGED = 500
"""Characters of a rejection that are logged."""


class SigningProducer(KafkaProducer):  # type: ignore[misc] # kafka-python has no types
    """A producer that signs each record; without a signer it is kafka-python's own."""

    def __init__(self, signer: Signer | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._signer = signer
        self._order = threading.Lock()

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: list[tuple[str, bytes]] | None = None,
        **options: Any,
    ) -> Any:
        """Send a record, as `KafkaProducer.send` does; any thread may. Raises KafkaError."""
        if self._signer is None:
            return super().send(topic, value=value, key=key, headers=headers, **options)
        headers = list(headers or ())
        kind = dict(headers).get("kind", b"").decode()
        # Records must reach the topic in the order of their signatures' times: one that comes after
        # a later one counts as a copy.
        with self._order:
            headers += self._signer.sign(topic, key or b"", value, kind)
            return super().send(topic, value=value, key=key, headers=headers, **options)


class SignedRecord(Protocol):
    """What is read of a consumed record (kafka-python's ConsumerRecord)."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def timestamp(self) -> int:
        """When Kafka appended the record, ms since the epoch."""
        ...

    @property
    def headers(self) -> list[tuple[str, bytes]]: ...


class RecordCheck:
    """The check of signatures of records that a program reads itself. One thread calls it.

    A record without a right signature is logged, and rejected if the setting is `signed`.
    """

    def __init__(
        self, security: SecuritySettings, setting: str, required: str, by_key: bool = True
    ) -> None:
        """Read the file of signers. `setting`: the name of the one that says what is required.

        `by_key`: records of one key have one signer and come in order, so an earlier one is a copy;
        else only one with the same time is. Raises SettingError.
        """
        self._signers = SignersFile(security)
        self._setting, self._is_required, self._by_key = setting, required == "signed", by_key
        self.window_ms = security.window_ms
        self._latest_us: dict[tuple[str, bytes], int] = {}  # topic and key → time of its last one
        self._seen: dict[int, None] = {}  # times of signatures, µs; later copies are out of time
        self._logged: dict[str, tuple[float, int]] = {}  # field → when it was, others since then

    def accepts(self, record: SignedRecord, principal: str) -> bool:
        """Return whether a record counts: whether a key of `principal` has signed it."""
        try:
            self._require_signature(record, principal)
        except SignatureRejected as error:
            self._log(record, error)
            return not self._is_required
        return True

    def _log(self, record: SignedRecord, error: SignatureRejected) -> None:
        """Log a rejection, once a minute for each field: whoever writes to the topic causes it."""
        now = time.monotonic()
        logged_at, others = self._logged.get(error.field, (-LOG_EVERY_S, 0))
        if now - logged_at < LOG_EVERY_S:
            self._logged[error.field] = logged_at, others + 1
            return
        self._logged[error.field] = now, 0
        log.warning(
            "a record of %s (partition %d, offset %d; and %d others) is %s: %r",
            record.topic,
            record.partition,
            record.offset,
            others,
            "rejected" if self._is_required else f"taken because {self._setting} = warn",
            str(error)[:LONGEST_LOGGED],
        )

    def _require_signature(self, record: SignedRecord, principal: str) -> None:
        """Raise SignatureRejected for a record that is not signed by a key of the principal."""
        signature = Signature.from_headers(record.headers or ())
        kind = (dict(record.headers or ()).get("kind") or b"").decode(errors="replace")
        key, digest = record.key or b"", partial(digest_value, record.value or b"")
        keyring = self._signers.keyring()
        keyring.verify(signature, record.topic, key, kind, digest, record.timestamp, principal)
        assert signature is not None
        if self._by_key:
            latest_us = self._latest_us.get((record.topic, key), 0)
            if signature.signed_us <= latest_us:
                raise _copy(signature, f"> {latest_us}, the time of the last record of its key")
            self._latest_us[record.topic, key] = signature.signed_us
            return
        if signature.signed_us in self._seen:
            raise _copy(signature, "a new time")
        self._seen[signature.signed_us] = None
        oldest_us = (record.timestamp - 2 * self.window_ms) * 1000
        while (first := next(iter(self._seen))) < oldest_us:
            del self._seen[first]


def _copy(signature: Signature, expected: str) -> SignatureRejected:
    text = f"{expected}: this record has been sent before"
    return SignatureRejected(TIME_HEADER, str(signature.signed_us), text)


def check_decisions(security: SecuritySettings) -> RecordCheck | None:
    """Return the check of decisions and ownership records; None: signatures do not matter.

    Raises SettingError.
    """
    if security.decisions == "open":
        return None
    return RecordCheck(security, "security.decisions", security.decisions)


def job_name(pipeline: str) -> str:
    """Return the name of a pipeline's job in the file of signers."""
    return f"{JOB}{pipeline}"
