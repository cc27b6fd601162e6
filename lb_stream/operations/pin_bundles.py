"""`pin-bundles`: keep bundles at their brokers for a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import LONGEST_PIN_MS, MOST_PINS, BundleName
from lb_stream.contracts.spans import parse_span
from lb_stream.core.commands.base import (
    HOUR_MS,
    Button,
    CommandLine,
    Effect,
    Form,
    Operation,
    StateCommand,
    argument,
    command,
    done,
    make,
    named,
    option,
    parse_hours,
    refused,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.apply import CommandContext
    from lb_stream.core.model.operator_state import OperatorState


class OneBundle(Form):
    """A bundle, and how long it stays."""

    namespace: Annotated[str, argument("TENANT/NAMESPACE"), Field(description="The namespace.")]
    bundle: Annotated[
        str, option("--bundle", "-b", metavar="RANGE"), Field(description="0xLLLLLLLL_0xHHHHHHHH.")
    ]
    for_ms: Annotated[
        int,
        option("--for", metavar="TIME", parse=parse_span, default="1h"),
        Field(description="How long it is pinned: 30m, 2h, 1d; 0s ends the pin."),
    ]

    def fields(self) -> dict[str, object]:
        return {"bundles": [f"{self.namespace}/{self.bundle}"], "for_ms": self.for_ms}


@command(
    CommandLine(
        "namespaces pin",
        "namespaces pin shop/orders -b 0x00000000_0x40000000 --for 2h",
        "Pin a bundle: balancing doesn't move it for a time. Commands, drains and dead brokers "
        "still move it.",
        form=OneBundle,
    ),
    verb="pin",
    effect="balancing doesn't move the bundle for this time (`0s` ends it). Commands, drains and "
    "dead brokers still move it. 1,000 bundles of a cluster may be pinned; `--why-not` "
    "shows until when",
    buttons=[
        Button(
            "pin",
            "Pin",
            "Keep {bundle} at its broker for a time.",
            on=("bundle",),
            asks=("hours",),
        ),
        Button(
            "unpin",
            "End the pin",
            "Let balancing move {bundle} again.",
            on=("bundle",),
            fields={"for_ms": 0},
        ),
    ],
)
class PinBundles(StateCommand):
    """Keep bundles at their brokers for a time.

    They still move by operators' own commands, by a drain, or when their broker dies.
    """

    kind: Literal["pin-bundles"] = "pin-bundles"
    bundles: Annotated[
        list[BundleName],
        Field(min_length=1, max_length=MOST_PINS, description="<tenant>/<namespace>/<range>"),
    ]
    for_ms: Annotated[
        int, Field(ge=0, le=LONGEST_PIN_MS, description="how long, ms; 0 ends earlier pins")
    ]
    several = ("bundles",)
    objects = {"bundles": "bundle"}

    def describe(self) -> str:
        if not self.for_ms:
            return f"ends the pin of {named(self.bundles)}"
        return f"pins {named(self.bundles)} for {self.for_ms / HOUR_MS:g} h"

    def apply(self, context: CommandContext) -> Effect:
        pins = context.operator_state.pins
        if not self.for_ms:
            free = [name for name in dict.fromkeys(self.bundles) if name in pins]
            kept = {name: until_ms for name, until_ms in pins.items() if name not in free}
            return done(f"no longer pinned: {named(free)}", pins=kept)
        if unknown := context.unknown_bundles(self.bundles):
            advice = "lbctl namespaces bundles TENANT/NAMESPACE shows the known bundles"
            return refused("unknown_bundle", f"no report names {named(unknown)}: {advice}")
        until_ms = context.view.now_ms + self.for_ms
        after = {**pins, **dict.fromkeys(self.bundles, until_ms)}
        if len(after) > MOST_PINS:
            text = f"{len(pins)} bundles are pinned, {MOST_PINS} at most"
            advice = "exclude a namespace (shedding_excluded_namespaces)"
            return refused("too_many_pins", f"{text}: {advice}")
        text = f"pinned for {self.for_ms / 60_000:g} min"
        return done(f"{text}: {named(self.bundles)}", pins=dict(sorted(after.items())))

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        return {"bundles": [given["bundle"]], "for_ms": parse_hours(given, LONGEST_PIN_MS)}

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        left_ms = defaultdict[int, list[str]](list)
        for name in self.bundles:
            left_ms[max(before.pins.get(name, 0) - now_ms, 0)].append(name)
        return [
            make("pin-bundles", bundles=names, for_ms=for_ms)
            for for_ms, names in sorted(left_ms.items())
        ]

    def subject(self) -> tuple[str, str]:
        return self.kind, self.bundles[0]

    def is_in_force(self, now: OperatorState, now_ms: int) -> bool:
        return max(now.pins.get(self.bundles[0], 0) - now_ms, 0) == self.for_ms
