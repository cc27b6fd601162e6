"""Why a move of the leader's and ours are not the same, as far as the leader's log and the tables
tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.core.model.memory import Memory
from lb_stream.io.messages.shown import figure
from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import explain_exclusion, explain_refusal

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.leader_log import LeaderMove, LeaderPass
    from lb_stream.core.config.cluster_config import ClusterConfig
    from lb_stream.query.lake import Lake

SAME = 1e-9
"""Figures that differ by less than this share are called equal: the last bits may come from another
order of summing."""
SEEN_OTHERWISE = 0.001
"""Usages farther apart than this (a ratio) count as different."""
FORGOTTEN = 0.05
"""A first usage counts until its weight in the smoothed one is less than this."""
CLOCKS_MS = 1_000
"""Kafka's clock, the leader's and ours may differ by this much."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a difference comes from: a word for programs, a sentence for people."""

    code: str
    text: str


class RoundHistory:
    """Our rounds and the leader's passes, to be asked about one moment."""

    def __init__(
        self, lake: Lake, cluster: str, config: ClusterConfig, passes: Sequence[LeaderPass]
    ) -> None:
        self._lake, self._cluster, self.config, self._passes = lake, cluster, config, passes
        self._before: dict[int, Row | None] = {}

    def unloaded_by_leader(self, bundle: str, before_ms: int) -> int | None:
        """How long before a moment (ms) the leader had last unloaded a bundle, if that was within
        the grace period."""
        times = [
            move.at_ms
            for leader_pass in self._passes
            for move in leader_pass.moves
            if move.bundle == bundle and move.at_ms < before_ms
        ]
        if not times or before_ms - max(times) > self.config.balancer.shedding_grace_period_ms:
            return None
        return before_ms - max(times)

    def reports(self, after_ms: int, until_ms: int) -> dict[str, int]:
        """Broker → the time of its last report between two moments."""
        query = """SELECT broker, max(reported_ms) AS at_ms FROM broker_loads
            WHERE cluster = $1 AND reported_ms > $2 AND reported_ms <= $3 GROUP BY broker
            ORDER BY broker"""
        return {
            row["broker"]: row["at_ms"]
            for row in records(run(self._lake, query, [self._cluster, after_ms, until_ms]))
        }

    def newest_report_ms(self, until_ms: int) -> int | None:
        """When the last report before a moment was sent, by any broker."""
        query = (
            "SELECT max(reported_ms) AS at_ms FROM broker_loads WHERE cluster = $1 AND "
            "reported_ms <= $2"
        )
        return (
            next(iter(records(run(self._lake, query, [self._cluster, until_ms]))))["at_ms"] or None
        )

    def refused(self, broker: str | None, bundle: str, seq: int) -> Row | None:
        """The refusal of a bundle in a round; or of its broker, when the bundle isn't named (a
        broker given)."""
        query = """SELECT rule FROM refusals WHERE cluster = $1 AND seq = $2
            AND (list_contains(subjects, $3) OR ($4 IS NOT NULL AND broker = $4))
            ORDER BY list_contains(subjects, $3) DESC LIMIT 1"""
        return next(
            iter(records(run(self._lake, query, [self._cluster, seq, bundle, broker]))), None
        )

    def given_before(self, ours: Row, broker: str | None) -> int:
        """How many bundles of its round a broker had been given before a decision of ours."""
        query = """SELECT count(*) AS given FROM decisions
        WHERE cluster = $1 AND seq = $2 AND destination = $3
            AND TRY_CAST(string_split(decision_id, ':')[-1] AS INT) < $4"""
        ordinal = int(ours["decision_id"].rpartition(":")[2])
        return int(
            records(run(self._lake, query, [self._cluster, ours["seq"], broker, ordinal]))[0][
                "given"
            ]
        )

    def before(self, at_ms: int) -> Row | None:
        """The last round in the log at a moment, with its memory."""
        query = """SELECT seq, now_ms, memory, error FROM rounds
            WHERE cluster = $1 AND now_ms <= $2 AND memory <> '' ORDER BY log_seq DESC LIMIT 1"""
        if at_ms not in self._before:
            self._before[at_ms] = next(
                iter(records(run(self._lake, query, [self._cluster, at_ms]))), None
            )
        return self._before[at_ms]


