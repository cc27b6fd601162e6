"""Turns a recording of a cluster, and its settings, into one assessment.

It only computes. The recording is written by `agent.pulsar.recorder`, `record_topic` and
`record_tables`, and read by `recording`; `cli.assess` shows what is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.agent.pulsar.recorder import has_extensible_manager
from lb_stream.assess.doubts import Doubt, find_doubts
from lb_stream.assess.evenness import Evenness, measure_evenness, usage_over_time
from lb_stream.assess.hot_brokers import HotBroker, find_hot_brokers
from lb_stream.assess.next_steps import Step, list_next_steps
from lb_stream.assess.plays import (
    NO_MOVES,
    Bound,
    Move,
    Play,
    find_bound,
    list_plays,
    play,
    prolong,
)
from lb_stream.assess.recording import Recording
from lb_stream.assess.settings_checks import (
    SettingFinding,
    SettingInForce,
    check_settings,
    explain_cluster_settings,
    list_settings_in_force,
)
from lb_stream.assess.verdict import give_verdict
from lb_stream.contracts.keys import GivenSettings, SettingError
from lb_stream.contracts.unread import WHY
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.least_moves.capacities import LIMITED, RESOURCES, find_believed
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.followed_profile import count_versions, find_oldest
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.policies import NO_POLICIES
from lb_stream.core.model.view import Bools, ClusterView
from lb_stream.query import QueryError
from lb_stream.query.past.reports import fold_history
from lb_stream.settings.differing import read_runtime
from lb_stream.settings.explain import Origins
from lb_stream.settings.load import LoadedSettings
from lb_stream.settings.resolve import resolve
from lb_stream.sim.scenario.errors import ScenarioError
from lb_stream.sim.scenario.from_history import LoadHistory, build_from_history

LARGE = 20_000
"""Bundles from which on simulations are shorter and coarser, so that they end within a minute."""
SILENT_MS = 120_000
"""A broker that was silent for longer than this, and than any broker before, has stopped."""
LEAST_MOVES = "LeastMoves"


@dataclass(frozen=True, slots=True)
class _Effort:
    """How long simulations last at least, minutes, and how long at most; their ticks, seconds.

    Where a recording is shorter its last loads go on; of a longer one the end is played.
    """

    ahead_min: float
    longest_min: float
    tick_s: float


_LONG, _SHORT = _Effort(60.0, 120.0, 30.0), _Effort(30.0, 30.0, 60.0)

OnProgress = Callable[[str, float], None]
"""Called with what is being done, and the share of all work that is over, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What reports and settings show of a cluster. Times are ms since the epoch."""

    cluster: str
    from_ms: int
    to_ms: int
    brokers: int
    bundles: int
    reports: int
    versions: Mapping[str, int]  # version → brokers; "" for those that report none
    evenness: tuple[Evenness, ...]
    slots_ms: tuple[int, ...]
    usage_over_time: Mapping[str, Sequence[float | None]]  # of the hottest brokers, by slot
    hot: tuple[HotBroker, ...]
    doubts: tuple[Doubt, ...]
    strategy: str  # the cluster's shedder
    settings_from: str
    settings: tuple[SettingInForce, ...]
    setting_findings: tuple[SettingFinding, ...]


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known of a cluster, what is doubtful, and what could be better."""

    source: str  # the file or the address
    verdict: str
    is_uneven: bool
    can_tell: bool  # simulated usages explain reported ones well enough for a verdict on moves
    model_error: float | None  # by how much they miss them (root mean square, a ratio)
    observed: Observation
    bound: Bound
    moves: tuple[Move, ...]  # from now on, by LeastMoves
    present: Play
    ahead_min: float  # for how many minutes the present goes on in `present`
    span_ms: tuple[int, int]  # begin and end of the plays
    plays: tuple[Play, ...]
    notes: tuple[str, ...]  # what the simulations assume
    next_steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Basis:
    """What an observation is computed from, for the simulations."""

    view: ClusterView
    history: LoadHistory
    departed: tuple[str, ...]
    profile: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of a cluster's own balancing, under our names.

    `origins`: path of each key → where it was given; `source`: the same of all, for people.
    `unusable`: what was given and doesn't count.
    """

    values: GivenSettings
    origins: Origins
    source: str
    unusable: tuple[str, ...] = ()


def read_cluster_settings(
    recording: Recording, given: LoadedSettings, cluster: str
) -> ClusterSettings:
    """Return the settings that were given, or else those in force in the first broker.

    Keys of Pulsar's that the simulator can't follow are left out.
    """
    own = given.settings.of_cluster(cluster)
    if own:
        values = {key: value for key, value in own.items() if key not in WHY}
        known = resolve(own).warnings
        unusable = tuple(line for line in given.warnings if line not in known)
        return ClusterSettings(values, given.origins, "the given ones", unusable)
    if not recording.runtimes:
        source = "defaults of the brokers' release, as none were recorded or given"
        return ClusterSettings({}, {}, source)
    broker, runtime = next(iter(recording.runtimes.items()))
    values, unusable = read_runtime(runtime, {"mode"})
    while True:
        try:
            resolve(values)
            break
        except SettingError as error:
            unusable += (f"{error.key} = {error.value!r} in the broker: not {error.expected}",)
            if values.pop(error.key, None) is None:
                raise
    where: dict[tuple[str, ...], str] = {("balancer", key): f"broker {broker}" for key in values}
    return ClusterSettings(values, where, f"those in force in {broker}", unusable)


def observe(recording: Recording, cluster: str, settings: ClusterSettings) -> Observation:
    """Return what reports and settings show, without simulations; see `assess`."""
    return _observe(recording, cluster, settings)[0]


def assess(
    recording: Recording,
    cluster: str,
    settings: ClusterSettings,
    on_progress: OnProgress,
    url: str | None = None,
    source: str | None = None,
) -> Assessment:
    """Assess a cluster.

    `url`: the address of a broker that was asked; None: no broker was. `source`: what was read,
    for people; None: the recording.

    Raises QueryError (exit code 2) for reports that can't be used.
    """
    on_progress("reading reports", 0.0)
    observed, basis = _observe(recording, cluster, settings)
    # the recorded span, and the present
    effort = _LONG if observed.bundles <= LARGE else _SHORT
    begin_ms = max(observed.from_ms, observed.to_ms - round(effort.longest_min * 60_000))
    past = _begin_at(basis, begin_ms, basis.departed)
    now = _begin_at(basis, observed.slots_ms[-1], ())
    try:
        span = build_from_history(past, effort.tick_s)
        present = prolong(build_from_history(now, effort.tick_s).scenario, effort.ahead_min)
    except ScenarioError as error:
        raise QueryError(f"{recording.path}: {error}", 2) from None
    scenario = prolong(span.scenario, effort.ahead_min)
    # the same with several policies
    own = observed.strategy if observed.strategy != LEAST_MOVES else f"{LEAST_MOVES}, yours"
    policies = list_plays(
        {
            NO_MOVES: {"enabled": False},
            own: {"profile": basis.profile, **settings.values},
            LEAST_MOVES: {"shedding_strategy": LEAST_MOVES},
        }
    )
    total, plays = len(policies) + 1, []
    for number, policy in enumerate(policies):
        progress = _share(on_progress, f"simulating {policy.name}", number, total)
        plays.append(play(scenario, policy, progress)[0])
    progress = _share(on_progress, "simulating what comes", len(policies), total)
    ahead, moves = play(present, policies[-1], progress)
    bound = find_bound(present)
    alive = int(basis.view.brokers.alive.sum())
    hottest = observed.hot[0] if observed.hot else None
    verdict = give_verdict(bound, ahead, alive, len(recording.silent), hottest, span.error)
    return Assessment(
        source=source or str(recording.path),
        verdict=verdict.sentence,
        is_uneven=verdict.is_uneven,
        can_tell=verdict.can_tell,
        model_error=span.error,
        observed=observed,
        bound=bound,
        moves=moves,
        present=ahead,
        ahead_min=effort.ahead_min,
        span_ms=(begin_ms, begin_ms + round(scenario.end_s * 1000)),
        plays=tuple(plays),
        notes=(*basis.notes, *span.notes),
        next_steps=list_next_steps(
            url,
            verdict.is_uneven,
            any(map(has_extensible_manager, recording.runtimes.values())),
        ),
    )


def _observe(
    recording: Recording, cluster: str, settings: ClusterSettings
) -> tuple[Observation, _Basis]:
    row, shard = fold_history(
        recording.path, cluster, recording.reports, settings=dict(settings.values)
    )
    departed = _find_departed(recording)
    view, profile, version = _build_view(cluster, shard, row["to_ms"], settings.values, departed)
    brokers = view.brokers
    believed = find_believed(brokers, {})
    history, notes = _build_history(row, recording, view, believed)
    # brokers
    evenness, slots = measure_evenness(row["brokers"], brokers.names, brokers.alive, believed)
    hot = find_hot_brokers(view, believed)
    rows = {name: at for at, name in enumerate(brokers.names)}
    chosen = {broker.broker: rows[broker.broker] for broker in hot}
    last_reports = {report.broker: report for report in _in_order(recording)}
    # settings
    explained = explain_cluster_settings(settings.values, settings.origins, profile, version)
    findings = (
        *(SettingFinding("contradiction", "", line) for line in settings.unusable),
        *check_settings(view, settings.values, explained, profile, recording.runtimes),
    )
    own = resolve(settings.values, followed=profile).config
    observed = Observation(
        cluster=cluster,
        from_ms=row["from_ms"],
        to_ms=row["to_ms"],
        brokers=len(brokers),
        bundles=int(np.count_nonzero(~view.bundles.system)),
        reports=len(recording.reports),
        versions=count_versions(brokers.versions),
        evenness=evenness,
        slots_ms=slots,
        usage_over_time=usage_over_time(row["brokers"], chosen, believed, slots),
        hot=hot,
        doubts=find_doubts(brokers, believed, last_reports, recording.silent, departed),
        strategy=own.shedder.name,
        settings_from=f"{settings.source}; profile {own.balancer.profile}",
        settings=list_settings_in_force(explained),
        setting_findings=findings,
    )
    return observed, _Basis(view, history, departed, profile, notes)


def _begin_at(basis: _Basis, from_ms: int, departed: Sequence[str]) -> LoadHistory:
    """Return the past from a time on, in which these brokers go down."""
    history = basis.history
    lives = _lives(basis.view, from_ms, departed, history.to_ms)
    return replace(history, from_ms=from_ms, alive=lives)


def _share(on_progress: OnProgress, text: str, number: int, total: int) -> Callable[[float], None]:
    return lambda share: on_progress(text, (number + share) / total)


def _in_order(recording: Recording) -> list[Any]:
    return sorted(recording.reports, key=lambda report: report.at_ms or 0)


def _find_departed(recording: Recording) -> tuple[str, ...]:
    """Find brokers that were silent at the end for longer than any broker was before."""
    times: dict[str, list[float]] = {}
    for report in _in_order(recording):
        times.setdefault(report.broker, []).append(report.at_ms or 0)
    end = max(own[-1] for own in times.values())
    gaps = [float(np.diff(own).max()) for own in times.values() if len(own) > 1]
    longest = max([SILENT_MS, *(1.5 * gap for gap in gaps)])
    return tuple(sorted(name for name, own in times.items() if end - own[-1] > longest))


def _build_view(
    cluster: str, shard: Shard, now_ms: int, values: GivenSettings, departed: Sequence[str]
) -> tuple[ClusterView, str, str]:
    """Return the cluster as last reported, the profile of its release, and its oldest version."""
    oldest = find_oldest(filter(None, shard.brokers["version"].to_pylist()))
    profile = (oldest.profile if oldest is not None else None) or "default"
    weights = resolve(values, followed=profile).config.balancer.weights
    view = view_of(cluster, [shard], now_ms, weights)
    alive = ~np.isin(np.array(view.brokers.names), departed)
    brokers = replace(view.brokers, alive=alive, speaking=alive)
    return replace(view, brokers=brokers), profile, "" if oldest is None else oldest.text


def _build_history(
    row: Mapping[str, Any],
    recording: Recording,
    view: ClusterView,
    believed: Bools,
) -> tuple[LoadHistory, tuple[str, ...]]:
    """Return the past for the simulator, with limits only where they can be believed; notes."""
    limits = row["brokers"]
    place = {name: at for at, name in enumerate(view.brokers.names)}
    of_row = np.array([place[name] for name in limits["broker"].to_pylist()], np.int64)
    for column in LIMITED:
        name = f"{RESOURCES[column]}_limit"
        stated = limits[name].fill_null(0.0).to_numpy()
        kept = np.where(believed[of_row, column], stated, 0.0)
        limits = limits.set_column(limits.schema.get_field_index(name), name, pa.array(kept))
    memory, notes = _import_policies(recording)
    return LoadHistory(**{**row, "brokers": limits, "memory": memory}), notes


def _lives(view: ClusterView, from_ms: int, departed: Sequence[str], to_ms: int = 0) -> pa.Table:
    """Return `LoadHistory.alive`: all brokers from the begin on; those that stop crash then."""
    names, alive = view.brokers.names, view.brokers.alive.tolist()
    rows = [
        {
            "now_ms": from_ms,
            "broker": name,
            "alive": is_alive or name in departed,
            "seen_ms": from_ms,
        }
        for name, is_alive in zip(names, alive, strict=True)
    ]
    last = dict(zip(names, view.brokers.seen_ms.tolist(), strict=True))
    rows += [
        {"now_ms": to_ms, "broker": name, "alive": False, "seen_ms": last[name]}
        for name in departed
    ]
    return pa.Table.from_pylist(rows)


def _import_policies(recording: Recording) -> tuple[str | None, tuple[str, ...]]:
    """Return the cluster's rules as a memory holds them, and notes."""
    content = recording.namespaces
    if content is None:
        return None, ("isolation policies and anti-affinity groups are not known: no rule holds",)
    operator_state = OperatorState(
        isolation={policy.name: policy.model_dump(mode="json") for policy in content.isolation},
        anti_affinity={
            namespace.name: namespace.anti_affinity_group
            for namespace in content.namespaces
            if namespace.anti_affinity_group
        },
        failure_domains=content.failure_domains,
    )
    try:
        for policy in operator_state.policies(NO_POLICIES).isolation:
            policy.is_primary("broker:1")
    except re.error as error:
        operator_state = replace(operator_state, isolation={})
        return (
            Memory(operator_state=operator_state).to_json(),
            (f"left out: all isolation policies, as one has no regular expression ({error})",),
        )
    return Memory(operator_state=operator_state).to_json(), ()


def list_missing(assessment: Assessment) -> Iterator[str]:
    """Yield the brokers of which the page knows nothing."""
    for doubt in assessment.observed.doubts:
        if doubt.kind == "no_report":
            yield from doubt.brokers
