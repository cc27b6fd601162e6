"""What the API answers: the models of its JSON, which is what the pages show.

Times are ms since the epoch, usages are ratios of limits, throughputs bytes/s, rates messages/s.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, Field

from lb_stream.console.rows import (
    Answer,
    BrokerDetail,
    BrokerLoad,
    BrokerRow,
    BrokerShare,
    BundleLoad,
    BundleRow,
    Cost,
    DecisionRow,
    Entry,
    GroupLoad,
    GroupRow,
    JsonObject,
    PastRollout,
    ProposalRow,
    RefusalRow,
    RolloutEvent,
)
from lb_stream.contracts.verbs import BuiltInRole
from lb_stream.query.checks import Check
from lb_stream.query.exact_plan import ExactPlan
from lb_stream.query.health import ClusterFacts, Finding, State
from lb_stream.query.references import Reference, Remedy
from lb_stream.query.screens.over_time import Gap, Line

# --- parts of answers ---

Row = TypeVar("Row")


class List(Answer, Generic[Row]):
    """One page of a list. `total`: rows of all pages; `sort`: the column in use."""

    rows: list[Row]
    total: int
    page: int
    pages: int
    sort: str


class Verdict(Answer):
    """The state of the balancer, as `lbctl status` says it."""

    state: State
    sentence: str
    findings: list[Finding]


class Overview(Answer):
    """How evenly a cluster is loaded now, and its moves in the hour before the last round."""

    cluster: str
    state: str
    facts: ClusterFacts
    alive: int | None = None
    brokers: int | None = None
    usage_max: float | None = None
    usage_mean: float | None = None
    max_over_mean: float | None = None
    bytes_per_s: float | None = None
    msgs_per_s: float | None = None
    moves: int


class NoMove(Answer):
    """Why a bundle, a broker's load or a whole cluster doesn't move."""

    sentence: str
    cluster: str
    bundle: str | None
    broker: str | None
    checks: list[Check]
    refusals: list[JsonObject]
    stale: str | None


class ChartMark(Answer):
    """A move, marked in a chart."""

    decision_id: str
    at_ms: int
    kind: str
    bundle: str
    source: str | None
    destination: str | None
    dry_run: bool | None
    outcome: str | None
    detail: str | None
    took_ms: int | None
    ended: str


class ChartAnswer(Answer):
    """Lines over the same times. `unit`: ratio or bytes/s. `gaps`: times without loads.

    `note`: what readers must know.
    """

    times_ms: list[int]
    lines: list[Line]
    unit: str
    marks: list[ChartMark]
    gaps: list[Gap]
    note: str


class HeatRow(Answer):
    """A broker's usage over time: ratios. `moves`: from or to it, in each slot."""

    broker: str
    peak: float | None
    mean: float | None
    last: float | None
    values: list[float | None]
    moves: list[int]


class HeatAnswer(Answer):
    """Usage of brokers in slots of `step_ms`, which begin at `times_ms`."""

    times_ms: list[int]
    step_ms: int
    brokers: List[HeatRow]
    gaps: list[Gap]


class BrokerPart(Answer):
    """A broker's part in a decision: its load before and after it, and the expected one."""

    role: str
    broker: str
    before: BrokerLoad | None
    after: BrokerLoad | None
    expected: float | None


class BrokerEffect(Answer):
    """A broker's usage (ratio) without and with the moves of proposals."""

    broker: str
    before: float
    after: float


class Effect(Answer):
    """What the moves of proposals do together: max and mean usage (ratios), brokers touched."""

    max_before: float | None
    max_after: float | None
    mean_before: float | None
    mean_after: float | None
    brokers: list[BrokerEffect]


class Plan(Effect):
    """A plan of waiting proposals. `expires_ms`: when its first proposal expires."""

    plan: str
    cluster: str
    moves: int
    ids: list[str]
    max_usage: float | None
    usage_after: float | None
    bytes_per_s: float
    expires_ms: int


class RolloutBroker(Answer):
    """A broker of the rollout that is on. `place`: among those that wait, from 1."""

    broker: str
    phase: str
    since_ms: int
    moves: int
    note: str | None
    place: int | None
    bundles: int | None


