"""Reads the keys that `[security]` names: the program's own, and the file of signers."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import SecuritySettings, Settings
from lb_stream.settings.files import read_secret, read_setting_file
from lb_stream.settings.secrets import FROM_FILE, remember_secrets
from lb_stream.settings.watched_file import WatchedFile

if TYPE_CHECKING:
    from lb_stream.access.signing_keys import Keyring, Signer


def load_signer(security: SecuritySettings) -> Signer | None:
    """Return the signer of this program's key; None without a key. Raises SettingError."""
    if not security.private_key:
        return None
    from lb_stream.access.signing_keys import KeyFileError, Signer

    text = security.private_key
    if text.startswith(FROM_FILE):
        text = read_setting_file(Path(text.removeprefix(FROM_FILE)), "security.private_key")
        remember_secrets(("security", "private_key"), text)
    passphrase = read_secret(("security", "passphrase"), security.passphrase)
    try:
        return Signer.from_pem(text.encode(), passphrase.encode() or None)
    except KeyFileError as error:
        shown = security.private_key if security.private_key.startswith(FROM_FILE) else "***"
        expected = f"an Ed25519 key in PEM, as `lbctl keys new` makes it ({error})"
        raise SettingError("security.private_key", shown, expected) from None


def load_own_name(security: SecuritySettings, signer: Signer) -> str:
    """Return the name for which this program's key signs. Raises SettingError."""
    name = SignersFile(security).keyring().find_name(signer.key_id)
    if name is None:
        expected = f"a line with a name for the key {signer.key_id} of security.private_key"
        raise SettingError("security.signers", security.signers, expected)
    return name


def require_job_key(settings: Settings) -> None:
    """Raise SettingError if the job lacks the keys that its settings ask for.

    Where commands must be signed, the jobs of a pipeline check each other's records, too.
    """
    from lb_stream.access.signatures import JOB

    security, name = settings.security, f"{JOB}{settings.stream.pipeline_id}"
    signer = load_signer(security)
    if signer is None:
        if {security.commands, security.decisions} != {"open"}:
            expected = f"the job's key, as it signs too: `lbctl keys new {name}` makes it"
            raise SettingError("security.private_key", "", expected)
    elif not any(
        line.key_id == signer.key_id and line.is_for(name)
        for line in SignersFile(security).keyring().signers
    ):
        expected = f"a line for {name} with the key {signer.key_id} of security.private_key"
        raise SettingError("security.signers", security.signers, expected)
    if security.checks_records:
        SignersFile(security)


def list_unsigned(settings: Settings) -> list[str]:
    """Return what may come unsigned from other machines: commands, reports, decisions."""
    if not has_remote_kafka(settings):
        return []
    security = settings.security
    return [
        name for name in ("commands", "reports", "decisions") if getattr(security, name) == "open"
    ]


def has_remote_kafka(settings: Settings) -> bool:
    """Return whether Kafka listens where other machines reach it."""
    hosts = [server.rpartition(":")[0] for server in settings.kafka.bootstrap_servers.split(",")]
    return not all(is_loopback(host) for host in hosts)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


class SignersFile:
    """The file of signers, read anew when it has changed.

    After a good reading, a file that can't be read counts as unchanged, and is logged once.
    """

    def __init__(self, security: SecuritySettings) -> None:
        """Read the file. Raises SettingError."""
        if not security.signers:
            raise SettingError(
                "security.signers",
                "",
                "the file of the keys that may sign: `lbctl keys new` makes it",
            )
        self._security = security
        self._path = Path(security.signers)
        self._file = WatchedFile(self._path, self._read, kept="the keys")

    def text(self) -> str:
        """Return the file as it is now, or as it was when it could last be read."""
        return self._file.content()[0]

    def keyring(self) -> Keyring:
        """Return the keys of the file as it is now."""
        return self._file.content()[1]

    def _read(self) -> tuple[str, Keyring]:
        from lb_stream.access.signing_keys import KeyFileError, Keyring, parse_signers

        text = read_setting_file(self._path, "security.signers")
        try:
            signers = parse_signers(text, str(self._path))
        except KeyFileError as error:
            expected = f"lines of OpenSSH's allowed_signers ({error})"
            raise SettingError("security.signers", str(self._path), expected) from None
        return text, Keyring(tuple(signers), self._security.window_ms)
