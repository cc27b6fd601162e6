"""What operators and the job's own clock send on `lb-commands`, and what is answered on
`lb-command-results`.

A record's key says which cluster it is for; with an empty key it is for every known one.
See docs/commands.md.
"""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, RootModel, model_validator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.base import (
    BUNDLE_NAME_PATTERN,
    LONGEST_BROKER,
    LONGEST_NAMESPACE,
    NAMESPACE_PATTERN,
    Millis,
    OwnRecord,
)
from lb_stream.contracts.namespaces import MOST_BUNDLES, ClusterNamespaces, NamespaceIsolation

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


class UnloadCommand(Command):
    """Have a bundle, or every bundle of a namespace, leave its broker."""

    kind: Literal["unload"] = "unload"
    namespace: NamespaceName
    bundle: Range | None = Field(
        None, description="0xLLLLLLLL_0xHHHHHHHH; none: every bundle of the namespace"
    )
    destination: BrokerName | None = Field(None, description="who takes it; only with a bundle")
    queue: bool | None = Field(
        None,
        description="true: moves that limits leave no room for wait for it; else they are refused",
    )

    @model_validator(mode="after")
    def _one_bundle(self) -> UnloadCommand:
        if self.destination is not None and self.bundle is None:
            raise PydanticCustomError("destination", "a destination only together with a bundle")
        return self


class Split(Command):
    """Split a bundle: one of `bundle`, `bundle_type` and `topic` says which."""

    kind: Literal["split"] = "split"
    namespace: NamespaceName
    bundle: Range | None = Field(None, description="0xLLLLLLLL_0xHHHHHHHH, LARGEST or HOT")
    bundle_type: Literal["LARGEST", "HOT"] | None = None
    topic: str | None = Field(
        None, max_length=LONGEST_TOPIC, description="the bundle that this topic is in"
    )
    algorithm: Word | None = None
    boundaries: list[int] = []
    unload: bool = False


class Merge(Command):
    """Make one bundle of two neighbours at one broker: those given, or pairs that are advised."""

    kind: Literal["merge"] = "merge"
    namespace: NamespaceName
    bundles: list[Range] = Field([], max_length=2, description="two, each 0xLLLLLLLL_0xHHHHHHHH")
    advised: Annotated[int, Field(ge=1, le=MOST_MERGES)] | None = Field(
        None,
        description="instead: so many of the namespace's pairs that are advised to be merged, at "
        "most",
    )

    @model_validator(mode="after")
    def _two_or_advised(self) -> Merge:
        if len(self.bundles) != (2 if self.advised is None else 0):
            raise PydanticCustomError("which", "two bundles, or how many of the advised pairs")
        return self


