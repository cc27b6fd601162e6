"""What Pulsar's leader unloaded beside what we decided: moves paired pass by pass, each difference
with what the tables say of it."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from lb_stream.query.lake import Row, records, run
from lb_stream.query.leader_differences import Difference, RoundHistory, explain_difference

if TYPE_CHECKING:
    from lb_stream.agent.pulsar.leader_log import LeaderMove, LeaderPass
    from lb_stream.query.cluster_state import ClusterState
    from lb_stream.query.lake import Lake

LEVELS = ("pass", "source", "bundle", "destination")
"""How far a move of ours is the leader's: decided in the same pass, from the same broker, the same
bundle, to the same broker."""
LEAST_WINDOW_MS = 60_000

_MOVES = """
    SELECT decision_id, seq, bundle, source, destination, issued_ms, rule, strategy, explain
    FROM decisions
    WHERE cluster = $1 AND issued_ms BETWEEN $2 AND $3 AND kind IN ('unload', 'transfer')
    AND rule NOT IN ('split_child', 'drained', 'namespace_deleted', 'unload_command')
    ORDER BY issued_ms, seq, TRY_CAST(string_split(decision_id, ':')[-1] AS INT)
"""


@dataclass(frozen=True, slots=True)
class MovePair:
    """One move of the leader's, of ours, or both.

    `alike`: those of LEVELS that are the same; `why`: what the others come from.
    """

    at_ms: int
    leader: LeaderMove | None
    ours: Row | None
    alike: tuple[str, ...]
    why: tuple[Difference, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether anything is not the same."""
        return self.alike != LEVELS

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        names = ("decision_id", "bundle", "source", "destination", "issued_ms")
        ours = None if self.ours is None else {name: self.ours[name] for name in names}
        return asdict(self) | {"ours": ours, "explained": not self.differs or bool(self.why)}


@dataclass(frozen=True, slots=True)
class LeaderComparison:
    """All moves in the order of their time.

    `unwatched`: moves of the leader's when the job had no round: nothing to compare them with.
    """

    cluster: str
    pairs: tuple[MovePair, ...]
    unwatched: int
    sample_mode: str

    @property
    def moves(self) -> int:
        """The leader's, as far as they are compared."""
        return sum(pair.leader is not None for pair in self.pairs)

    @property
    def only_ours(self) -> int:
        """Moves of ours that the leader didn't make."""
        return len(self.pairs) - self.moves

    @property
    def unexplained(self) -> int:
        """Differences of which the tables and the log don't say where they come from."""
        return sum(pair.differs and not pair.why for pair in self.pairs)

    def alike(self, level: str) -> int:
        """How many of the leader's moves are ours as far as `level`."""
        return sum(level in pair.alike for pair in self.pairs)

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        totals = {"moves": self.moves, **{level: self.alike(level) for level in LEVELS}}
        return {
            "cluster": self.cluster,
            "sample_mode": self.sample_mode,
            "moves": [pair.to_dict() for pair in self.pairs],
            "totals": totals
            | {
                "only_ours": self.only_ours,
                "unexplained": self.unexplained,
                "unwatched": self.unwatched,
            },
        }


@dataclass(slots=True)
class OurPass:
    """The moves of one round."""

    seq: int
    at_ms: int
    moves: list[Row] = field(default_factory=list)


def compare_with_leader(
    lake: Lake, state: ClusterState, passes: Sequence[LeaderPass], since_ms: int = 0
) -> LeaderComparison:
    """The leader's passes beside our rounds that moved something, from `since_ms` on."""
    balancer = state.config.balancer
    window_ms = max(balancer.shedding_interval_ms, LEAST_WINDOW_MS)
    begun_ms, ended_ms = _watched(lake, state.cluster)
    wanted = [each for each in passes if each.at_ms >= since_ms]
    seen = [each for each in wanted if begun_ms <= each.at_ms <= ended_ms]
    bounds = (
        (max(since_ms, wanted[0].at_ms - window_ms), wanted[-1].last_ms + window_ms)
        if wanted
        else (0, 0)
    )
    ours = load_our_passes(lake, state.cluster, *bounds)
    rounds = RoundHistory(lake, state.cluster, state.config, passes)
    paired = _paired(seen, ours, window_ms)
    pairs: list[MovePair] = []
    for theirs in seen:
        pairs += _of_pass(theirs, paired.pop(theirs.at_ms, None), rounds)
    if balancer.shedding_interval_ms:  # else we pass oftener than the leader
        taken = {pair.ours["seq"] for pair in pairs if pair.ours is not None}
        alone = [
            each
            for each in ours
            if each.seq not in taken
            and wanted
            and wanted[0].at_ms <= each.at_ms <= wanted[-1].last_ms
        ]
        pairs += [
            MovePair(each.at_ms, None, move, (), explain_difference(rounds, None, None, move))
            for each in alone
            for move in each.moves
        ]
    unwatched = sum(len(each.moves) for each in wanted) - sum(len(each.moves) for each in seen)
    return LeaderComparison(
        state.cluster,
        tuple(sorted(pairs, key=lambda pair: pair.at_ms)),
        unwatched,
        balancer.sample_mode,
    )


