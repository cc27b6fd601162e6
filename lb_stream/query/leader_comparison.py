"""Compare the moves of Pulsar's leader with our decisions, and explain each difference."""

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
"""How far our move is the leader's: in the same pass, from the same broker, the same bundle, to the
same broker."""
LEAST_WINDOW_MS = 60_000
"""Passes of the leader and of ours that are no farther apart than this can be pairs."""

_MOVES = """
    SELECT decision_id, seq, bundle, source, destination, issued_ms, rule, strategy, explain
    FROM decisions
    WHERE cluster = $1 AND issued_ms BETWEEN $2 AND $3 AND kind IN ('unload', 'transfer')
    AND rule NOT IN (
        'split_child', 'drained', 'rollout', 'rollout_levels', 'namespace_deleted', 'unload_command'
    )
    ORDER BY issued_ms, seq, TRY_CAST(string_split(decision_id, ':')[-1] AS INT)
"""


@dataclass(frozen=True, slots=True)
class MovePair:
    """A move of the leader's, one of ours, or both.

    `alike`: the LEVELS that are the same; `why`: what the difference in the others comes from.
    """

    at_ms: int
    leader: LeaderMove | None
    ours: Row | None
    alike: tuple[str, ...]
    why: tuple[Difference, ...] = ()

    @property
    def differs(self) -> bool:
        """Return whether any level is not the same."""
        return self.alike != LEVELS

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        names = ("decision_id", "bundle", "source", "destination", "issued_ms")
        ours = None if self.ours is None else {name: self.ours[name] for name in names}
        return asdict(self) | {"ours": ours, "explained": not self.differs or bool(self.why)}


@dataclass(frozen=True, slots=True)
class LeaderComparison:
    """All pairs of moves in the order of their time.

    `unwatched`: the leader's moves while the job had no round to compare them with.
    """

    cluster: str
    pairs: tuple[MovePair, ...]
    unwatched: int
    sample_mode: str

    @property
    def moves(self) -> int:
        """Return the number of the leader's moves that are compared."""
        return sum(pair.leader is not None for pair in self.pairs)

    @property
    def only_ours(self) -> int:
        """Return the number of our moves that the leader didn't make."""
        return len(self.pairs) - self.moves

    @property
    def unexplained(self) -> int:
        """Return the number of differences that tables and log don't explain."""
        return sum(pair.differs and not pair.why for pair in self.pairs)

    def alike(self, level: str) -> int:
        """Count the leader's moves that are ours as far as `level`."""
        return sum(level in pair.alike for pair in self.pairs)

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return {
            "cluster": self.cluster,
            "sample_mode": self.sample_mode,
            "moves": [pair.to_dict() for pair in self.pairs],
            "totals": {
                "moves": self.moves,
                **{level: self.alike(level) for level in LEVELS},
                "only_ours": self.only_ours,
                "unexplained": self.unexplained,
                "unwatched": self.unwatched,
            },
        }


@dataclass(slots=True)
class OurPass:
    """The moves of one of our rounds."""

    seq: int
    at_ms: int
    moves: list[Row] = field(default_factory=list)


def compare_with_leader(
    lake: Lake, state: ClusterState, passes: Sequence[LeaderPass], since_ms: int = 0
) -> LeaderComparison:
    """Compare the leader's passes from `since_ms` on with our rounds that moved something."""
    balancer = state.config.balancer
    window_ms = max(balancer.shedding_interval_ms, LEAST_WINDOW_MS)
    # passes of the leader: from `since_ms` on, and of these the ones while the job was running
    first_ms, last_ms = _load_watched_time(lake, state.cluster)
    wanted = [leader_pass for leader_pass in passes if leader_pass.at_ms >= since_ms]
    watched = [leader_pass for leader_pass in wanted if first_ms <= leader_pass.at_ms <= last_ms]
    # our passes of the same time
    ours: list[OurPass] = []
    if wanted:
        begin_ms = max(since_ms, wanted[0].at_ms - window_ms)
        ours = load_our_passes(lake, state.cluster, begin_ms, wanted[-1].last_ms + window_ms)
    # pairs of passes, then of their moves
    rounds = RoundHistory(lake, state.cluster, state.config, passes)
    paired = _pair_passes(watched, ours, window_ms)
    pairs: list[MovePair] = []
    for theirs in watched:
        pairs += _pair_moves(theirs, paired.pop(theirs.at_ms, None), rounds)
    # Our passes without one of the leader's. Where each report makes a pass, most have none.
    if balancer.shedding_interval_ms:
        paired_seqs = {pair.ours["seq"] for pair in pairs if pair.ours is not None}
        alone = [
            our_pass
            for our_pass in ours
            if our_pass.seq not in paired_seqs
            and wanted[0].at_ms <= our_pass.at_ms <= wanted[-1].last_ms
        ]
        pairs += [
            MovePair(our_pass.at_ms, None, move, (), explain_difference(rounds, None, None, move))
            for our_pass in alone
            for move in our_pass.moves
        ]
    moves = sum(len(leader_pass.moves) for leader_pass in wanted)
    unwatched = moves - sum(len(leader_pass.moves) for leader_pass in watched)
    return LeaderComparison(
        state.cluster,
        tuple(sorted(pairs, key=lambda pair: pair.at_ms)),
        unwatched,
        balancer.sample_mode,
    )


