"""Contexts: named files of settings, of which one is used where a command names no file.

They are in one file of the user's, as kubectl has it; LB_CONTEXTS names another. LB_CONTEXT chooses
a context for one shell; `none` is no context.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from lb_stream.cli.shared.output import CommandError, note

PLACE, CHOICE = "LB_CONTEXTS", "LB_CONTEXT"
"""Variables: the file with the contexts; the one that is used instead of the current one."""
NONE = "none"
"""Chosen like a context: commands then use none."""


@dataclass(frozen=True, slots=True)
class Context:
    """The files of settings of one pipeline; absolute paths."""

    config: str | None
    broker_conf: str | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name. `current`: the one that commands use; None: none."""

    known: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def require(self, name: str) -> Context:
        """Return a context. Raises CommandError, which lists those that there are."""
        if name not in self.known:
            names = ", ".join(sorted(self.known)) or "none; lbctl context set makes one"
            raise CommandError(f"context {name}: expected one of those in {place()}: {names}", 2)
        return self.known[name]


def place() -> Path:
    """Return the file that has the contexts; it need not exist."""
    given = os.environ.get(PLACE)
    return Path(given) if given else Path(typer.get_app_dir("lb_stream")) / "contexts.json"


def load_contexts() -> Contexts:
    """Return the contexts of the user; none if there is no file. Raises CommandError."""
    path = place()
    try:
        text = path.read_text()
        if not text.strip():
            return Contexts()
        fields: Any = json.loads(text)
        known = {
            str(name): Context(own["config"], own["broker_conf"])
            for name, own in fields["contexts"].items()
        }
        return Contexts(known, fields["current"])
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        if not os.environ.get(PLACE):  # such as the home of another user: nothing can be kept there
            return Contexts()
        raise CommandError(f"{path}: {error.strerror}", 2) from None
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise CommandError(
            f"{path}: expected contexts as lbctl context writes them; correct it or remove it", 2
        ) from None


def save_contexts(contexts: Contexts) -> None:
    """Write the user's contexts, whole or not at all. Raises CommandError."""
    path = place()
    fields = {
        "current": contexts.current,
        "contexts": {name: asdict(own) for name, own in sorted(contexts.known.items())},
    }
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(fields, indent=2) + "\n")
        part.replace(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def find_files(
    config: Path | None, broker_conf: Path | None, *, uses_current: bool = True
) -> tuple[Path | None, Path | None]:
    """Return the given files of settings; if none is given, those of the context in use.

    `uses_current`: the current context counts, not only one that is chosen for this command.
    Raises CommandError for a context that is chosen and unknown.
    """
    if config is not None or broker_conf is not None:
        return config, broker_conf
    chosen = os.environ.get(CHOICE)
    if chosen == NONE or not (chosen or uses_current):
        return None, None
    contexts = load_contexts()
    name = chosen or contexts.current
    if not name:
        return None, None
    own = contexts.require(name)
    return (
        None if own.config is None else Path(own.config),
        None if own.broker_conf is None else Path(own.broker_conf),
    )


def note_current(config: Path | None, broker_conf: Path | None) -> None:
    """Write on stderr which context a command uses that names neither files nor a context.

    Raises CommandError.
    """
    is_named = config is not None or broker_conf is not None or os.environ.get(CHOICE)
    name = None if is_named else load_contexts().current
    if name is not None:
        note(f"using the current context, {name} (none: lbctl --context {NONE})")


def use_context(name: str, config: Path | None, broker_conf: Path | None) -> None:
    """Write a context with these files, and make it the current one. Raises CommandError."""
    if name == NONE:
        raise CommandError(f"context {NONE}: expected another name; this one is for no context", 2)
    contexts = load_contexts()
    paths = (None if file is None else str(file.resolve()) for file in (config, broker_conf))
    known = {**contexts.known, name: Context(*paths)}
    save_contexts(replace(contexts, known=known, current=name))
