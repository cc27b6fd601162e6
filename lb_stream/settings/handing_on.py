"""Hands settings on to programs that this one starts, secrets not among the arguments.

All users of a machine see the arguments of all processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lb_stream.contracts.keys import SettingError
from lb_stream.settings.layers import KeyPath, parse_argument
from lb_stream.settings.secrets import is_secret, is_secret_file

VARIABLE = "LB_SECRET_SETTINGS"
"""Environment variable with a JSON list of settings, each as --set takes it."""
OPTION = "--set"


def hide_secret_arguments(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Move each `--set` with a secret from the arguments into the environment.

    Returns both. `environment`: that of the program. Raises SettingError for a wrong argument.
    """
    kept, hidden, left = [], list_hidden(environment), iter(arguments)
    for argument in left:
        setting = next(left, "") if argument == OPTION else ""
        if setting and _find_secrets(setting):
            hidden.append(setting)
        else:
            kept += [argument, setting] if argument == OPTION else [argument]
    changed = dict(environment)
    if hidden:
        changed[VARIABLE] = json.dumps(hidden)
    return kept, changed


def list_hidden(environment: Mapping[str, str]) -> list[str]:
    """List the settings that the program which started this one has hidden.

    Raises SettingError.
    """
    try:
        found = json.loads(environment.get(VARIABLE) or "[]")
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise SettingError(VARIABLE, "***", "what lbctl has set, for programs that it starts")
    return list(map(str, found))


def describe_seen_secrets(arguments: Iterable[str]) -> Iterator[str]:
    """Describe each secret among the settings on a command line. Raises SettingError."""
    for argument in arguments:
        for path in _find_secrets(argument):
            name = ".".join(path)
            variable = f"LB_{'__'.join(path)}".upper()
            yield (
                f"--set {name}: every user of this machine can see a program's arguments: give it "
                f"in a file of settings (chmod 600) or in {variable}"
            )


def _find_secrets(setting: str) -> list[KeyPath]:
    return [
        path
        for path, given in parse_argument(setting).items()
        if is_secret(path) and given.value != "" and not is_secret_file(path, given.value)
    ]
