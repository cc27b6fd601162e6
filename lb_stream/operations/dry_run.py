"""`dry-run`: begin or end a dry run, in which decisions are logged and not published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lb_stream.core.commands.base import (
    CommandLine,
    Effect,
    Form,
    Operation,
    Present,
    SettingsCommand,
    WhatIf,
    command,
    done,
)

if TYPE_CHECKING:
    from lb_stream.core.model.operator_state import OperatorState
    from lb_stream.settings.overrides import SettingsChange


class Begin(Form):
    """Begin a dry run."""

    def fields(self) -> dict[str, object]:
        return {"on": True}


class End(Form):
    """End a dry run."""

    def fields(self) -> dict[str, object]:
        return {"on": False}


@command(
    CommandLine(
        "clusters enable",
        "clusters enable eu-1",
        "End a cluster's dry run: its decisions are published from now on. Proposals still wait "
        "for approval.",
        form=End,
        cluster="argument",
        all_clusters=True,
        preview=True,
    ),
    CommandLine(
        "clusters disable",
        "clusters disable eu-1",
        "Begin a dry run of a cluster: its decisions are logged and not published.",
        form=Begin,
        cluster="argument",
        all_clusters=True,
    ),
    verb="settings",
    effect="ends or begins a dry run. A cluster is in dry run until it is enabled, unless the "
    "job's settings say otherwise (`mode`). In mode `approve` proposals wait for approval "
    "also after its end. In a dry run unloads and splits by command are decided, get a "
    "result, and are not published",
)
class DryRun(SettingsCommand):
    """Begin or end a dry run. A cluster is in dry run until an operator ends it."""

    kind: Literal["dry-run"] = "dry-run"
    on: bool

    def describe(self) -> str:
        return "begins a dry run" if self.on else "ends the dry run"

    def change_settings(self, change: SettingsChange) -> Effect:
        if self.on:
            text = "decisions are logged and not published"
            return done(text + change.describe_pending(), settings=change.with_dry_run(True))
        after = change.with_dry_run(False)
        text = "decisions are published from now on"
        if change.mode_after(after) == "approve":
            text += "; moves and splits of balancing wait for approval (mode = approve)"
        return done(text + change.describe_brokers(), settings=after)

    def preview(self, present: Present) -> WhatIf:
        return WhatIf({"dry_run": self.on})

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        from lb_stream.settings.overrides import build_inverse_commands

        return build_inverse_commands(["dry_run"], before)
