"""`merge`: merge two neighbours at one broker into one bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.commands import MOST_MERGES, NamespaceName, Range
from lb_stream.core.commands.base import (
    BadForm,
    CommandLine,
    MoveCommand,
    argument,
    command,
    option,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.responder import BundleAnswer
    from lb_stream.core.round.operator_moves import OperatorMoves


@command(
    CommandLine(
        "namespaces merge",
        "namespaces merge shop/orders --advised 10",
        "Merge two neighbouring bundles of one broker; wait until reports show it. Pulsar brokers "
        "can't merge.",
    ),
    verb="merge",
    effect="[merges](#merges) two neighbouring bundles; with `--advised N` the first N pairs that "
    "`merge-advice` shows, by their ranges, 100 at most",
)
class Merge(MoveCommand):
    """Merge two neighbours at one broker into one bundle, or pairs that are advised."""

    kind: Literal["merge"] = "merge"
    phrase = "merges bundles of {namespace}: {bundles}"
    namespace: Annotated[NamespaceName, argument("TENANT/NAMESPACE")]
    bundles: Annotated[
        list[Range],
        option("--bundle", "-b", metavar="RANGE"),
        Field(
            max_length=2,
            description="A bundle's range, 0xLLLLLLLL_0xHHHHHHHH; given for both neighbours.",
        ),
    ] = []
    advised: Annotated[
        int | None,
        option("--advised", metavar="N"),
        Field(
            ge=1,
            le=MOST_MERGES,
            description="Instead of a bundle: merge N of the pairs that merge-advice shows.",
        ),
    ] = None
    about = "pairs of bundles are merged"
    namespaces = ("namespace",)
    ranges = ("bundles",)
    instead = "a merge can't be taken back: lbctl namespaces split cuts a bundle"

    @model_validator(mode="after")
    def _two_or_advised(self) -> Merge:
        if len(self.bundles) != (2 if self.advised is None else 0):
            raise PydanticCustomError("which", "either two bundles or a number of advised pairs")
        return self

    @classmethod
    def check_given(cls, fields: Mapping[str, object]) -> None:
        bundles = fields.get("bundles", ())
        count = len(bundles) if isinstance(bundles, Sequence) else 0
        if count != (0 if "advised" in fields else 2):
            raise BadForm("expected two bundles (-b RANGE -b RANGE), or --advised N")

    def decide(self, moves: OperatorMoves) -> list[BundleAnswer]:
        if self.advised is not None:
            return moves.merge_advised(self.namespace, self.advised)
        rows = list[int]()
        for given in self.bundles:
            row = moves.find_bundle(self.namespace, given)
            if not isinstance(row, int):
                return [row]
            rows.append(row)
        low, high = sorted(rows)
        return [moves.merge(low, high)]

    def unmakes(self) -> tuple[str, tuple[str, ...]] | None:
        if not self.bundles:
            return None
        low, high = sorted(map(str.lower, self.bundles))
        whole = f"{low.partition('_')[0]}_{high.partition('_')[2]}"
        return "split", (self.namespace, whole)
