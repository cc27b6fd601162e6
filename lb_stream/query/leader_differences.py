"""Explain, from the leader's log and the tables, why a move of the leader's and ours differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lb_stream.core.model.memory import Memory
from lb_stream.core.model.rules import Refuses
from lb_stream.core.shedding.avg import AvgMemory, AvgShedderConfig
from lb_stream.io.messages.shown import figure
from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import explain_exclusion, explain_refusal

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.leader_log import LeaderMove, LeaderPass
    from lb_stream.core.config.cluster_config import ClusterConfig
    from lb_stream.query.lake import Lake

EQUAL_SHARE = 1e-9
"""Figures that differ by less than this share are equal: the order of summing changes last bits."""
USAGE_TOLERANCE_RATIO = 0.001
"""Usages farther apart than this (a ratio) count as different."""
FORGOTTEN_WEIGHT = 0.05
"""A shedder's first usage counts until its weight in the smoothed usage is less than this."""
CLOCKS_MS = 1_000
"""The clocks of Kafka, the leader and the job may differ by this much."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A cause of a difference: a code for programs, a sentence for people."""

    code: str
    text: str


class RoundHistory:
    """Our rounds, from the tables, and the leader's passes, looked up by time."""

    def __init__(
        self, lake: Lake, cluster: str, config: ClusterConfig, passes: Sequence[LeaderPass]
    ) -> None:
        self._lake, self._cluster, self.config, self._passes = lake, cluster, config, passes
        self._before: dict[int, Row | None] = {}

    def find_leader_unload_age_ms(self, bundle: str, before_ms: int) -> int | None:
        """Return how long before a time the leader last unloaded a bundle.

        None: not within the grace period.
        """
        times = [
            move.at_ms
            for leader_pass in self._passes
            for move in leader_pass.moves
            if move.bundle == bundle and move.at_ms < before_ms
        ]
        if not times or before_ms - max(times) > self.config.balancer.shedding_grace_period_ms:
            return None
        return before_ms - max(times)

    def find_leader_pass(self, at_ms: int) -> LeaderPass | None:
        """Return the leader's last pass at a time, or None."""
        before = [leader_pass for leader_pass in self._passes if leader_pass.at_ms <= at_ms]
        return before[-1] if before else None

    def load_report_times(self, after_ms: int, until_ms: int) -> dict[str, int]:
        """Return broker → the time (ms) of its last report between two times."""
        query = """SELECT broker, max(reported_ms) AS at_ms FROM broker_loads
            WHERE cluster = $1 AND reported_ms > $2 AND reported_ms <= $3 GROUP BY broker
            ORDER BY broker"""
        return {
            row["broker"]: row["at_ms"]
            for row in records(run(self._lake, query, [self._cluster, after_ms, until_ms]))
        }

    def find_newest_report_ms(self, until_ms: int) -> int | None:
        """Return the time of the last report before `until_ms`, from any broker."""
        query = (
            "SELECT max(reported_ms) AS at_ms FROM broker_loads WHERE cluster = $1 AND "
            "reported_ms <= $2"
        )
        (row,) = records(run(self._lake, query, [self._cluster, until_ms]))
        return row["at_ms"] or None

    def find_refusal(self, broker: str | None, bundle: str, seq: int) -> Row | None:
        """Return a refusal of the bundle in a round, or else one of the broker, if given."""
        query = """SELECT rule FROM refusals WHERE cluster = $1 AND seq = $2
            AND (list_contains(subjects, $3) OR ($4 IS NOT NULL AND broker = $4))
            ORDER BY list_contains(subjects, $3) DESC LIMIT 1"""
        rows = records(run(self._lake, query, [self._cluster, seq, bundle, broker]))
        return rows[0] if rows else None

    def count_given_before(self, ours: Row, broker: str | None) -> int:
        """Count the bundles that our round gave to a broker before this decision of it."""
        query = """SELECT count(*) AS given FROM decisions
        WHERE cluster = $1 AND seq = $2 AND destination = $3
            AND TRY_CAST(string_split(decision_id, ':')[-1] AS INT) < $4"""
        ordinal = int(ours["decision_id"].rpartition(":")[2])
        parameters = [self._cluster, ours["seq"], broker, ordinal]
        (row,) = records(run(self._lake, query, parameters))
        return int(row["given"])

    def find_round_before(self, at_ms: int) -> Row | None:
        """Return the last round that the log had at a time, with its memory."""
        query = """SELECT seq, now_ms, memory, error FROM rounds
            WHERE cluster = $1 AND now_ms <= $2 AND memory <> '' ORDER BY log_seq DESC LIMIT 1"""
        if at_ms not in self._before:
            rows = records(run(self._lake, query, [self._cluster, at_ms]))
            self._before[at_ms] = rows[0] if rows else None
        return self._before[at_ms]


