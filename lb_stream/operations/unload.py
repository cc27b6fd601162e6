"""`unload`: unload a bundle, or all bundles of a namespace, from their brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.commands import BrokerName, NamespaceName, Range
from lb_stream.core.commands.base import (
    BadForm,
    Button,
    CommandLine,
    MoveCommand,
    Operation,
    argument,
    broker_of,
    command,
    describe_bundle,
    named,
    option,
    split_bundle,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.responder import BundleAnswer
    from lb_stream.core.model.operator_state import OperatorState
    from lb_stream.core.round.operator_moves import OperatorMoves


@command(
    CommandLine(
        "namespaces unload",
        "namespaces unload shop/orders -b 0x00000000_0x40000000 -d broker-2.eu:8080",
        "Unload a bundle, or all bundles of a namespace; wait until reports confirm it.",
        preview=True,
    ),
    verb="move",
    effect="unloads every bundle of the namespace, as far as limits allow; the result says how "
    "many. With `-b RANGE` only that bundle, which is placed anew; with `-d BROKER` it "
    "moves there (a transfer under the extensible manager). With `--queue` moves beyond "
    "the limits [wait](#moves-that-wait-for-room)",
    buttons=[
        Button(
            "unload",
            "Unload",
            "Unload {bundle} from its broker.",
            on=("bundle",),
            asks=("destination",),
        )
    ],
)
class UnloadBundles(MoveCommand):
    """Unload a bundle, or all bundles of a namespace, from their brokers."""

    kind: Literal["unload"] = "unload"
    namespace: Annotated[NamespaceName, argument("TENANT/NAMESPACE")]
    bundle: Annotated[
        Range | None,
        option("--bundle", "-b", metavar="RANGE"),
        Field(
            description="A bundle's range, 0xLLLLLLLL_0xHHHHHHHH. Default: all bundles of the "
            "namespace."
        ),
    ] = None
    destination: Annotated[
        BrokerName | None,
        option("--destination", "-d", metavar="BROKER"),
        Field(description="The broker that gets the bundle; only with a bundle."),
    ] = None
    queue: Annotated[
        bool | None,
        option("--queue"),
        Field(
            description="Let moves beyond the limits wait until there is room, instead of a "
            "refusal."
        ),
    ] = None
    brokers = ("destination",)
    namespaces = ("namespace",)
    ranges = ("bundle",)

    def describe(self) -> str:
        to = f" to {self.destination}" if self.destination else ""
        return f"moves {describe_bundle(self.namespace, self.bundle)}{to}"

    @model_validator(mode="after")
    def _one_bundle(self) -> UnloadBundles:
        if self.destination is not None and self.bundle is None:
            raise PydanticCustomError("destination", "a destination only together with a bundle")
        return self

    @classmethod
    def check_given(cls, fields: Mapping[str, object]) -> None:
        if "destination" in fields and "bundle" not in fields:
            raise BadForm("-d names the destination of one bundle: name the bundle with -b")

    def decide(self, moves: OperatorMoves) -> list[BundleAnswer]:
        rows = moves.rows_of(self.namespace)
        if not len(rows):
            return [moves.unknown_namespace(self.namespace)]
        if self.bundle is not None:
            row = moves.find_bundle(self.namespace, self.bundle)
            if not isinstance(row, int):
                return [row]
            rows = [row]

        destination: int | None = None
        if self.destination is not None:
            broker, active = broker_of(self.destination), moves.reachable_brokers()
            if broker not in active:
                text = f"{broker} is an inactive destination broker; active: {named(active)}"
                return [moves.refused("inactive_destination", f"not allowed: {text}")]
            destination = active[broker]

        if self.bundle is None:
            rows = moves.served_or_moving(rows)
        answers = moves.unload(rows, destination, queue=bool(self.queue), command_id=self.id)
        nothing = f"no broker owns a bundle of {self.namespace}: nothing to do"
        return answers or [moves.nothing(nothing)]

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        to = given.get("destination")
        return split_bundle(given["bundle"]) | ({"destination": to} if to else {})

    def opposites(self, before: OperatorState, now_ms: int) -> list[Operation]:
        return []  # it sets no state; undo moves its bundles back
