"""`set-config`: change dynamic settings of a running cluster."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import MOST_VALUES, Scalar, Word
from lb_stream.core.commands.base import (
    FORCE_HELP,
    BadForm,
    Button,
    CommandLine,
    Effect,
    Form,
    Operation,
    Present,
    SettingsCommand,
    WhatIf,
    argument,
    command,
    done,
    make,
    named,
    option,
    refused_as_absurd,
)

if TYPE_CHECKING:
    from lb_stream.core.model.operator_state import OperatorState
    from lb_stream.settings.overrides import SettingsChange


class Pairs(Form):
    """Keys, each followed by its new value."""

    pairs: Annotated[
        list[str],
        argument("KEY VALUE"),
        Field(
            description="Keys, by Pulsar's names or this project's, each with its new value. All "
            "are set, or none."
        ),
    ]

    force: Annotated[
        bool | None,
        option("--force"),
        Field(description=FORCE_HELP),
    ] = None

    def fields(self) -> dict[str, object]:
        keys = self.pairs[::2]
        if len(self.pairs) % 2:
            raise BadForm(f"{keys[-1]}: its value is missing; expected KEY VALUE, once or more")
        twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
        if twice:
            raise BadForm(f"{', '.join(twice)}: expected each key once")
        values: dict[str, object] = {"values": dict(zip(keys, self.pairs[1::2], strict=True))}
        return values | ({"force": True} if self.force else {})


class MoveLimitsForm(Form):
    """The limits on moves."""

    max_moves_in_flight: Annotated[
        int | None,
        option("--in-flight", metavar="N"),
        Field(ge=0, description="Maximum moves that are pending at a time."),
    ] = None
    max_moves_in_flight_per_broker: Annotated[
        int | None,
        option("--in-flight-per-broker", metavar="N"),
        Field(ge=0, description="Maximum moves from one broker that are pending at a time."),
    ] = None
    max_moves_per_minute: Annotated[
        int | None,
        option("--per-minute", metavar="N"),
        Field(ge=0, description="Maximum moves that begin in a minute."),
    ] = None
    max_moved_mb_per_minute: Annotated[
        float | None,
        option("--mb-per-minute", metavar="MB/S"),
        Field(ge=0, description="Maximum traffic of the bundles that move in a minute."),
    ] = None
    dwell_s: Annotated[
        float | None,
        option("--dwell", metavar="S"),
        Field(
            ge=0,
            description="The grace period: how long a bundle stays after a move before it "
            "may be shed.",
        ),
    ] = None

    def fields(self) -> dict[str, object]:
        values = self.model_dump(exclude_none=True, exclude={"dwell_s"})
        if self.dwell_s is not None:
            values["min_dwell_ms"] = round(self.dwell_s * 1000)
        if not values:
            raise BadForm("expected at least one limit: see lbctl clusters limit --help")
        return {"values": values}


class Mode(Form):
    """The mode of a cluster: what is done with its decisions."""

    mode: Annotated[
        Literal["observe", "approve", "act"],
        argument("observe|approve|act"),
        Field(
            description="observe: decisions are logged; approve: they wait for approval; act: "
            "they are published."
        ),
    ]

    def fields(self) -> dict[str, object]:
        return {"values": {"mode": self.mode}}


@command(
    CommandLine(
        "config set",
        "config set shedding_strategy AvgShedder placement_strategy AvgShedder",
        "Change settings of a running cluster until they are changed again or unset. lbctl config "
        "settable lists them.",
        form=Pairs,
        all_clusters=True,
        preview=True,
    ),
    CommandLine(
        "clusters limit",
        "clusters limit eu-1 --in-flight 50 --per-minute 100",
        "Change the limits on moves.",
        form=MoveLimitsForm,
        cluster="argument",
        preview=True,
    ),
    CommandLine(
        "clusters mode",
        "clusters mode eu-1 approve",
        "Set a cluster's mode: observe logs decisions, approve makes moves wait for approval, act "
        "publishes all.",
        form=Mode,
        cluster="argument",
        preview=True,
    ),
    verb="settings",
    effect="changes settings until they are changed again or unset: all of them, or none if one "
    "is refused. `clusters limit` sets the limits on moves: all but the grace period also "
    "hold for moves by command. `clusters mode`: `observe` logs decisions (a dry run), in "
    "`approve` shedding and splits [wait for approval](approval.md), `act` publishes all",
    buttons=[
        Button(
            "publish",
            "Publish decisions",
            "Publish all decisions; nothing waits for approval.",
            fields={"values": {"mode": "act"}},
        ),
        Button(
            "ask-first",
            "Ask first",
            "Moves and splits by balancing wait for approval; other decisions are published.",
            fields={"values": {"mode": "approve"}},
        ),
        Button(
            "dry-run",
            "Dry run",
            "Make and log decisions, and publish none.",
            fields={"values": {"mode": "observe"}},
        ),
    ],
)
class SetConfig(SettingsCommand):
    """Change dynamic settings, under this project's names or Pulsar's.

    All of them change, or none when one of them is invalid.
    """

    kind: Literal["set-config"] = "set-config"
    values: Annotated[dict[Word, Scalar], Field(min_length=1, max_length=MOST_VALUES)]
    force: Annotated[bool | None, Field(description="also if it is absurd")] = None
    several = ("values",)
    objects = {"values": "setting"}

    def describe(self) -> str:
        return f"sets {named(f'{key} = {value}' for key, value in self.values.items())}"

    def change_settings(self, change: SettingsChange) -> Effect:
        after, text = change.with_values(self.values)
        absurd = [] if self.force else change.explain_absurd(self.values)
        if absurd:
            return refused_as_absurd("; ".join(absurd))
        values = change.normalise_names(self.values)
        if values.get("mode", "observe") != "observe":
            text += change.describe_brokers()
        if _stops_decisions(values):
            text += change.describe_pending()
        return done(text, settings=after)

    def preview(self, present: Present) -> WhatIf:
        return WhatIf(dict(self.values))

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        from lb_stream.settings.overrides import build_inverse_commands

        return build_inverse_commands(list(self.values), before)

    def parts(self) -> list[Operation]:
        from lb_stream.settings.names import to_our_name

        by_name = defaultdict[str, dict[str, object]](dict)  # this project's name → as given
        for name, value in self.values.items():
            by_name[to_our_name(name, value)][name] = value
        return [make(self.kind, values=values) for values in by_name.values()]

    def subject(self) -> tuple[str, str]:
        from lb_stream.settings.names import to_our_name

        return "setting", to_our_name(*next(iter(self.values.items())))

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        from lb_stream.settings.names import to_our_name

        _, own = self.subject()
        held = {
            name: value for name, value in now.settings.items() if to_our_name(name, value) == own
        }
        return held == self.values


def _stops_decisions(values: dict[str, object]) -> bool:
    """Return whether these settings switch publishing or balancing off."""
    is_off = values.get("enabled") is False or values.get("shedding_enabled") is False
    return is_off or values.get("mode") == "observe"