def explain_difference(
    rounds: RoundHistory,
    theirs: LeaderPass | None,
    move: LeaderMove | None,
    ours: Row | None,
    our_ms: int | None = None,
) -> tuple[Difference, ...]:
    """What makes a move of the leader's and one of ours differ; either may be missing.

    `our_ms`: when our pass was.
    """
    if move is None:
        return tuple(_only_ours(rounds, theirs, ours or {}))
    if our_ms is None:
        return tuple(_no_pass(rounds, theirs, move))
    if ours is None:
        refused = _refused(rounds, move, our_ms, fewer=True)
        return (
            *refused,
            *_usage(rounds, theirs, move, None, our_ms),
            *_different_reports(rounds, theirs, move.at_ms, our_ms),
        )
    if ours["bundle"] == move.bundle:
        return (
            *_destination(rounds, move, ours),
            *_different_reports(rounds, theirs, move.at_ms, our_ms),
        )
    return (
        *_unavailable_to_leader(rounds, theirs, ours, move.at_ms),
        *_refused(rounds, move, our_ms),
        *_usage(rounds, theirs, move, ours, our_ms),
        *_different_reports(rounds, theirs, move.at_ms, our_ms),
        *_sampling(rounds),
    )


def _unavailable_to_leader(
    rounds: RoundHistory, theirs: LeaderPass | None, ours: Row, at_ms: int
) -> Iterator[Difference]:
    """Why the leader could not choose our bundle."""
    if theirs is not None and ours["bundle"] in theirs.splitting:
        yield Difference(
            "splitting",
            f"the leader was splitting {ours['bundle']} just then, and knew nothing of its load",
        )
    if (ago_ms := rounds.unloaded_by_leader(ours["bundle"], at_ms)) is not None:
        yield Difference(
            "grace",
            f"the leader had itself unloaded {ours['bundle']} {ago_ms / 1000:.0f} s before, within "
            "the grace period",
        )


def _only_ours(rounds: RoundHistory, theirs: LeaderPass | None, ours: Row) -> Iterator[Difference]:
    """What kept the leader from a move of ours."""
    at_ms = theirs.at_ms if theirs is not None else ours["issued_ms"]
    yield from _unavailable_to_leader(rounds, theirs, ours, at_ms)
    if theirs is not None:
        yield from _different_reports(rounds, theirs, at_ms, ours["issued_ms"])
    yield from _usage(rounds, theirs, None, ours, ours["issued_ms"])
    yield from _sampling(rounds)


def _no_pass(
    rounds: RoundHistory, theirs: LeaderPass | None, move: LeaderMove
) -> Iterator[Difference]:
    """Why no round of ours moved anything within the interval."""
    last = rounds.before(move.at_ms)
    if last is None:
        yield Difference("no_round", "no round of ours was logged before it")
        return
    if last["error"]:
        yield Difference(
            "error", f"round {last['seq']} failed: {last['error'].strip().splitlines()[-1]}"
        )
    memory = Memory.from_json(last["memory"])
    if memory.operator_state.paused:
        yield Difference("paused", "the cluster was paused here")
    if not rounds.config.balancer.shedding_enabled:
        yield Difference(
            "off",
            "shedding_enabled is false here: a broker.conf in which Pulsar's own is off says so, "
            "--set shedding_enabled=true",
        )
    if memory.last_shed_ms is None:
        yield Difference("no_pass", "we had not had a shedding pass yet")
    if (refusal := rounds.refused(move.source, move.bundle, last["seq"])) is not None:
        yield Difference(
            f"refused:{refusal['rule']}",
            f"refused in round {last['seq']}: {explain_refusal(refusal['rule'])}",
        )
    yield from _usage(rounds, theirs, move, None, last["now_ms"])


