"""`set-capacity`: say what brokers can carry, in place of the limits that they report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.base import LONGEST_BROKER
from lb_stream.contracts.verbs import ALL, RequiredRight
from lb_stream.core.commands.base import (
    BadForm,
    CommandLine,
    Effect,
    Operation,
    StateCommand,
    argument,
    broker_of,
    command,
    done,
    make,
    named,
    option,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState

MOST_CAPACITIES = 1_000
"""Brokers and patterns of a cluster with capacities that commands have set."""
HIGHEST = 1e9
"""The highest capacity in any unit, as in the setting broker_capacities."""


@command(
    CommandLine(
        "brokers capacity",
        "brokers capacity 'broker-1*' --bandwidth-in 1000 --bandwidth-out 1000 --cluster eu-1",
        "Say what brokers can carry, in place of the limits that they report.",
        preview=True,
    ),
    verb="capacity",
    effect="these capacities replace the limits that the broker, or each broker that the pattern "
    "matches, reports, for all strategies; they replace earlier ones of the same name, and go "
    "over `broker_capacities`. `--unset` ends that",
)
class SetCapacity(StateCommand):
    """Say what brokers can carry, in place of the limits that they report."""

    kind: Literal["set-capacity"] = "set-capacity"
    broker: Annotated[
        str,
        argument("BROKER|PATTERN"),
        Field(
            min_length=1,
            max_length=LONGEST_BROKER,
            pattern=r"^\S+$",
            description="A broker, or a pattern with * and ?: of host:port, or of hosts if it has "
            "no colon.",
        ),
    ]
    cpu_cores: Annotated[
        float | None,
        option("--cpu-cores", metavar="N"),
        Field(gt=0, le=HIGHEST, description="Cores that it may use."),
    ] = None
    memory_mib: Annotated[
        float | None,
        option("--memory", metavar="MIB"),
        Field(gt=0, le=HIGHEST, description="Heap memory."),
    ] = None
    direct_memory_mib: Annotated[
        float | None,
        option("--direct-memory", metavar="MIB"),
        Field(gt=0, le=HIGHEST, description="Direct memory."),
    ] = None
    bandwidth_in_mbps: Annotated[
        float | None,
        option("--bandwidth-in", metavar="MBIT/S"),
        Field(gt=0, le=HIGHEST, description="Bandwidth of its network, in."),
    ] = None
    bandwidth_out_mbps: Annotated[
        float | None,
        option("--bandwidth-out", metavar="MBIT/S"),
        Field(gt=0, le=HIGHEST, description="Bandwidth of its network, out."),
    ] = None
    unset: Annotated[
        bool,
        option("--unset"),
        Field(description="What the broker reports counts again."),
    ] = False

    objects = {"broker": "broker"}

    def required_rights(self) -> tuple[RequiredRight, ...]:
        # In the patterns of grants a bracket stands for itself, here for one of several characters.
        pattern = re.sub(r"\[.*\]", ALL, broker_of(self.broker))
        return (RequiredRight(self.spec.verb, pattern),)

    def describe(self) -> str:
        return f"says what {self.broker or 'every broker'} can carry"

    @model_validator(mode="after")
    def _something(self) -> SetCapacity:
        if bool(self._given()) == self.unset:
            raise PydanticCustomError("nothing", "at least one capacity, or unset: not both")
        return self

    @classmethod
    def check_given(cls, fields: Mapping[str, object]) -> None:
        given = [name for name in _capacity_fields() if fields.get(name) is not None]
        if bool(given) == bool(fields.get("unset")):
            raise BadForm("expected at least one capacity, as --bandwidth-in 1000, or --unset")

    def apply(self, context: CommandContext) -> Effect:
        from lb_stream.core.config.broker_capacities import CapacityRule

        pattern, before = broker_of(self.broker), _by_pattern(context.operator_state)
        kept = tuple(text for name, text in before.items() if name != pattern)
        if self.unset:
            if pattern not in before:
                return refused("not_set", f"no command has set {pattern}; set: {named(before)}")
            return done(f"{pattern}: what is reported counts again", capacities=kept)
        rule = CapacityRule(pattern, self._given())
        if len(kept) >= MOST_CAPACITIES:
            text = f"capacities are set for {len(kept)} names, {MOST_CAPACITIES} at most"
            return refused("too_many_capacities", f"{text}: use a pattern")
        matched = [name for name in context.view.brokers.names if rule.matches(name)]
        text = f"counts from now on: {rule.to_text()}"
        if not matched:
            known = named(context.view.brokers.names)
            text += f"; warning: no broker matches; those that have reported: {known}"
        elif matched != [pattern]:
            text += f"; it matches {named(matched)}"
        return done(text, capacities=(*kept, rule.to_text()))

    def _given(self) -> dict[str, float]:
        values = self.model_dump(include=_capacity_fields(), exclude_none=True)
        return {name: float(value) for name, value in values.items()}

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        from lb_stream.core.config.broker_capacities import parse_rule

        pattern, had = broker_of(self.broker), _by_pattern(before)
        if pattern in had:
            earlier = parse_rule(had[pattern]).capacities
            return [make(self.kind, broker=pattern, **earlier)]
        return [] if self.unset else [make(self.kind, broker=pattern, unset=True)]

    def subject(self) -> tuple[str, str]:
        return self.kind, broker_of(self.broker)

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        from lb_stream.core.config.broker_capacities import CapacityRule

        pattern = broker_of(self.broker)
        wanted = None if self.unset else CapacityRule(pattern, self._given()).to_text()
        return _by_pattern(now).get(pattern) == wanted


def _by_pattern(state: OperatorState) -> dict[str, str]:
    """Map names and patterns of brokers to the rules that commands have set."""
    from lb_stream.core.config.broker_capacities import parse_rule

    return {parse_rule(text).pattern: text for text in state.capacities}


def _capacity_fields() -> set[str]:
    """Return the names of the fields that hold capacities."""
    return {name for name in SetCapacity.model_fields if name.endswith(("_cores", "_mib", "_mbps"))}
