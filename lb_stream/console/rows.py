"""Rows of queries, as the API answers them.

They have the columns of tables, with their types and comments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, create_model

from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import (
    AUDIT,
    BROKER_HISTORY,
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    COMMANDS,
    DECISIONS,
    OUTCOMES,
    PROPOSALS,
    REFUSALS,
    ROLLOUTS,
)

JsonObject = dict[str, Any]


class Answer(BaseModel):
    """An answer of the API. Every field is always there; null: not known, or none."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_serialization_defaults_required=True,
        ser_json_inf_nan="null",
        protected_namespaces=(),
    )


Model = TypeVar("Model", bound=Answer)


def columns(spec: TableSpec, names: str) -> Callable[[type[Model]], type[Model]]:
    """Add columns of a table to the model of a row, with their types and comments."""

    def add(model: type[Model]) -> type[Model]:
        fields: Any = {
            name: (_type_of(spec.schema.field(name).type) | None, _describe(spec.comment(name)))
            for name in names.split()
        }
        base: Any = model
        made = create_model(model.__name__, __base__=base, __doc__=model.__doc__, **fields)
        return cast("type[Model]", made)

    return add


def _describe(text: str) -> Any:
    return Field(None, description=text)


def _type_of(column: pa.DataType) -> Any:
    if pa.types.is_list(column):
        return list[_type_of(column.value_type)]  # type: ignore[misc]
    if pa.types.is_boolean(column):
        return bool
    if pa.types.is_integer(column):
        return int
    return float if pa.types.is_floating(column) else str


class TrafficRow(Answer):
    bytes_per_s: float | None = _describe("throughput in and out, bytes/s")
    msgs_per_s: float | None = _describe("message rate in and out, messages/s")


class LoadRow(TrafficRow):
    long_bytes_per_s: float | None = _describe("throughput in and out, long-term average, bytes/s")


_USAGES = " ".join(f"{resource}_ratio" for resource in RESOURCES)
_LIMITS = " ".join(f"{resource}_limit" for resource in RESOURCES)


@columns(
    BROKER_LOADS,
    f"cluster seq now_ms broker alive seen_ms reported_ms usage_ratio {_USAGES} bundles topics",
)
class BrokerRow(LoadRow):
    """A broker as the last round with a report saw it."""


@columns(BROKER_HISTORY, _LIMITS)
class BrokerDetail(BrokerRow):
    """A broker with its limits, as reported."""


@columns(BROKER_LOADS, "seq now_ms broker alive usage_ratio bundles")
class BrokerLoad(TrafficRow):
    """A broker's load in a round."""


@columns(BUNDLE_AVERAGES, "cluster bundle owner owner_since_ms topics now_ms")
class BundleLoad(LoadRow):
    """A bundle and its short-term averages."""

    namespace: str | None = _describe("<tenant>/<namespace>")
    tenant: str | None = _describe("the tenant")
    latest_bytes_per_s: float | None = _describe("throughput in and out, latest, bytes/s")


class BundleRow(BundleLoad):
    """A bundle of a list."""

    share: float | None = _describe("share of the list's traffic, ratio")


class GroupLoad(LoadRow):
    """The load of a namespace or a tenant."""

    bundles: int = Field(description="number of bundles")
    brokers: int = Field(description="number of brokers that serve them")
    topics: int | None = _describe("number of topics")
    share: float | None = _describe("share of the traffic, ratio")


class GroupRow(GroupLoad):
    """A namespace or a tenant of a list."""

    name: str = Field(description="its name")
    tenant: str | None = _describe("its tenant")


class BrokerShare(Answer):
    """What a broker serves of a namespace."""

    broker: str = Field(description="the broker")
    bundles: int = Field(description="bundles of the namespace there")
    bytes_per_s: float | None = _describe("their throughput, bytes/s")
    share: float | None = _describe("their share of the broker's traffic, ratio")


@columns(DECISIONS, "kind source destination expires_ms")
@columns(OUTCOMES, "took_ms")
class Phase(Answer):
    """A decision of a move: the unload or transfer, then each assignment."""

    id: str = Field(description="id of the decision")
    at_ms: int | None = _describe("when it was decided")
    state: str = Field(
        description="its outcome, pending or dry run; released: an assignment followed"
    )
    reason: str | None = _describe("why it was not carried out, as a text")