def _refused(
    rounds: RoundHistory, move: LeaderMove, our_ms: int, fewer: bool = False
) -> Iterator[Difference]:
    """The refusal of the leader's bundle in our pass; where we moved fewer, of others of its
    broker, which took its place."""
    last = rounds.before(our_ms)
    if last is None:
        return
    if (refusal := rounds.refused(None, move.bundle, last["seq"])) is not None:
        yield Difference(
            f"refused:{refusal['rule']}",
            f"{move.bundle} was refused here: {explain_refusal(refusal['rule'])}",
        )
    elif fewer and (refusal := rounds.refused(move.source, move.bundle, last["seq"])) is not None:
        words = (
            f"other bundles of {move.source} came first here and were refused: "
            f"{explain_refusal(refusal['rule'])}"
        )
        yield Difference(f"refused:{refusal['rule']}", words)


def _destination(rounds: RoundHistory, move: LeaderMove, ours: Row) -> Iterator[Difference]:
    """Yield why both unload the same bundle, to different brokers."""
    candidates = {
        candidate["broker"]: candidate for candidate in ours["explain"].get("candidates", ())
    }
    to_theirs, to_ours = move.destination or "", ours["destination"] or ""
    if move.rates and to_ours not in move.rates:
        names = ", ".join(sorted(move.rates))
        yield Difference("candidates", f"{to_ours} was no candidate of the leader's: {names}")
    theirs, mine = candidates.get(to_theirs, {}), candidates.get(to_ours, {})
    scores = (theirs.get("score"), mine.get("score"))
    # a filter removed the leader's choice here
    if rule := theirs.get("refused_by"):
        why = f"{to_theirs} was no candidate here: {explain_exclusion(rule)}"
        yield Difference(f"refused:{rule}", why)
    # one of the two drew among equals
    elif _equal(*scores):
        yield _drawn_here(candidates, mine["score"])
    elif _equal(move.rates.get(to_theirs), move.rates.get(to_ours)):
        why = f"the leader drew among equals: {to_theirs} and {to_ours} ranked alike there"
        yield Difference("drawn", why)
    # what the pass had given before counts here, and not for the leader
    elif (given := rounds.given_before(ours, move.destination)) > 0:
        why = (
            f"{to_theirs} had been given {given} bundles of the same pass; the leader places each "
            "as if it were alone"
        )
        yield Difference("counted", why)
    elif None not in scores:
        yield _ranked(move, dict(zip((to_ours, to_theirs), reversed(scores), strict=True)))
        yield from _sampling(rounds)


def _drawn_here(candidates: Mapping[str, Row], score: float) -> Difference:
    equals = sorted(
        name
        for name, candidate in candidates.items()
        if not candidate.get("refused_by") and _equal(candidate["score"], score)
    )
    return Difference("drawn", f"drawn among {len(equals)} equals: {', '.join(equals)}")


def _ranked(move: LeaderMove, here: Mapping[str, float]) -> Difference:
    """The scores of both destinations here (ours first), beside the leader's of the same two."""
    there = {name: rate for name, rate in move.rates.items() if name in here}
    beside = f"; the leader's: {_rates(there)}" if there else ""
    return Difference("ranked", f"ranked here: {_rates(here)}{beside}")


def _rates(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure(rate, 'msg/s')}" for name, rate in found.items())


def _equal(first: float | None, other: float | None) -> bool:
    return (
        first is not None
        and other is not None
        and abs(first - other) <= SAME * max(abs(first), abs(other))
    )