def explain_difference(
    rounds: RoundHistory,
    theirs: LeaderPass | None,
    move: LeaderMove | None,
    ours: Row | None,
    our_ms: int | None = None,
) -> tuple[Difference, ...]:
    """Explain why a move of the leader's and one of ours differ; either may be missing.

    `our_ms`: the time of our pass; None: we had none within the window.
    """
    if move is None:
        return tuple(_only_ours_differences(rounds, theirs, ours or {}))
    if our_ms is None:
        return tuple(_no_pass_differences(rounds, theirs, move))
    if ours is None:
        refused = tuple(_refusal_differences(rounds, move, our_ms, fewer=True))
        return (
            *refused,
            *_hit_differences(rounds, theirs, move.source, our_ms, refused),
            *_usage_differences(rounds, theirs, move, None, our_ms),
            *_report_differences(rounds, theirs, move.at_ms, our_ms),
        )
    if ours["bundle"] == move.bundle:
        return (
            *_pair_differences(theirs, move, ours),
            *_destination_differences(rounds, move, ours),
            *_report_differences(rounds, theirs, move.at_ms, our_ms),
        )
    return (
        *_unavailable_differences(rounds, theirs, ours, move.at_ms),
        *_refusal_differences(rounds, move, our_ms),
        *_usage_differences(rounds, theirs, move, ours, our_ms),
        *_report_differences(rounds, theirs, move.at_ms, our_ms),
        *_sampling_differences(rounds),
    )


def _unavailable_differences(
    rounds: RoundHistory, theirs: LeaderPass | None, ours: Row, at_ms: int
) -> Iterator[Difference]:
    """Yield why the leader could not choose our bundle."""
    if theirs is not None and ours["bundle"] in theirs.splitting:
        yield Difference(
            "splitting",
            f"the leader was splitting {ours['bundle']} then, and knew nothing of its load",
        )
    if (ago_ms := rounds.find_leader_unload_age_ms(ours["bundle"], at_ms)) is not None:
        yield Difference(
            "grace",
            f"the leader had unloaded {ours['bundle']} itself {ago_ms / 1000:.0f} s before, within "
            "the grace period",
        )


def _only_ours_differences(
    rounds: RoundHistory, theirs: LeaderPass | None, ours: Row
) -> Iterator[Difference]:
    """Yield what kept the leader from a move of ours."""
    at_ms = theirs.at_ms if theirs is not None else ours["issued_ms"]
    yield from _unavailable_differences(rounds, theirs, ours, at_ms)
    yield from _leader_hit_differences(rounds, theirs, ours)
    if theirs is not None:
        yield from _report_differences(rounds, theirs, at_ms, ours["issued_ms"])
    yield from _usage_differences(rounds, theirs, None, ours, ours["issued_ms"])
    yield from _sampling_differences(rounds)


def _no_pass_differences(
    rounds: RoundHistory, theirs: LeaderPass | None, move: LeaderMove
) -> Iterator[Difference]:
    """Yield why no round of ours moved anything within the window."""
    last = rounds.find_round_before(move.at_ms)
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
            "shedding_enabled is false here, as in a broker.conf that switches Pulsar's own "
            "balancing off: --set shedding_enabled=true",
        )
    if memory.last_shed_ms is None:
        yield Difference("no_pass", "we had not had a shedding pass yet")
    refused: tuple[Difference, ...] = ()
    if (refusal := rounds.find_refusal(move.source, move.bundle, last["seq"])) is not None:
        text = f"refused in round {last['seq']}: {explain_refusal(refusal['rule'])}"
        refused = (Difference(f"refused:{refusal['rule']}", text),)
    yield from refused
    yield from _hit_differences(rounds, theirs, move.source, last["now_ms"], refused)
    yield from _usage_differences(rounds, theirs, move, None, last["now_ms"])


def _refusal_differences(
    rounds: RoundHistory, move: LeaderMove, our_ms: int, fewer: bool = False
) -> Iterator[Difference]:
    """Yield the refusal of the leader's bundle in our pass.

    `fewer`: we moved fewer bundles; then also refusals of other bundles of the broker count.
    """
    last = rounds.find_round_before(our_ms)
    if last is None:
        return
    if (refusal := rounds.find_refusal(None, move.bundle, last["seq"])) is not None:
        yield Difference(
            f"refused:{refusal['rule']}",
            f"{move.bundle} was refused here: {explain_refusal(refusal['rule'])}",
        )
    elif (
        fewer
        and (refusal := rounds.find_refusal(move.source, move.bundle, last["seq"])) is not None
    ):
        text = (
            f"other bundles of {move.source} came first here and were refused: "
            f"{explain_refusal(refusal['rule'])}"
        )
        yield Difference(f"refused:{refusal['rule']}", text)


