"""What operators and the job's own clock send on `lb-commands`, and what is answered on
`lb-command-results`.

A record's key says which cluster it is for; with an empty key it is for every known one.
See docs/commands.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module, resources
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic_core import PydanticCustomError

from lb_stream.contracts.base import (
    BUNDLE_NAME_PATTERN,
    LONGEST_BROKER,
    LONGEST_NAMESPACE,
    NAMESPACE_PATTERN,
    Millis,
    OwnRecord,
)

SCHEMA_VERSION = 1

NamespaceName = Annotated[
    str,
    Field(
        pattern=NAMESPACE_PATTERN,
        max_length=LONGEST_NAMESPACE,
        description="<tenant>/<namespace>",
    ),
]
BrokerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_BROKER,
        description="host:port as in its reports; http(s):// before it is left out",
    ),
]
BundleName = Annotated[str, Field(pattern=BUNDLE_NAME_PATTERN, max_length=LONGEST_NAMESPACE + 256)]
LONGEST_PIN_MS = 366 * 86_400_000
LONGEST_WORD = 256
"""Characters of a key, a range, the name of an algorithm or of a group."""
Word = Annotated[str, Field(max_length=LONGEST_WORD)]
Range = Annotated[
    str, Field(min_length=1, max_length=LONGEST_WORD, description="0xLLLLLLLL_0xHHHHHHHH")
]
LONGEST_TOPIC = 4_096
"""Characters of a topic that a lookup asks about."""
LONGEST_VALUE = 10_000
"""Characters of a setting's value: what is set stays in the memory that each round logs."""
MOST_VALUES = 500
MOST_PINS = 1_000
"""Bundles of one command to pin, and all that are pinned: they stay in the memory that each round
logs."""
MOST_REJECTIONS = 1_000
"""Proposals of one command, and rejections that hold: they stay in the memory that each round
logs."""
LONGEST_WHY = 300
"""Characters of why a proposal is rejected."""
MOST_QUEUED = 1_000
"""Bundles of a cluster whose moves wait for room: they stay in the memory that each round logs."""
MOST_MERGES = 100
"""Of one command: their bundles are held until reports show what has become of them."""


def _within_bounds(value: bool | int | float | str) -> bool | int | float | str:
    if isinstance(value, float) and not isfinite(value):
        raise PydanticCustomError("finite_number", "a finite number")
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        raise PydanticCustomError(
            "string_too_long", "at most {most} characters", {"most": LONGEST_VALUE}
        )
    return value


Scalar = Annotated[bool | int | float | str, AfterValidator(_within_bounds)]


class LeadershipRecord(OwnRecord):
    """What jobs of a pipeline say to one another: who leads, who stands by.

    To the balancer it is a moment that passes.
    """

    id: str
    kind: str
    sent_ms: Millis = 0
    pipeline: str = Field("", description="the job's stream.pipeline_id")
    epoch: int = 0
    host: str = ""
    pid: int = 0

    @property
    def instance(self) -> str:
        """Names the job among those of its pipeline: host:pid."""
        return f"{self.host}:{self.pid}"


class Tick(LeadershipRecord):
    """Makes time pass in a silent cluster: wakes the stream, fans out to every shard, decides
    nothing by itself.

    It is the leader's sign of life, too: whose it is stands in it.
    """

    kind: Literal["tick"] = "tick"
    ends: bool = Field(
        False, description="its last one: it has stopped in order, and publishes nothing any more"
    )
    to: str = Field(
        "",
        description="with ends: the job that is to take over (host:pid); empty: any that stands by",
    )


class Standby(LeadershipRecord):
    """A job stands by: it takes over when the leader's ticks stop.

    `epoch`: the leader's, as far as it has heard.
    """

    kind: Literal["standby"] = "standby"
    warm: bool = Field(False, description="whether it could take over at once")


class Claim(LeadershipRecord):
    """A job is about to take over. Of several the first one counts, in the order of the topic."""

    kind: Literal["claim"] = "claim"
    forced: bool = Field(False, description="by an operator: whether the leader lives or not")


class HandOver(LeadershipRecord):
    """Asks the leader to stop in order and let another job take over. Any program may ask."""

    kind: Literal["hand-over"] = "hand-over"
    to: str = Field(
        "", description="host:pid of the one that is to lead; empty: any that stands by"
    )
    by: str = Field("", max_length=256, description="who asks")


LEADERSHIP_RECORDS: dict[str, type[LeadershipRecord]] = {
    model.model_fields["kind"].default: model for model in (Tick, Standby, Claim, HandOver)
}


class Command(OwnRecord):
    """What every command has. A field that isn't known is refused: it may be what matters most."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    id: str = Field(
        min_length=1,
        max_length=128,
        description="chosen by the sender; a command with an id seen lately is not done twice",
    )
    kind: str
    by: str = Field(
        "", max_length=256, description="who sends it: the Kafka principal where there is one"
    )
    sent_ms: Millis = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """What is its kind's own, as JSON-able fields; what wasn't given is left out."""
        return self.model_dump(mode="json", exclude=set(Command.model_fields), exclude_none=True)

    @property
    def given(self) -> dict[str, Any]:
        """Its kind, and those of its own fields that were given, as JSON-able fields."""
        own = self.model_dump(mode="json", exclude=set(Command.model_fields), exclude_unset=True)
        return {"kind": self.kind, **own}


ProposalIds = Annotated[
    list[Word],
    Field(min_length=1, max_length=MOST_REJECTIONS, description="<cluster>:<seq>:p<number>"),
]


class _Commands(Mapping[str, type[Command]]):
    """Each kind of command → its model, in the order of their names.

    A kind has a file of its own in `lb_stream/operations`, named after it, which is imported
    when its kind is first asked for: whoever sends one command loads one.
    """

    def __init__(self) -> None:
        self._models: dict[str, type[Command]] = {}

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        folder = resources.files("lb_stream") / "operations"
        files = (Path(file.name) for file in folder.iterdir())
        names = (file.stem for file in files if file.suffix == ".py")
        return tuple(sorted(name.replace("_", "-") for name in names if name != "__init__"))

    def register(self, kind: str, model: type[Command]) -> None:
        """Have a kind lead to its model."""
        self._models[kind] = model

    def __getitem__(self, kind: str) -> type[Command]:
        if kind not in self._kinds:
            raise KeyError(kind)
        if kind not in self._models:
            import_module(f"lb_stream.operations.{kind.replace('-', '_')}")
        return self._models[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in self._kinds

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


COMMANDS = _Commands()


def command_union() -> type[BaseModel]:
    """Return the model of one operator's command, of whichever kind."""
    models: Any = Union[tuple(COMMANDS.values())]  # noqa: UP007 (they are known at run time only)
    union = RootModel[Annotated[models, Field(discriminator="kind")]]
    return create_model("CommandRecord", __base__=union, __doc__="One operator's command.")


CommandOutcome = Literal["done", "refused", "accepted", "failed"]


class CommandResult(OwnRecord):
    """What became of a command in one cluster.

    One that is `accepted` has a second answer once its decisions have ended: done or failed.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    cluster: str
    kind: str
    outcome: CommandOutcome
    text: str = Field(description="what happened, or why not")
    rule: str | None = Field(None, description="the rule that refused it")
    decision_ids: list[str] = []
    at_ms: Millis = Field(description="the time of the round that answers")