def _usage(
    rounds: RoundHistory,
    theirs: LeaderPass | None,
    move: LeaderMove | None,
    ours: Row | None,
    our_ms: int,
) -> Iterator[Difference]:
    """The broker's usage as both saw it, when that differs: another amount should leave, or
    nothing."""
    source = move.source if move is not None else (ours or {}).get("source", "")
    if theirs is not None and source in theirs.too_little:
        yield Difference(
            "too_little", f"the leader found {source} overloaded, and too little throughput to move"
        )
    there = None if theirs is None else theirs.hot.get(source, (None, None))[0]
    explain = {} if ours is None else ours["explain"]
    here = (
        explain.get("saw")
        if explain.get("unit") == "ratio"
        else _smoothed_usage(rounds, source, our_ms)
    )
    if here is None or (there is not None and abs(here - there) < SEEN_OTHERWISE):
        return
    if there is not None:
        yield Difference(
            "usage",
            f"{source} was at {figure(here, 'ratio')} here and at {figure(there, 'ratio')} for the "
            "leader, both smoothed",
        )
    elif theirs is not None and source in theirs.calm:
        yield Difference(
            "usage",
            f"{source} was at {figure(here, 'ratio')} here, smoothed, and not overloaded for the "
            "leader",
        )
    else:
        return
    yield from _short_history(rounds, our_ms)


def _short_history(rounds: RoundHistory, our_ms: int) -> Iterator[Difference]:
    """A shedder that smooths begins without a past; the leader has had one for long."""
    history = getattr(rounds.config.shedder_config, "history_ratio", 0.0)
    last = rounds.before(our_ms)
    first_ms = Memory.from_json(last["memory"]).first_ms if last is not None and history else None
    if first_ms is None:
        return
    age_ms = our_ms - first_ms
    if history ** (age_ms / max(rounds.config.balancer.shedding_interval_ms, 1)) > FORGOTTEN:
        yield Difference(
            "young",
            f"our smoothing began {age_ms / 1000:.0f} s before, without the leader's past "
            f"(history_ratio {history:g})",
        )


def _smoothed_usage(rounds: RoundHistory, broker: str, at_ms: int) -> float | None:
    """The smoothed usage that our shedder remembered of a broker."""
    last = rounds.before(at_ms)
    usage = (
        None
        if last is None
        else Memory.from_json(last["memory"])
        .strategies.get(rounds.config.shedder.name, {})
        .get("usage", {})
    )
    return usage.get(broker) if usage else None


def _different_reports(
    rounds: RoundHistory, theirs: LeaderPass | None, moved_ms: int, our_ms: int
) -> Iterator[Difference]:
    """What one of the two passes knew, and the other didn't.

    The leader chooses a pass's bundles at its begin, then unloads one after another. It looks at
    reports when brokers write them, and brokers write what changes much; agents ask at other
    moments.
    """
    leader_ms = moved_ms if theirs is None else theirs.at_ms
    late_s = (our_ms - leader_ms) / 1000
    if abs(late_s) * 1000 > CLOCKS_MS and (
        between := rounds.reports(min(leader_ms, our_ms), max(leader_ms, our_ms))
    ):
        newer = f"reports of {', '.join(between)} came between"
        if late_s > 0:
            yield Difference(
                "leaders_report_older",
                f"we passed {late_s:.0f} s after the leader, whose reports were older: {newer}",
            )
        else:
            yield Difference(
                "our_report_older",
                f"we passed {-late_s:.0f} s before the leader, and ours were older: {newer}",
            )
    there_ms, here_ms = (
        None if theirs is None else theirs.reported_ms,
        rounds.newest_report_ms(our_ms),
    )
    if there_ms is not None and here_ms is not None and abs(there_ms - here_ms) > CLOCKS_MS:
        there, here = (leader_ms - there_ms) / 1000, (our_ms - here_ms) / 1000
        yield Difference(
            "other_reports",
            f"the newest report was {there:.0f} s old for the leader and {here:.0f} s old here",
        )


def _sampling(rounds: RoundHistory) -> Iterator[Difference]:
    if rounds.config.balancer.sample_mode == "per_report":
        text = (
            "averages of other samples: sample_mode is per_report, the leader's way is --set "
            "sample_mode=reference"
        )
        yield Difference("sampling", text)