def _hit_differences(
    rounds: RoundHistory,
    theirs: LeaderPass | None,
    source: str,
    our_ms: int,
    refused: Sequence[Difference],
) -> Iterator[Difference]:
    """Yield that our AvgShedder had counted too few rounds of the broker's pair.

    `refused`: what kept ours from the move. Anything but the count itself means that the count was
    reached.
    """
    config, last = rounds.config.shedder_config, rounds.find_round_before(our_ms)
    if not isinstance(config, AvgShedderConfig) or last is None:
        return
    if any(difference.code != f"refused:{Refuses.HIT_COUNT.name}" for difference in refused):
        return
    strategies = Memory.from_json(last["memory"]).strategies
    memory = AvgMemory.read(strategies.get(rounds.config.shedder.name, {}))
    here = (memory.hits_low.get(source, 0), memory.hits_high.get(source, 0))
    if _are_hits_reached(here, config):
        return
    leader = "the leader, which sheds, has counted for longer"
    if theirs is not None and (there := (theirs.hits or {}).get(source)) is not None:
        leader = f"{_describe_hits(there, config)} for the leader"
    yield Difference(
        "hits",
        f"{source} was too busy beside its partner in {_describe_hits(here, config)} here: "
        f"{leader}",
    )


def _leader_hit_differences(
    rounds: RoundHistory, theirs: LeaderPass | None, ours: Row
) -> Iterator[Difference]:
    """Yield that the leader's AvgShedder had counted too few rounds of a pair that we levelled."""
    config, source = rounds.config.shedder_config, ours["source"]
    known = theirs or rounds.find_leader_pass(ours["issued_ms"])
    if not isinstance(config, AvgShedderConfig) or known is None or known.hits is None:
        return
    there = known.hits.get(source, (0, 0))
    if not _are_hits_reached(there, config):
        yield Difference(
            "hits",
            f"{source} was too busy beside its partner in {_describe_hits(there, config)} for the "
            "leader; ours has counted for longer",
        )


def _are_hits_reached(hits: tuple[int, int], config: AvgShedderConfig) -> bool:
    low, high = hits
    return low >= config.hit_count_low or high >= config.hit_count_high


def _describe_hits(hits: tuple[int, int], config: AvgShedderConfig) -> str:
    """Describe counts beyond the low and the high threshold beside their limits."""
    low, high = hits
    return (
        f"{low} of {config.hit_count_low} rounds (by {config.low_threshold_points} points) and "
        f"{high} of {config.hit_count_high} (by {config.high_threshold_points})"
    )


def _pair_differences(
    theirs: LeaderPass | None, move: LeaderMove, ours: Row
) -> Iterator[Difference]:
    """Yield that the leader's AvgShedder paired the broker with another one than ours.

    The plan of the leader's pass names the partner. At placement it is replaced if it is
    overloaded, or no candidate any more.
    """
    planned = None if theirs is None else theirs.partners.get(move.source)
    if theirs is None or planned is None:
        return
    if planned != move.destination:
        yield Difference(
            "replanned",
            f"the leader's plan was {planned}; when the bundle was placed it was overloaded or no "
            f"candidate, and {move.destination} was drawn",
        )
    elif planned != ours["destination"]:
        scores = {
            name: theirs.scores[name]
            for name in (move.source, planned, ours["destination"])
            if name in theirs.scores
        }
        beside = ", ".join(f"{name} {score:.1f} points" for name, score in scores.items())
        yield Difference(
            "pair",
            f"the leader paired {move.source} with {planned}, ours with {ours['destination']}"
            + (f"; the leader's scores: {beside}" if beside else ""),
        )


def _destination_differences(
    rounds: RoundHistory, move: LeaderMove, ours: Row
) -> Iterator[Difference]:
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
    elif _are_equal(*scores):
        yield _explain_draw(candidates, mine["score"])
    elif _are_equal(move.rates.get(to_theirs), move.rates.get(to_ours)):
        why = f"the leader drew among equals: {to_theirs} and {to_ours} ranked alike there"
        yield Difference("drawn", why)
    # what the pass had given before counts here, and not for the leader
    elif (given := rounds.count_given_before(ours, move.destination)) > 0:
        why = (
            f"{to_theirs} had been given {given} bundles of the same pass; the leader places each "
            "as if it were alone"
        )
        yield Difference("counted", why)
    elif None not in scores:
        yield _explain_ranking(move, dict(zip((to_ours, to_theirs), reversed(scores), strict=True)))
        yield from _sampling_differences(rounds)


