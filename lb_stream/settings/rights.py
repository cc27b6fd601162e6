"""Reads the file of rights that the setting `security.rights` names."""

from __future__ import annotations

from pathlib import Path

from lb_stream.access.rights import Rights, RightsError, parse_rights
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import SecuritySettings, Settings
from lb_stream.settings.files import read_setting_file
from lb_stream.settings.signing import has_remote_kafka
from lb_stream.settings.watched_file import WatchedFile

KEY = "security.rights"


class RightsFile:
    """The file of rights, read anew when it has changed.

    After a good reading, a file that can't be read counts as unchanged, and is logged once.
    """

    def __init__(self, security: SecuritySettings) -> None:
        """Read the file. Raises SettingError."""
        self._path = Path(security.rights)
        self._file = WatchedFile(self._path, self._read, kept="the rights")

    def text(self) -> str:
        """Return the file as it is now, or as it was when it could last be read."""
        return self._file.content()[0]

    def rights(self) -> Rights:
        """Return the rights of the file as it is now."""
        return self._file.content()[1]

    def _read(self) -> tuple[str, Rights]:
        text = read_setting_file(self._path, KEY)
        try:
            return text, parse_rights(text, str(self._path))
        except RightsError as error:
            raise SettingError(KEY, str(self._path), f"a file of rights ({error})") from None


def load_rights(security: SecuritySettings) -> RightsFile | None:
    """Return the file of rights; None: whoever may send commands may send all.

    Raises SettingError.
    """
    return RightsFile(security) if security.rights else None


def has_unproven_names(settings: Settings) -> bool:
    """Return whether rights count in names that senders on other machines need not prove."""
    security = settings.security
    return bool(security.rights) and security.commands != "signed" and has_remote_kafka(settings)
