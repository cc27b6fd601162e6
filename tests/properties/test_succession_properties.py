"""Any history of signs and looks: of several jobs that stand by one takes over, and only after
silence."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.commands import Claim, LeadershipRecord, Tick
from lb_stream.io.leadership.succession import CLAIM_MS, Action, Follower, ReceivedRecord

SILENCE = 3_000


def tick(at_ms: int, ends: bool = False) -> Tick:
    return Tick(id=f"tick:1:{at_ms}", pipeline="p", epoch=1, host="h", pid=1, ends=ends)


def follower(pid: int) -> Follower:
    return Follower(f"h:{pid}", SILENCE)


@dataclass
class World:
    """Jobs that stand by, a topic, and time. The leader is whoever's lead began last."""

    jobs: dict[int, Follower]
    topic: list[ReceivedRecord] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    begun: list[tuple[int, int]] = field(default_factory=list)  # (time, process)
    now: int = 100_000

    def say(self, sign: LeadershipRecord) -> None:
        self.topic.append(ReceivedRecord(sign, self.now))

    def look(self, pid: int, cut_off: bool) -> None:
        if cut_off:
            assert self.jobs[pid].observe(None, self.now) is Action.WAIT
            return
        new = self.topic[self.read.get(pid, 0) :]
        self.read[pid] = len(self.topic)
        action = self.jobs[pid].observe(new, self.now)
        if action is Action.CLAIM:
            made = Claim(id=f"claim:{pid}:{self.now}", pipeline="p", epoch=1, host="h", pid=pid)
            self.jobs[pid].claimed(made, self.now)
            self.say(made)
        elif action is Action.LEAD:
            self.jobs[pid].begin_anew()
            self.begun.append((self.now, pid))


STEPS = st.lists(
    st.tuples(
        st.integers(20, 4_000),
        st.sampled_from(["look", "look", "look", "away", "tick", "end"]),
        st.integers(2, 4),
    ),
    max_size=120,
)


@given(STEPS)
def test_two_never_begin_within_the_time_of_one_claim_and_never_while_the_leader_ticks(
    steps: list[tuple[int, str, int]],
) -> None:
    world = World({pid: follower(pid) for pid in (2, 3, 4)})
    ticks: list[int] = []
    ends: list[int] = []
    for wait, what, pid in steps:
        world.now += wait
        if what == "tick":
            ticks.append(world.now)
            world.say(tick(world.now))
        elif what == "end":
            ends.append(world.now)
            world.say(tick(world.now, ends=True))
        else:
            world.look(pid, cut_off=what == "away")
    claims = {one.append_ms: one.record.pid for one in world.topic if isinstance(one.record, Claim)}
    made = sorted(
        max(at for at, who in claims.items() if who == pid and at <= began)
        for began, pid in world.begun
    )
    assert all(
        after - before >= CLAIM_MS or any(before < at <= after for at in (*ticks, *ends))
        for before, after in pairwise(made)
    )
    for at in made:
        last = max([moment for moment in ticks if moment < at], default=None)
        over = any(last is None or last <= moment <= at for moment in ends)
        assert last is None or over or at - last >= SILENCE


@given(
    st.lists(
        st.tuples(st.integers(2, 6), st.integers(0, 190)),
        min_size=2,
        max_size=5,
        unique_by=lambda one: one[0],
    )
)
def test_of_jobs_that_look_steadily_exactly_one_takes_over_soon_after_the_last_tick(
    jobs: list[tuple[int, int]],
) -> None:
    world = World({pid: follower(pid) for pid, _ in jobs})
    world.say(tick(world.now))
    begin = world.now
    moments = sorted(
        (begin + late + 200 * number, pid) for pid, late in jobs for number in range(40)
    )
    for moment, pid in moments:
        world.now = max(world.now + 1, moment)
        world.look(pid, cut_off=False)
    assert len(world.begun) == 1
    assert SILENCE <= world.begun[0][0] - begin <= SILENCE + 1_000


@pytest.mark.parametrize("cut_off", [True, False])
def test_one_that_is_cut_off_leaves_it_to_the_others(cut_off: bool) -> None:
    world = World({2: follower(2), 3: follower(3)})
    world.say(tick(world.now))
    for _ in range(50):
        world.now += 100
        world.look(2, cut_off)
        world.now += 100
        world.look(3, cut_off=False)
    assert [pid for _, pid in world.begun] == [3 if cut_off else 2]