def load_our_passes(lake: Lake, cluster: str, from_ms: int, until_ms: int) -> list[OurPass]:
    """Our rounds of a time that moved something of the balancer's own accord, in the order of their
    time."""
    found: dict[int, OurPass] = {}
    for row in records(run(lake, _MOVES, [cluster, from_ms, until_ms])):
        row["explain"] = json.loads(row["explain"])
        found.setdefault(row["seq"], OurPass(row["seq"], row["issued_ms"])).moves.append(row)
    return list(found.values())


def _watched(lake: Lake, cluster: str) -> tuple[int, int]:
    """From when to when the job has looked at the cluster; its last rounds may say nothing new, so
    `batches` counts too."""
    query = """
        SELECT (SELECT min(now_ms) FROM rounds WHERE cluster = $1) AS begun,
               greatest((SELECT max(now_ms) FROM rounds WHERE cluster = $1),
                        (SELECT max(started_ms) FROM batches)) AS ended"""
    (row,) = records(run(lake, query, [cluster]))
    return row["begun"] or 0, row["ended"] or 0


def _paired(
    theirs: Sequence[LeaderPass], ours: Sequence[OurPass], window_ms: int
) -> dict[int, OurPass]:
    """The leader's pass (its time) → ours: the nearest first, none twice, none farther apart than
    the window.

    Time after the leader's pass counts twice: by then reports show what it has moved.
    """
    near, times = [], [each.at_ms for each in ours]
    for a in theirs:
        for b in ours[
            bisect_left(times, a.at_ms - window_ms) : bisect_right(times, a.at_ms + window_ms)
        ]:
            late_ms = b.at_ms - a.at_ms
            near.append((max(-late_ms, 2 * late_ms), a.at_ms, b.seq, b))
    found: dict[int, OurPass] = {}
    taken: set[int] = set()
    for _, at_ms, seq, each in sorted(near, key=lambda pair: pair[:3]):
        if at_ms not in found and seq not in taken:
            found[at_ms] = each
            taken.add(seq)
    return found


def _of_pass(theirs: LeaderPass, ours: OurPass | None, rounds: RoundHistory) -> Iterator[MovePair]:
    """The pairs of one pass: the same bundles first, then others from the same broker, then what is
    left."""
    left = {move["bundle"]: move for move in ours.moves} if ours else {}
    same = {
        move.bundle: left.pop(move.bundle)
        for move in theirs.moves
        if left.get(move.bundle, {}).get("source") == move.source
    }
    for move in theirs.moves:
        mine = same.get(move.bundle) or next(
            (row for row in left.values() if row["source"] == move.source), None
        )
        if mine is not None:
            left.pop(mine["bundle"], None)
        alike = _alike(move, mine, ours, {row["source"] for row in ours.moves} if ours else set())
        why = (
            ()
            if alike == LEVELS
            else explain_difference(rounds, theirs, move, mine, ours.at_ms if ours else None)
        )
        yield MovePair(move.at_ms, move, mine, alike, why)
    for row in left.values():
        yield MovePair(
            row["issued_ms"],
            None,
            row,
            (),
            explain_difference(rounds, theirs, None, row, row["issued_ms"]),
        )


def _alike(
    move: LeaderMove, mine: Row | None, ours: OurPass | None, sources: set[str]
) -> tuple[str, ...]:
    if ours is None:
        return ()
    if mine is None:
        return LEVELS[:2] if move.source in sources else LEVELS[:1]
    if mine["bundle"] != move.bundle:
        return LEVELS[:2]
    return LEVELS if mine["destination"] == move.destination else LEVELS[:3]
