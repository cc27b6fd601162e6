"""`split`: split a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lb_stream.contracts.commands import LONGEST_TOPIC, NamespaceName, Range, Word
from lb_stream.core.commands.base import (
    BadForm,
    Button,
    CommandLine,
    MoveCommand,
    argument,
    command,
    describe_bundle,
    option,
    split_bundle,
)

if TYPE_CHECKING:
    from lb_stream.core.commands.responder import BundleAnswer
    from lb_stream.core.round.operator_moves import OperatorMoves

MOST_BOUNDARIES = 1_000
"""Of one split: its records name every child."""


def parse_numbers(text: str) -> list[int]:
    """Return numbers with commas between, decimal or 0x…. Raises ValueError."""
    try:
        return [int(part, 0) for part in text.replace(",", " ").split()]
    except ValueError:
        expected = "expected numbers with commas between, such as 0x20000000,0x40000000"
        raise ValueError(expected) from None


@command(
    CommandLine(
        "namespaces split",
        "namespaces split shop/orders -b LARGEST -san topic_count_equally_divide -u",
        "Split a bundle; wait until reports show its children. Limits of splitting don't count.",
    ),
    verb="split",
    effect="splits the bundle given by one of `-b RANGE`, `-b LARGEST`, `-b HOT`, `-bt LARGEST`, "
    "`-bt HOT`, `--topic TOPIC`. `-san NAME` gives the algorithm, `-sb N,N…` its positions "
    "(`specified_positions_divide`), `-u` unloads the children. Limits of splitting, and "
    "of a namespace's bundles, don't count",
    buttons=[Button("split", "Split", "Split {bundle} in two.", on=("bundle",))],
)
class Split(MoveCommand):
    """Split a bundle. One of `bundle`, `bundle_type` and `topic` is given."""

    kind: Literal["split"] = "split"
    namespace: Annotated[NamespaceName, argument("TENANT/NAMESPACE")]
    bundle: Annotated[
        Range | None,
        option("--bundle", "-b", metavar="RANGE"),
        Field(description="A bundle's range, 0xLLLLLLLL_0xHHHHHHHH, or LARGEST, or HOT."),
    ] = None
    bundle_type: Annotated[
        Literal["LARGEST", "HOT"] | None,
        option("--bundle-type", "-bt", metavar="TYPE"),
        Field(
            description="Instead of a bundle: LARGEST, the one with the most topics, or HOT, that "
            "with the most traffic."
        ),
    ] = None
    topic: Annotated[
        str | None,
        option("--topic", metavar="TOPIC"),
        Field(
            max_length=LONGEST_TOPIC,
            description="Instead of a bundle: the bundle that this topic is in.",
        ),
    ] = None
    algorithm: Annotated[
        Word | None,
        option("--split-algorithm-name", "-san", metavar="NAME"),
        Field(description="The split algorithm. Default: the cluster's."),
    ] = None
    boundaries: Annotated[
        list[int],
        option("--split-boundaries", "-sb", metavar="N,N…", parse=parse_numbers),
        Field(
            max_length=MOST_BOUNDARIES,
            description="Hashes to split at, decimal or 0x…, for specified_positions_divide.",
        ),
    ] = []
    unload: Annotated[
        bool, option("--unload", "-u"), Field(description="Unload the children afterwards.")
    ] = False
    namespaces = ("namespace",)
    ranges = ("bundle",)
    objects = {"topic": "topic"}
    instead = (
        "a split can't be taken back: lbctl namespaces merge merges two bundles, if their agent "
        "can merge"
    )

    def describe(self) -> str:
        return f"splits {describe_bundle(self.namespace, self.bundle, self.topic)}"

    @classmethod
    def check_given(cls, fields: Mapping[str, object]) -> None:
        if len({"bundle", "bundle_type", "topic"} & fields.keys()) != 1:
            raise BadForm(
                "expected a bundle: one of -b RANGE, -b LARGEST, -b HOT, -bt LARGEST, -bt HOT, "
                "--topic TOPIC"
            )

    def decide(self, moves: OperatorMoves) -> list[BundleAnswer]:
        from lb_stream.core.splitting.manual import SplitRequest

        bundle = self.bundle
        if self.topic is not None:
            if self.bundle is not None or self.bundle_type is not None:
                text = "expected one of bundle, bundle type and topic"
                return [moves.refused("bad_request", text)]
            found = moves.bundle_of_topic(self.namespace, self.topic)
            if not isinstance(found, str):
                return [found]
            bundle = found
        if bundle is not None and "x" in bundle.lower():  # a range, not LARGEST or HOT
            bundle = bundle.lower()
        request = SplitRequest(
            self.namespace,
            bundle,
            self.bundle_type,
            self.algorithm,
            tuple(self.boundaries),
            self.unload,
        )
        return [moves.split(request)]

    @classmethod
    def fields_from_form(cls, given: Mapping[str, str]) -> dict[str, object]:
        return split_bundle(given["bundle"])

    def made(self) -> tuple[str, ...]:
        return self.namespace, str(self.bundle).lower()