class Assign(Command):
    """Give a bundle that nobody owns an owner now: what a lookup asks for.

    `bundle` or `topic` says which.
    """

    kind: Literal["assign"] = "assign"
    namespace: NamespaceName
    bundle: Range | None = Field(None, description="0xLLLLLLLL_0xHHHHHHHH")
    topic: str | None = Field(
        None, max_length=LONGEST_TOPIC, description="the bundle that this topic is in"
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Assign:
        if (self.bundle is None) == (self.topic is None):
            raise PydanticCustomError("which", "a bundle or a topic, one of them")
        return self


class SetConfig(Command):
    """Change dynamic settings, under our names or Pulsar's: all of them, or none when one of them
    can't be."""

    kind: Literal["set-config"] = "set-config"
    values: dict[Word, Scalar] = Field(min_length=1, max_length=MOST_VALUES)


class DeleteConfig(Command):
    """Take back what `set-config` has set: the job's own setting counts again."""

    kind: Literal["delete-config"] = "delete-config"
    key: str = Field(min_length=1, max_length=LONGEST_WORD)


class DryRun(Command):
    """Whether decisions are only made and logged, or published too.

    A cluster is in dry run until an operator ends it.
    """

    kind: Literal["dry-run"] = "dry-run"
    on: bool


class PauseCluster(Command):
    """Shed and split nothing until `resume-cluster`.

    What operators order is done, and bundles that lose their owner get one.
    """

    kind: Literal["pause-cluster"] = "pause-cluster"


class ResumeCluster(Command):
    """The end of a pause."""

    kind: Literal["resume-cluster"] = "resume-cluster"


class DrainBroker(Command):
    """Unload all bundles of a broker and give it none, until `undrain-broker`."""

    kind: Literal["drain-broker"] = "drain-broker"
    broker: BrokerName


class UndrainBroker(Command):
    """Let a drained broker take bundles again."""

    kind: Literal["undrain-broker"] = "undrain-broker"
    broker: BrokerName


class PinBundles(Command):
    """Have balancing leave bundles where they are for a while.

    Operators' own orders, drains and deaths move them all the same.
    """

    kind: Literal["pin-bundles"] = "pin-bundles"
    bundles: Annotated[
        list[BundleName],
        Field(min_length=1, max_length=MOST_PINS, description="<tenant>/<namespace>/<range>"),
    ]
    for_ms: Annotated[
        int, Field(ge=0, le=LONGEST_PIN_MS, description="0: balancing may move them again")
    ]


ProposalIds = Annotated[
    list[Word],
    Field(min_length=1, max_length=MOST_REJECTIONS, description="<cluster>:<seq>:p<number>"),
]


class ApproveProposals(Command):
    """Make the decisions that proposals have asked for, if they still can be."""

    kind: Literal["approve-proposals"] = "approve-proposals"
    proposals: ProposalIds
    even_if_worse: bool | None = Field(
        None, description="true: also those that would make the busiest broker busier than it is"
    )


class RejectProposals(Command):
    """End proposals, and have balancing propose nothing of their kind about their bundles for a
    while."""

    kind: Literal["reject-proposals"] = "reject-proposals"
    proposals: ProposalIds
    why: Annotated[str, Field(min_length=1, max_length=LONGEST_WHY)]
    for_ms: Annotated[
        int,
        Field(
            ge=0,
            le=LONGEST_PIN_MS,
            description="0: a rejection that was said before holds no longer",
        ),
    ]


class DeclareDead(Command):
    """Take silent brokers for dead now, without waiting: their bundles go to others."""

    kind: Literal["declare-dead"] = "declare-dead"
    broker: BrokerName | None = Field(
        None, description="none: all that have been silent for longer than a living one may be"
    )


FORGET_KIND = "forget-cluster"


class ForgetCluster(Command):
    """Forget a cluster whose brokers are all silent: its state, its orders, its ownership
    records."""

    kind: Literal["forget-cluster"] = "forget-cluster"


class CreateNamespace(Command):
    """A new namespace, cut into bundles of equal size."""

    kind: Literal["create-namespace"] = "create-namespace"
    namespace: NamespaceName
    bundles: Annotated[int, Field(ge=1, le=MOST_BUNDLES)] | None = Field(
        None, description="none: namespace_default_bundles"
    )


class DeleteNamespace(Command):
    """Have a namespace without topics leave its brokers, and forget it."""

    kind: Literal["delete-namespace"] = "delete-namespace"
    namespace: NamespaceName


class ImportNamespaces(Command):
    """Namespaces and policies of a cluster that has them already.

    Policies and domains of earlier imports are replaced.
    """

    kind: Literal["import-namespaces"] = "import-namespaces"
    content: ClusterNamespaces


class SetPolicies(Command):
    """Change policies: what is named is set, null takes it away, all others stay."""

    kind: Literal["set-policies"] = "set-policies"
    isolation: list[NamespaceIsolation] = Field(
        [], description="each takes the place of the policy of its name"
    )
    remove_isolation: list[str] = Field([], description="names of policies")
    anti_affinity: dict[NamespaceName, Word | None] = Field({}, description="namespace → group")
    failure_domains: dict[BrokerName, Word | None] = Field({}, description="broker → domain")

    @model_validator(mode="after")
    def _something(self) -> SetPolicies:
        if not (
            self.isolation or self.remove_isolation or self.anti_affinity or self.failure_domains
        ):
            raise PydanticCustomError("nothing", "at least one policy, group or domain")
        return self


AnyCommand = (
    UnloadCommand
    | Split
    | Merge
    | Assign
    | SetConfig
    | DeleteConfig
    | DryRun
    | PauseCluster
    | ResumeCluster
    | DrainBroker
    | UndrainBroker
    | PinBundles
    | ApproveProposals
    | RejectProposals
    | DeclareDead
    | ForgetCluster
    | CreateNamespace
    | DeleteNamespace
    | ImportNamespaces
    | SetPolicies
)


class CommandRecord(RootModel[Annotated[AnyCommand, Field(discriminator="kind")]]):
    """One operator's command."""


COMMANDS: dict[str, type[Command]] = {
    model.model_fields["kind"].default: model for model in AnyCommand.__args__
}
COMMAND_KINDS: dict[str, type[LeadershipRecord] | type[Command]] = {
    "tick": Tick,
    **COMMANDS,
    **LEADERSHIP_RECORDS,
}

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
