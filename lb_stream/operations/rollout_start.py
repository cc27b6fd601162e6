"""`rollout-start`: order the restart of a cluster's brokers, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.commands import BrokerName, Word
from lb_stream.contracts.patterns import find_pattern_error
from lb_stream.contracts.verbs import RequiredRight
from lb_stream.core.commands.base import (
    BadForm,
    Button,
    CommandLine,
    Effect,
    Operation,
    StateCommand,
    broker_of,
    command,
    done,
    make,
    named,
    option,
    plural,
    refused,
)
from lb_stream.core.model.rollout import RolloutOrder

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState

MOST_PATTERNS = 1_000
MOST_BROKERS = 10_000


def _split_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError("expected names of brokers with commas between, as a:8080,b:8080")
    return names


@command(
    CommandLine(
        "rollout start",
        "rollout start --of 'broker-[1-3].*' --canary broker-1 --cluster eu-1 · lbctl rollout "
        "start --continue --at-most 2",
        "Order a rollout: brokers are emptied and restarted one after the other. `lbctl rollout "
        "next` begins each, or with --continue they begin by themselves.",
    ),
    verb="rollout",
    effect="orders a [rollout](rollouts.md) of all brokers that are alive, or of those named by "
    "`--of` or `--in-order`. Nothing is begun before `rollout next`, unless `--continue` is given",
    buttons=[
        Button(
            "rollout-start",
            "Start a rollout",
            "Restart the brokers one after the other; each is emptied first.",
            asks=("of", "in_order", "canary", "at_most", "version", "continues"),
        )
    ],
)
class RolloutStart(StateCommand):
    """Order a rollout: each of these brokers is emptied, restarted by somebody, and filled again.

    One rollout of a cluster is on at a time.
    """

    kind: Literal["rollout-start"] = "rollout-start"
    phrase = "starts a rollout"
    of: Annotated[
        list[Word],
        option("--of", metavar="PATTERN"),
        Field(
            title="Only brokers whose name matches",
            max_length=MOST_PATTERNS,
            description="Only brokers that this regular expression matches as a whole: their host, "
            "or with a colon their host:port. Several may be given. Without: all that are "
            "alive.",
        ),
    ] = []
    in_order: Annotated[
        list[BrokerName],
        option("--in-order", metavar="BROKER,BROKER…", parse=_split_names),
        Field(
            title="Brokers in their order",
            max_length=MOST_BROKERS,
            description="These brokers, in this order. Without: the balancer chooses the order.",
        ),
    ] = []
    at_most: Annotated[
        int,
        option("--at-most", metavar="N"),
        Field(
            title="Brokers away at the same time",
            ge=1,
            le=1_000,
            description="So many brokers may be away at the same time.",
        ),
    ] = 1
    canary: Annotated[
        BrokerName | None,
        option("--canary", metavar="BROKER"),
        Field(
            title="First broker",
            description="The broker that is first: no other one is begun before it.",
        ),
    ] = None
    version: Annotated[
        Word | None,
        option("--version", metavar="VERSION"),
        Field(
            title="New version",
            min_length=1,
            description="A broker is done when it reports this version.",
        ),
    ] = None
    continues: Annotated[
        bool,
        option("--continue"),
        Field(
            title="Go on by itself",
            description="Begin each broker as soon as it may be begun, without a command.",
        ),
    ] = False
    even_if_full: Annotated[
        bool,
        option("--even-if-full"),
        Field(description="Also begin a broker whose load the others can't carry."),
    ] = False
    brokers = ("canary", "in_order")

    def required_rights(self) -> tuple[RequiredRight, ...]:
        if self.in_order:
            return super().required_rights()
        return (RequiredRight(self.spec.verb),)  # expressions may match any broker

    @model_validator(mode="after")
    def _consistent(self) -> RolloutStart:
        if (trouble := _find_conflict(self.of, self.in_order, self.canary)) is not None:
            raise PydanticCustomError("conflict", "{trouble}", {"trouble": trouble})
        return self

    @classmethod
    def check_given(cls, fields: Mapping[str, object]) -> None:
        of, in_order, canary = (fields.get(name) for name in ("of", "in_order", "canary"))
        trouble = _find_conflict(_as_list(of), _as_list(in_order), canary)
        if trouble is not None:
            raise BadForm(f"expected {trouble}")

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        fields: dict[str, object] = {name: text for name, text in given.items() if text}
        if given.get("of"):
            fields["of"] = given["of"].split()
        if given.get("in_order"):
            fields["in_order"] = given["in_order"].replace(",", " ").split()
        if given.get("continues"):
            fields["continues"] = True
        return {name: value for name, value in fields.items() if name in cls.model_fields}

    def apply(self, context: CommandContext) -> Effect:
        going_on = context.operator_state.rollout
        if going_on is not None and not going_on.aborted:
            count = plural(len(going_on.brokers), "broker")
            return refused(
                "rollout_on",
                f"a rollout of {count} is on, by {going_on.by or 'unknown'}: lbctl rollout status; "
                "lbctl rollout abort ends it",
            )
        if context.config.balancer.dry_run:
            return refused(
                "dry_run", "nothing is published in a dry run: lbctl clusters enable ends it"
            )
        for pattern in self.of:
            if (trouble := find_pattern_error(pattern)) is not None:
                return refused("not_an_expression", f"{pattern!r}: {trouble}")
        live = context.speaking_brokers()
        chosen = self._choose(context, live)
        if isinstance(chosen, Effect):
            return chosen
        if self.at_most >= len(live):
            text = f"{self.at_most} brokers may be away at the same time, and {len(live)} are alive"
            return refused("too_few_brokers", f"{text}: no other would be left to carry the load")
        order = RolloutOrder(
            id=context.received.head["id"],
            by=context.by,
            at_ms=context.received.at_ms,
            brokers=chosen,
            in_order=bool(self.in_order),
            at_most=self.at_most,
            canary=None if self.canary is None else broker_of(self.canary),
            version=self.version,
            wanted=len(chosen) if self.continues else 0,
            continues=self.continues,
            even_if_full=self.even_if_full,
        )
        then = "; lbctl rollout next begins the first"
        if self.continues:
            then = "; it begins now, and goes on by itself"
        count = plural(len(chosen), "broker")
        return done(
            f"a rollout of {count} is on: {named(chosen)}{then}{self._left_out(context, chosen)}",
            rollout=order,
        )

    def _choose(self, context: CommandContext, live: Sequence[str]) -> tuple[str, ...] | Effect:
        """Return the brokers of the rollout, or why there is none."""
        from lb_stream.core.model.policies import matching

        known = context.view.brokers.names
        listed = tuple(dict.fromkeys(map(broker_of, self.in_order)))
        canary = None if self.canary is None else broker_of(self.canary)
        for broker in (*listed, canary):
            if broker is not None and broker not in known:
                return context.unknown_broker(broker)
            if broker is not None and broker not in live:
                return refused("not_alive", f"{broker} is not alive: it can't be emptied")
        chosen = listed or tuple(live)
        if self.of:
            for pattern in self.of:
                if not matching(pattern, known):
                    text = f"{pattern!r} matches none of the brokers that have reported"
                    return refused("unknown_broker", f"{text}: {named(known)}")
            chosen = tuple(
                broker for broker in live if any(matching(text, [broker]) for text in self.of)
            )
        if not chosen:
            return refused("not_alive", "none of these brokers is alive")
        if canary is not None and canary not in chosen:
            text = f"the canary {canary} is none of the rollout's brokers"
            return refused("unknown_broker", f"{text}: {named(chosen)}")
        return chosen

    def _left_out(self, context: CommandContext, chosen: Sequence[str]) -> str:
        """Describe the brokers that would be part of it if they were alive: the end of a sentence.

        Brokers that said goodbye are not named.
        """
        from lb_stream.core.model.policies import matching

        silent = [
            broker
            for broker in context.silent_brokers()
            if broker not in chosen
            and not self.in_order
            and (not self.of or any(matching(text, [broker]) for text in self.of))
        ]
        return f"; without {named(silent)}, not alive" if silent else ""

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        return [make("rollout-abort", rollout=self.id)]

    def subject(self) -> tuple[str, str]:
        return "rollout", ""


def _as_list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _find_conflict(of: Sequence[str], in_order: Sequence[str], canary: object) -> str | None:
    """Return what was expected where options contradict each other; None: they don't."""
    if of and in_order:
        return "patterns (--of) or an order (--in-order), not both"
    names = [broker_of(name) for name in in_order]
    if len(set(names)) < len(names):
        return "each broker once in --in-order"
    if names and canary is not None and broker_of(str(canary)) != names[0]:
        return "the first broker of --in-order as the canary"
    return None
