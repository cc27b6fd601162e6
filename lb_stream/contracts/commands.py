"""Records of `lb-commands` and `lb-command-results`: commands, results, the job's own ticks.

A record's key names the cluster that it is for; with an empty key it is for every known one. See
docs/commands.md.
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
"""Characters of a key, of a range, and of the name of an algorithm or group."""
Word = Annotated[str, Field(max_length=LONGEST_WORD)]
Range = Annotated[
    str, Field(min_length=1, max_length=LONGEST_WORD, description="0xLLLLLLLL_0xHHHHHHHH")
]
LONGEST_TOPIC = 4_096
"""Characters of the topic of a lookup."""
LONGEST_VALUE = 10_000
"""Characters of a setting's value: overrides are part of the memory that each round logs."""
MOST_VALUES = 500
"""Settings of one command."""
MOST_PINS = 1_000
"""Bundles that one command pins, and all pinned bundles of a cluster. The memory holds them."""
MOST_POLICIES = 1_000
"""Policies, groups or domains of one command."""
MOST_REJECTIONS = 1_000
"""Proposals of one command, and current rejections of a cluster. The memory holds them."""
LONGEST_WHY = 300
"""Characters of the reason for which a proposal is rejected."""
MOST_QUEUED = 1_000
"""Bundles of a cluster whose moves wait for a free place. The memory holds them."""
MOST_MERGES = 100
"""Merges of one command: their bundles don't move until reports show the outcome."""


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
    """A record by which the jobs of a pipeline agree on the leader.

    The balancer uses only its time.
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
        """Return the name of the job among those of its pipeline: host:pid."""
        return f"{self.host}:{self.pid}"


class Tick(LeadershipRecord):
    """The leader's sign of life, which also makes time pass in a silent cluster.

    It starts a batch and reaches every shard, and causes no decision.
    """

    kind: Literal["tick"] = "tick"
    ends: bool = Field(
        False,
        description="the leader's last tick: it has stopped in order, and publishes no more",
    )
    to: str = Field(
        "",
        description="with ends: the job that takes over (host:pid); empty: any standby",
    )


class Standby(LeadershipRecord):
    """A job that stands by: it takes over when the leader's ticks stop.

    `epoch`: the leader's, as far as the job knows.
    """

    kind: Literal["standby"] = "standby"
    warm: bool = Field(False, description="whether the job could take over at once")


class Claim(LeadershipRecord):
    """A job's claim to take over. Of several, the first one on the topic counts."""

    kind: Literal["claim"] = "claim"
    forced: bool = Field(
        False, description="whether an operator forced it: the leader may be alive"
    )


class HandOver(LeadershipRecord):
    """Asks the leader to stop in order and let another job take over. Any program may ask."""

    kind: Literal["hand-over"] = "hand-over"
    to: str = Field("", description="the job that takes over (host:pid); empty: any standby")
    by: str = Field("", max_length=256, description="the program that asks")


LEADERSHIP_RECORDS: dict[str, type[LeadershipRecord]] = {
    model.model_fields["kind"].default: model for model in (Tick, Standby, Claim, HandOver)
}


class Command(OwnRecord):
    """The fields of every command. An unknown field is refused, because it may be essential."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    id: str = Field(
        min_length=1,
        max_length=128,
        description="chosen by the sender; a command with a recent id is not carried out again",
    )
    kind: str
    by: str = Field(
        "", max_length=256, description="the sender: the Kafka principal, if there is one"
    )
    sent_ms: Millis = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the fields of its kind, for JSON, without those that are null."""
        return self.model_dump(mode="json", exclude=set(Command.model_fields), exclude_none=True)

    @property
    def given(self) -> dict[str, Any]:
        """Return its kind, and the fields of its kind that were given, for JSON."""
        own = self.model_dump(mode="json", exclude=set(Command.model_fields), exclude_unset=True)
        return {"kind": self.kind, **own}


ProposalIds = Annotated[
    list[Word],
    Field(min_length=1, max_length=MOST_REJECTIONS, description="<cluster>:<seq>:p<number>"),
]


class _Commands(Mapping[str, type[Command]]):
    """Kind of command → its model, ordered by name.

    Each kind has its file in `lb_stream/operations`, named after the kind. The file is imported
    when the kind is first looked up: a program that sends one command imports one file.
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
        """Register the model of a kind."""
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
    """Return the model of an operator's command of any kind."""
    models: Any = Union[tuple(COMMANDS.values())]  # noqa: UP007 (they are known at run time only)
    union = RootModel[Annotated[models, Field(discriminator="kind")]]
    return create_model("CommandRecord", __base__=union, __doc__="One operator's command.")


CommandOutcome = Literal["done", "refused", "accepted", "failed"]


class CommandResult(OwnRecord):
    """The result of a command in one cluster.

    A command that is `accepted` has a second result when its decisions have ended: done or failed.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    cluster: str
    kind: str
    outcome: CommandOutcome
    text: str = Field(description="what happened, or why nothing did")
    rule: str | None = Field(None, description="the rule that refused the command")
    decision_ids: list[str] = []
    at_ms: Millis = Field(description="time of the round that answered")
