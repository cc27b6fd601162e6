"""What has been told, in a file: a watcher that is started again tells nothing twice."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from lb_stream.notify.open_events import Key, OpenEvent
from lb_stream.notify.schedule import TargetState
from lb_stream.settings.secrets import hide

logger = logging.getLogger(__name__)

FORMAT = 1


@dataclass(frozen=True, slots=True)
class WatcherState:
    """The troubles that are open, and what each target has been told of them."""

    opened: Mapping[Key, OpenEvent] = field(default_factory=dict)
    told: Mapping[str, TargetState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Written:
    format: int
    pipeline: str
    opened: tuple[OpenEvent, ...]
    told: dict[str, TargetState]


def read_state(path: Path, pipeline: str) -> WatcherState:
    """What is there; nothing where there is no file.

    One that can't be read is set aside: all that lasts is told again. Raises OSError.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return WatcherState()
    try:
        found = msgspec.json.decode(text, type=_Written)
        if (found.format, found.pipeline) != (FORMAT, pipeline):
            raise ValueError(f"format {found.format} of pipeline {found.pipeline}")
    except (msgspec.MsgspecError, ValueError) as error:
        aside = path.with_name(f"{path.name}.unread")
        path.replace(aside)
        logger.warning(
            "%s can't be used (%s): it is set aside as %s, and all that lasts is told again",
            path,
            hide(str(error)),
            aside,
        )
        return WatcherState()
    return WatcherState({entry.trouble.key: entry for entry in found.opened}, found.told)


def write_state(path: Path, pipeline: str, state: WatcherState) -> None:
    """Put it in the place of what was there, as a whole. Raises OSError."""
    made = msgspec.json.encode(
        _Written(FORMAT, pipeline, tuple(state.opened.values()), dict(state.told))
    )
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