@columns(DECISIONS, "cluster seq kind bundle source destination rule strategy dry_run expires_ms")
@columns(OUTCOMES, "outcome detail took_ms")
@columns(COMMANDS, "by text")
class Entry(Answer):
    """A whole move, another decision, or an operator's command.

    Of a move: `id` is that of its first decision, `outcome` that of the whole move, `destination`
    the last one. Of a command: by, arguments, sentence and text.
    """

    entry: str = Field(description="move, decision or command")
    id: str = Field(description="id of the decision or command")
    at_ms: int | None = _describe("when it was decided, or sent")
    why: str | None = _describe("the reason as a text")
    outcome_reason: str | None = _describe("why it was not carried out, as a text")
    arguments: JsonObject | None = _describe("the command's fields")
    sentence: str | None = _describe("the command as a sentence")
    phases: list[Phase] = Field([], description="the decisions of a move, the oldest first")
    times: int = Field(1, description="how often a dry run has decided it")
    first_ms: int | None = _describe("of a move or decision: when it was decided first")


@columns(
    PROPOSALS,
    "proposal_id cluster together state by why kind bundle source destination reason rule "
    "strategy bytes_per_s proposed_ms expires_ms until_ms decision_id plan step source_usage "
    "destination_usage max_usage usage_alone usage_in_order seq now_ms",
)
class ProposalRow(Answer):
    """A proposal, waiting or past."""

    explain: JsonObject = Field({}, description="the figures behind it")
    explanation: str = Field(description="the reason as a text")
    outcome: str = Field(description="of its decision; empty: none yet")
    outcome_reason: str = Field(description="why its decision was not carried out")


@columns(
    AUDIT,
    "cluster number log_seq seq at_ms now_ms by key_id right kind objects command_id outcome rule text "
    "decision_ids repeated previous_hash hash",
)
class AuditRow(Answer):
    """A row of the audit: an answer to a command."""

    arguments: JsonObject | None = _describe("the command's fields")
    old_value: JsonObject | None = _describe("what it changed, as it was; null: it set nothing")
    new_value: JsonObject | None = _describe("what it changed, as it is; null: it set nothing")
    by_unproven: bool = Field(description="whether no signature shows that `by` has sent it")


class Cost(Answer):
    """What moves have cost clients."""

    unserved_s: float | None = _describe("seconds without a broker")
    clients: int | None = _describe("producers and consumers of the moved bundles")
    client_s: float | None = _describe("clients times the seconds without a broker")
    bytes_per_s: float | None = _describe("traffic of the moved bundles, bytes/s")


class CostRow(Cost):
    """What the moves of a tenant or namespace have cost."""

    cluster: str = Field(description="the cluster")
    span: str = Field(description="the week or day in the console's zone; empty: all")
    whose: str = Field(description="the tenant or namespace")
    moves: int = Field(description="number of moves")
    known: int = Field(description="moves whose clients are known")
    expected_client_s: float | None = _describe("what the strategy expected, seconds of clients")


@columns(
    DECISIONS,
    "decision_id cluster seq epoch kind bundle source destination expected_owner "
    "expected_version children boundaries algorithm unload_children reason rule strategy "
    "issued_ms expires_ms dry_run neighbour approved_by proposal_id",
)
@columns(OUTCOMES, "outcome detail at_ms took_ms")
class DecisionRow(Answer):
    """A decision and its outcome."""

    explain: JsonObject = Field({}, description="the figures behind it")
    ended_seq: int | None = _describe("number of the round that found the outcome")


@columns(REFUSALS, "cluster rule broker namespace limit least greatest unit until_ms")
class RefusalRow(Answer):
    """What a rule refused."""

    times: int = Field(description="how often")
    last_seq: int = Field(description="number of the last round that refused")
    last_ms: int = Field(description="time of that round")
    why: str = Field(description="the rule as a text")


@columns(ROLLOUTS, "rollout cluster broker phase at_ms text moves seq now_ms")
class RolloutEvent(Answer):
    """An event of a rollout."""


@columns(ROLLOUTS, "rollout cluster")
class PastRollout(Answer):
    """A rollout that has ended."""

    by: str = Field(description="who started it; empty: not known")
    begun_ms: int = Field(description="when it began")
    last_ms: int = Field(description="its last event")
    done: int = Field(description="brokers restarted")
    moves: int = Field(description="moves that it took")
    outcome: str | None = _describe("ended or aborted")
    arguments: str = Field(description="the fields of its command, as JSON")
