"""Which records must be signed, and by whom: the decoder asks here about each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lb_stream.access.signatures import Signature, SignatureRejected, is_user
from lb_stream.stream.records import RecordRejected
from lb_stream.stream.rows import RecordPosition

if TYPE_CHECKING:
    from lb_stream.access.signing_keys import Keyring


class SenderRejected(RecordRejected):
    """A record that is not signed as it must be, or not by whom it must be."""


Requirement = Literal["open", "warn", "signed"]
"""Open: signatures aren't looked at. Warn: what `signed` would reject is taken, and listed."""


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """The requirements of a batch, and the keys that are valid in it.

    `_warned`: the senders whose records a task has listed; each is listed once.
    """

    keyring: Keyring
    commands: Requirement
    reports: Requirement
    _warned: set[tuple[str, str]] = field(default_factory=set)

    def check_command(
        self,
        signature: Signature | None,
        key: bytes,
        digest: Callable[[], bytes],
        sender: str,
        position: RecordPosition,
        warn: Callable[[RecordRejected], None],
    ) -> str | None:
        """Require a command to be signed by a key of its sender, `by`. Raises RecordRejected.

        Returns the id of the key that has signed it; None: no signature was verified. Agents and
        jobs send no commands: their names can't be a sender's. `digest`: returns that of the
        value.
        """
        if self.commands == "open":
            return None
        if not is_user(sender):
            self._reject(
                self.commands,
                SenderRejected("by", sender, "the name of a user: agents and jobs command nothing"),
                (sender, "by"),
                warn,
            )
        is_right = self._check(self.commands, signature, key, "", digest, sender, position, warn)
        return signature.key_id if is_right and signature is not None else None

    def check_broker_record(
        self,
        signature: Signature | None,
        key: bytes,
        kind: str,
        digest: Callable[[], bytes],
        broker: str,
        position: RecordPosition,
        warn: Callable[[RecordRejected], None],
    ) -> None:
        """Require a broker's record to be signed by a key of the broker. Raises RecordRejected.

        `digest`: returns that of the value. `broker`: <cluster>/<broker>. The position gets the
        time of a verified signature.
        """
        if self.reports == "open":
            return
        if self._check(self.reports, signature, key, kind, digest, broker, position, warn):
            assert signature is not None
            position["signed_us"] = signature.signed_us

    def _check(
        self,
        required: Requirement,
        signature: Signature | None,
        key: bytes,
        kind: str,
        digest: Callable[[], bytes],
        principal: str,
        position: RecordPosition,
        warn: Callable[[RecordRejected], None],
    ) -> bool:
        """Return whether a record has the signature that it should have."""
        topic, at_ms = position["topic"], position["append_ms"]
        try:
            self.keyring.verify(signature, topic, key, kind, digest, at_ms, principal)
        except SignatureRejected as error:
            rejection = SenderRejected(error.field, error.value, error.expected)
            self._reject(required, rejection, (principal, error.field), warn)
            return False
        return True

    def _reject(
        self,
        required: Requirement,
        rejection: RecordRejected,
        sender: tuple[str, str],
        warn: Callable[[RecordRejected], None],
    ) -> None:
        """Raise the rejection, or list it once for each sender."""
        if required == "signed":
            raise rejection
        if sender not in self._warned:
            self._warned.add(sender)
            expected = f"{rejection.expected}; it is taken as long as the setting is `warn`"
            warn(RecordRejected(rejection.field, rejection.value, expected))
