"""`assign`: assign an unassigned bundle now, for a lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.commands import LONGEST_TOPIC, NamespaceName, Range
from lb_stream.core.commands.base import MoveCommand, command, describe_bundle

if TYPE_CHECKING:
    from lb_stream.core.commands.responder import BundleAnswer
    from lb_stream.core.round.operator_moves import OperatorMoves


@command(
    verb="assign",
    effect="assigns a bundle without an owner at once; [lookup servers](lookups.md) send it",
)
class Assign(MoveCommand):
    """Assign a bundle without an owner at once, for a lookup; `bundle` or `topic` names it."""

    kind: Literal["assign"] = "assign"
    namespace: NamespaceName
    bundle: Annotated[Range | None, Field(description="0xLLLLLLLL_0xHHHHHHHH")] = None
    topic: Annotated[
        str | None,
        Field(max_length=LONGEST_TOPIC, description="the bundle of this topic"),
    ] = None
    namespaces = ("namespace",)
    ranges = ("bundle",)
    objects = {"topic": "topic"}
    instead = "a bundle that was assigned had no owner before"
    is_answered_at_once = True

    def describe(self) -> str:
        return f"assigns {describe_bundle(self.namespace, self.bundle, self.topic)}"

    @model_validator(mode="after")
    def _one_of_them(self) -> Assign:
        if (self.bundle is None) == (self.topic is None):
            raise PydanticCustomError("which", "either a bundle or a topic")
        return self

    def decide(self, moves: OperatorMoves) -> list[BundleAnswer]:
        given = self.bundle
        if self.topic is not None:
            found = moves.bundle_of_topic(self.namespace, self.topic)
            if not isinstance(found, str):
                return [found]
            given = found
        return [moves.assign(self.namespace, str(given))]