class RolloutNow(Answer):
    """The rollout that is on. `state`: what it does or waits for, as texts."""

    cluster: str
    rollout: JsonObject
    brokers: list[RolloutBroker]
    state: list[str]
    still_ms: int | None
    begun_ms: int
    peak_usage: float | None
    expected_usage: float | None
    levelling_ms: int | None


class Found(Answer):
    """A name that was found."""

    cluster: str
    name: str


class NextMove(Answer):
    """A move that a strategy would make now."""

    bundle: str
    source: str = Field(alias="from", serialization_alias="from")
    destination: str | None = Field(alias="to", serialization_alias="to")
    cost: float | None
    client_seconds: float | None
    gain: float | None
    second: str | None
    second_usage: float | None
    why_not: str
    source_before: float | None
    source_after: float | None
    destination_before: float | None
    destination_after: float | None
    rule: str


class NextMoves(Answer):
    """The moves that a strategy would make next, as `lbctl plan`."""

    cluster: str
    strategy: str
    own_strategy: str
    dry_run: bool
    at_ms: int
    moves: list[NextMove]
    planned: int
    fewest: int | None
    fullest: str | None
    max_over_even_before: float | None
    max_over_even_after: float | None
    reasons: list[str]
    unsure: str
    exact: ExactPlan | None


class PredictedMove(Answer):
    """A move of a simulation, after `t_s` seconds."""

    t_s: float
    bundle: str
    source: str = Field(alias="from", serialization_alias="from")
    destination: str | None = Field(alias="to", serialization_alias="to")
    clients: int


class Prediction(Answer):
    """A simulation: figures, moves, and max usage at each time (s from now)."""

    figures: JsonObject
    moves: list[PredictedMove]
    t_s: list[float]
    max_usage: list[float]


class WhatIfResult(Answer):
    """Simulations by name (as it is, changed), which begin at `at_ms`, and notes on them.

    `verdict`: whether the change fits, in one sentence.
    """

    at_ms: int
    verdict: str
    predictions: dict[str, Prediction]
    notes: list[str]


class UndoPlan(Answer):
    """What takes a command back."""

    cluster: str
    commands: list[JsonObject]
    moves: list[JsonObject]
    afterwards: list[JsonObject]
    left: list[list[str]]


class Subjects(Answer):
    """What a command is about, with figures."""

    broker: BrokerDetail | None
    bundles: int | None
    bundle: BundleLoad | None
    proposals: list[ProposalRow]
    effect: Effect | None
    undo: UndoPlan | None


# --- answers ---


class ClustersAnswer(Answer):
    """All clusters. `stale`: why the tables are not up to date; null: they are."""

    verdict: Verdict
    stale: str | None
    read_ms: int
    clusters: list[Overview]
    entries: list[Entry]


class ClusterAnswer(Answer):
    """A cluster. `strategy`: its shedding strategy."""

    overview: Overview
    strategy: str | None
    brokers: List[BrokerRow]
    explanation: NoMove
    waiting: list[ProposalRow]
    pending: list[Entry]
    entries: list[Entry]
    top_namespaces: List[GroupRow]


class DrainEstimate(Answer):
    """When a drain is done: bundles left, moves of the last minutes; null: can't be foreseen."""

    left: int
    moved: int
    until_ms: int | None
    sentence: str


class BrokerAnswer(Answer):
    """A broker. `state`: such as draining; empty: it is active."""

    broker: BrokerDetail
    state: str
    bundles: List[BundleRow]
    explanation: NoMove
    decisions: list[Entry]
    drain: DrainEstimate | None


class BundleAnswer(Answer):
    """A bundle. `bundle` null: no report names it any more."""

    bundle: BundleLoad | None
    explanation: NoMove | None
    decisions: list[Entry]


class NamespaceAnswer(Answer):
    """A namespace."""

    namespace: GroupLoad
    brokers: list[BrokerShare]
    bundles: List[BundleRow]
    entries: list[Entry]


class TenantAnswer(Answer):
    """A tenant."""

    tenant: GroupLoad
    namespaces: List[GroupRow]


