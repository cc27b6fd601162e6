"""Saves in a file which messages were sent, so that a restarted watcher sends none twice."""

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
    """The open events, and what each target has been sent about them."""

    opened: Mapping[Key, OpenEvent] = field(default_factory=dict)
    targets: Mapping[str, TargetState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _StateFile:
    """What the file holds."""

    format: int
    pipeline: str
    opened: tuple[OpenEvent, ...]
    targets: dict[str, TargetState]


def read_state(path: Path, pipeline: str) -> WatcherState:
    """Return the state of a file; an empty one where there is no file.

    A file that can't be used is renamed, and events that go on are sent again. Raises OSError.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return WatcherState()
    try:
        found = msgspec.json.decode(text, type=_StateFile)
        if (found.format, found.pipeline) != (FORMAT, pipeline):
            raise ValueError(f"format {found.format} of pipeline {found.pipeline}")
    except (msgspec.MsgspecError, ValueError) as error:
        aside = path.with_name(f"{path.name}.unread")
        path.replace(aside)
        logger.warning(
            "%s can't be used (%s): it is now %s, and events that go on are sent again",
            path,
            hide(str(error)),
            aside,
        )
        return WatcherState()
    return WatcherState({entry.event.key: entry for entry in found.opened}, found.targets)


def write_state(path: Path, pipeline: str, state: WatcherState) -> None:
    """Replace the file as a whole. Raises OSError."""
    content = _StateFile(FORMAT, pipeline, tuple(state.opened.values()), dict(state.targets))
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(msgspec.json.encode(content))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