def _explain_draw(candidates: Mapping[str, Row], score: float) -> Difference:
    """Explain that our placement drew among candidates of one score."""
    equals = sorted(
        name
        for name, candidate in candidates.items()
        if not candidate.get("refused_by") and _are_equal(candidate["score"], score)
    )
    return Difference("drawn", f"drawn among {len(equals)} equals: {', '.join(equals)}")


def _explain_ranking(move: LeaderMove, here: Mapping[str, float]) -> Difference:
    """Explain the ranks of both destinations: our scores (ours first) beside the leader's."""
    there = {name: rate for name, rate in move.rates.items() if name in here}
    beside = f"; the leader's: {_describe_rates(there)}" if there else ""
    return Difference("ranked", f"ranked here: {_describe_rates(here)}{beside}")


def _describe_rates(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure(rate, 'msg/s')}" for name, rate in found.items())


def _are_equal(first: float | None, other: float | None) -> bool:
    return (
        first is not None
        and other is not None
        and abs(first - other) <= EQUAL_SHARE * max(abs(first), abs(other))
    )


def _usage_differences(
    rounds: RoundHistory,
    theirs: LeaderPass | None,
    move: LeaderMove | None,
    ours: Row | None,
    our_ms: int,
) -> Iterator[Difference]:
    """Yield how the broker's usage differed between both: with it the amount to move differs."""
    source = move.source if move is not None else (ours or {}).get("source", "")
    if theirs is not None and source in theirs.too_little:
        yield Difference(
            "too_little", f"the leader found {source} overloaded, and too little throughput to move"
        )
    there = None if theirs is None else theirs.hot.get(source, (None, None))[0]
    explain = {} if ours is None else ours["explain"]
    here = explain.get("saw")
    if explain.get("unit") != "ratio":
        here = _find_smoothed_usage(rounds, source, our_ms)
    if here is None or (there is not None and abs(here - there) < USAGE_TOLERANCE_RATIO):
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
    yield from _history_differences(rounds, our_ms)


def _history_differences(rounds: RoundHistory, our_ms: int) -> Iterator[Difference]:
    """Yield that our shedder's smoothed usage is young, where its first value still counts."""
    history = getattr(rounds.config.shedder_config, "history_ratio", 0.0)
    last = rounds.find_round_before(our_ms)
    first_ms = Memory.from_json(last["memory"]).first_ms if last is not None and history else None
    if first_ms is None:
        return
    age_ms = our_ms - first_ms
    if history ** (age_ms / max(rounds.config.balancer.shedding_interval_ms, 1)) > FORGOTTEN_WEIGHT:
        yield Difference(
            "young",
            f"our smoothing began {age_ms / 1000:.0f} s before, without the leader's history "
            f"(history_ratio {history:g})",
        )


def _find_smoothed_usage(rounds: RoundHistory, broker: str, at_ms: int) -> float | None:
    """Return the smoothed usage of a broker in our shedder's memory; None: there is none."""
    last = rounds.find_round_before(at_ms)
    if last is None:
        return None
    strategies = Memory.from_json(last["memory"]).strategies
    usage: Mapping[str, float] = strategies.get(rounds.config.shedder.name, {}).get("usage", {})
    return usage.get(broker)


def _report_differences(
    rounds: RoundHistory, theirs: LeaderPass | None, moved_ms: int, our_ms: int
) -> Iterator[Difference]:
    """Yield the reports that one of the two passes had, and the other didn't.

    The leader chooses all bundles of a pass when it begins. Its reports are those that brokers
    write when something has changed; agents report at other times.
    """
    leader_ms = moved_ms if theirs is None else theirs.at_ms
    late_s = (our_ms - leader_ms) / 1000
    if abs(late_s) * 1000 > CLOCKS_MS and (
        between := rounds.load_report_times(min(leader_ms, our_ms), max(leader_ms, our_ms))
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
    there_ms = None if theirs is None else theirs.reported_ms
    here_ms = rounds.find_newest_report_ms(our_ms)
    if there_ms is not None and here_ms is not None and abs(there_ms - here_ms) > CLOCKS_MS:
        there, here = (leader_ms - there_ms) / 1000, (our_ms - here_ms) / 1000
        yield Difference(
            "other_reports",
            f"the newest report was {there:.0f} s old for the leader and {here:.0f} s old here",
        )


def _sampling_differences(rounds: RoundHistory) -> Iterator[Difference]:
    if rounds.config.balancer.sample_mode == "per_report":
        text = (
            "averages are of other samples: sample_mode is per_report; the leader samples as "
            "--set sample_mode=reference does"
        )
        yield Difference("sampling", text)