def load_our_passes(lake: Lake, cluster: str, from_ms: int, until_ms: int) -> list[OurPass]:
    """Return our rounds between two times in which balancing moved something, in order."""
    found: dict[int, OurPass] = {}
    for row in records(run(lake, _MOVES, [cluster, from_ms, until_ms])):
        row["explain"] = json.loads(row["explain"])
        found.setdefault(row["seq"], OurPass(row["seq"], row["issued_ms"])).moves.append(row)
    return list(found.values())


def _load_watched_time(lake: Lake, cluster: str) -> tuple[int, int]:
    """Return between which times (ms) the job has watched the cluster.

    Rounds without a result are not logged, so the last batch counts too.
    """
    query = """
        SELECT (SELECT min(now_ms) FROM rounds WHERE cluster = $1) AS begun,
               greatest((SELECT max(now_ms) FROM rounds WHERE cluster = $1),
                        (SELECT max(started_ms) FROM batches)) AS ended"""
    (row,) = records(run(lake, query, [cluster]))
    return row["begun"] or 0, row["ended"] or 0


def _pair_passes(
    theirs: Sequence[LeaderPass], ours: Sequence[OurPass], window_ms: int
) -> dict[int, OurPass]:
    """Return the time of a leader's pass → our pass: the nearest first, none twice.

    Paired passes are no farther apart than the window. Time after the leader's pass counts twice:
    by then reports show what it has moved.
    """
    # all pairs within the window, with their distance
    near = []
    times_ms = [our_pass.at_ms for our_pass in ours]
    for leader_pass in theirs:
        first = bisect_left(times_ms, leader_pass.at_ms - window_ms)
        behind = bisect_right(times_ms, leader_pass.at_ms + window_ms)
        for our_pass in ours[first:behind]:
            late_ms = our_pass.at_ms - leader_pass.at_ms
            distance_ms = max(-late_ms, 2 * late_ms)
            near.append((distance_ms, leader_pass.at_ms, our_pass.seq, our_pass))
    # the nearest first
    found: dict[int, OurPass] = {}
    paired_seqs: set[int] = set()
    for _, at_ms, seq, our_pass in sorted(near, key=lambda pair: pair[:3]):
        if at_ms not in found and seq not in paired_seqs:
            found[at_ms] = our_pass
            paired_seqs.add(seq)
    return found


def _pair_moves(
    theirs: LeaderPass, ours: OurPass | None, rounds: RoundHistory
) -> Iterator[MovePair]:
    """Yield the pairs of one pass: same bundles, others from the same broker, then those alone."""
    our_moves = ours.moves if ours else []
    our_ms = ours.at_ms if ours else None
    sources = {move["source"] for move in our_moves}
    left = {move["bundle"]: move for move in our_moves}
    same = {
        move.bundle: left.pop(move.bundle)
        for move in theirs.moves
        if left.get(move.bundle, {}).get("source") == move.source
    }
    for move in theirs.moves:
        of_source = (row for row in left.values() if row["source"] == move.source)
        mine = same.get(move.bundle) or next(of_source, None)
        if mine is not None:
            left.pop(mine["bundle"], None)
        alike = _find_alike_levels(move, mine, ours, sources)
        why: tuple[Difference, ...] = ()
        if alike != LEVELS:
            why = explain_difference(rounds, theirs, move, mine, our_ms)
        yield MovePair(move.at_ms, move, mine, alike, why)
    for row in left.values():
        why = explain_difference(rounds, theirs, None, row, row["issued_ms"])
        yield MovePair(row["issued_ms"], None, row, (), why)


def _find_alike_levels(
    move: LeaderMove, mine: Row | None, ours: OurPass | None, sources: set[str]
) -> tuple[str, ...]:
    """Return the LEVELS that are the same. `sources`: of all moves of our pass."""
    if ours is None:
        return ()
    if mine is None:
        return LEVELS[:2] if move.source in sources else LEVELS[:1]
    if mine["bundle"] != move.bundle:
        return LEVELS[:2]
    return LEVELS if mine["destination"] == move.destination else LEVELS[:3]