class HistoryAnswer(Answer):
    """Decisions and commands, the newest first. `has_older`: there may be older ones."""

    entries: list[Entry]
    has_older: bool


class SearchAnswer(Answer):
    """What was found, by kind: cluster, broker, namespace, bundle, decision, command."""

    found: dict[str, list[Found]]


class DecisionAnswer(Answer):
    """A decision with all facts about it, and the ids of those `previous` and `next` to it."""

    sentence: str
    decision: DecisionRow
    parts: list[BrokerPart]
    moves: int
    follows: str | None
    followed_by: str | None
    cost: Cost | None
    previous: str | None
    next: str | None


class RoundAnswer(Answer):
    """What a round saw, decided and refused, and the rounds `previous` and `next` to it."""

    cluster: str
    seq: int
    now_ms: int | None
    epoch: int | None
    batch_id: int | None
    error: str | None
    inputs: JsonObject
    outcomes: list[JsonObject]
    brokers: list[BrokerLoad]
    decisions: list[DecisionRow]
    refusals: list[RefusalRow]
    previous: int | None
    next: int | None


class ProposalsAnswer(Answer):
    """Proposals that wait for approval, their plans, and past ones."""

    mode: str
    waiting: list[ProposalRow]
    plans: list[Plan]
    ended: list[ProposalRow]


class Change(Answer):
    """A change. `command_id`, `outcome`: of an operator's command."""

    at_ms: int
    what: str
    text: str
    references: list[Reference]
    command_id: str | None
    outcome: str | None


class ChangesAnswer(Answer):
    """What changed in a range of time, the newest first."""

    begin_ms: int
    end_ms: int
    changes: list[Change]


class GivenSetting(Answer):
    """A setting that isn't a default. `job_value`: what a command's override precedes."""

    key: str
    value: object
    given_by: str
    job_value: object


class InForce(Answer):
    """What a command has set. `until_ms` null: until a command ends it."""

    what: str
    text: str
    until_ms: int | None
    references: list[Reference]
    remedies: list[Remedy]


class SettingsAnswer(Answer):
    """Settings that were given, and what operators' commands have set."""

    settings: list[GivenSetting]
    operator_state: list[InForce]


class RolloutAnswer(Answer):
    """The rollout that is on (null: none), what has happened in it or the last one, past ones."""

    rollout: RolloutNow | None
    state: str
    untold: list[str]
    events: list[RolloutEvent]
    past: list[PastRollout]


class CommandAnswer(Answer):
    """The results of a command, or of commands sent together; none: no round has answered yet."""

    results: list[Entry]
    drained: BrokerDetail | None


class Computed(Answer, Generic[Row]):
    """An answer that takes seconds. `progress`: the part that is done, 0 to 1.

    While `is_done` is false, ask again. `error`: why there is no result; empty: nothing failed.
    """

    is_done: bool
    progress: float
    error: str
    result: Row | None


class WhatIfAnswer(Answer):
    """The simulation; null: the request changes nothing."""

    computation: Computed[WhatIfResult] | None


class FormAnswer(Answer):
    """What a command would do. Nothing is sent."""

    title: str
    sentence: str
    role: BuiltInRole
    destinations: list[str]
    about: Subjects


class SentCommand(Answer):
    """A command as it was sent."""

    id: str
    kind: str
    arguments: JsonObject


class SentAnswer(Answer):
    """Commands that Kafka has stored. `result`: the address of their results."""

    cluster: str
    id: str
    commands: list[SentCommand]
    result: str


class SessionAnswer(Answer):
    """Who makes the request. `name` empty: nobody has logged in.

    `csrf_token`: what requests that are known by a cookie or by a proxy's header must send as
    X-CSRF-Token. `token`: of a new session, for the header Authorization; else null.
    """

    name: str
    role: BuiltInRole
    clusters: dict[str, BuiltInRole]
    csrf_token: str
    token: str | None = None


class Problem(BaseModel):
    """Why a request failed (RFC 9457). `field`, `value`, `expected`: of a wrong field.

    `right`: the one that is missing; `role`: the first built-in role that has it.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    field: str | None = None
    value: str | None = None
    expected: str | None = None
    right: str | None = None
    role: BuiltInRole | None = None
