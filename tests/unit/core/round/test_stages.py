"""Each stage of a round by itself: what goes in, what comes out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.rules import Decides
from lb_stream.core.model.view import Bools, ClusterView
from lb_stream.core.round import shed
from lb_stream.core.round.decide import Inbox, balance, may_decide, place
from lb_stream.core.round.observe import observe
from lb_stream.core.round.operator_moves import decide_commands
from lb_stream.core.round.record import record
from lb_stream.core.round.settle import settle
from lb_stream.core.round.shed import movable_bundles, unload_from_hot
from lb_stream.core.round.state import RoundState
from lb_stream.core.shedding.base import ShedContext, Traits, Unload, Unloads
from lb_stream.settings.overrides import apply_setting_commands
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of
from tests.support.commanded_round import decide_with

NOW_MS = 1_000_000
BUNDLES = [f"t/n/0x{index}0000000_0x{index + 1}0000000" for index in range(4)]
SETTINGS = {"dry_run": False, "load_manager": "modular", "shedding_interval_ms": 0}
CONFIG = cluster_config(SETTINGS)


def seen(config: ClusterConfig = CONFIG, **owned: list[str]) -> ClusterView:
    """A view of brokers and what each serves."""
    reports = [
        Report(
            name,
            NOW_MS,
            {bundle: BundleStats(msg_rate_in=10.0, msg_throughput_in=1e6) for bundle in bundles},
            offset=at,
        )
        for at, (name, bundles) in enumerate(owned.items())
    ]
    shard, _ = fold(Shard.empty(), batch_of(reports), NOW_MS, config.fold)
    return view_of("c", [shard], NOW_MS, config.balancer.weights)


def order(kind: str, **fields: Any) -> Received:
    return Received.from_command(COMMANDS[kind](id="x", **fields), NOW_MS)


def moving(destination: str, issued_ms: int) -> Pending:
    """The decision that the first bundle leaves `a`."""
    return Pending(
        "c:1:0", "unload", BUNDLES[0], "a", destination, issued_ms, issued_ms + 60_000, 2
    )


def begun(
    memory: Memory | None = None,
    inbox: Inbox | None = None,
    config: ClusterConfig = CONFIG,
    **owned: list[str],
) -> RoundState:
    """A round after its first two stages."""
    inbox = inbox or Inbox()
    return settle(observe(seen(config, **owned), memory or Memory(), inbox, config), inbox.acks)


def test_commands_about_settings_are_done_first_and_the_brokers_are_weighed_by_them() -> None:
    view = seen(a=BUNDLES)
    command = order("set-config", values={"cpu_weight": 0.5, "heartbeat_timeout_ms": 7_000})
    begin = apply_setting_commands(SETTINGS, Memory(), Inbox(commands=(command,)))
    observed = observe(view, begin.memory, begin.inbox, begin.config)
    assert [one.outcome for one in observed.responder.answers] == ["done"]
    assert observed.config.balancer.heartbeat_timeout_ms == 7_000
    assert observed.known.brokers.weights["cpu"] == 0.5
    assert view.brokers.weights["cpu"] == 1.0, "the view that came in is as it was"
    assert dict(observed.memory.operator_state.settings) == {
        "cpu_weight": 0.5,
        "heartbeat_timeout_ms": 7_000,
    }


def test_observe_does_what_stays_in_force_and_leaves_moves_for_later() -> None:
    commands = replace_ids(order("pause-cluster"), order("unload", namespace="t/n"))
    observed = observe(seen(a=BUNDLES), Memory(), Inbox(commands=commands), CONFIG)
    assert observed.responder.operator_state.paused
    assert [received.record["kind"] for received in observed.commands] == ["unload"]


def replace_ids(*received: Received) -> tuple[Received, ...]:
    return tuple(
        replace(one, record={**one.record, "id": f"c{at}"}) for at, one in enumerate(received)
    )


def test_settle_ends_what_reports_confirm_and_carries_out_what_is_still_under_way() -> None:
    memory = Memory(seq=1, pending=(moving("b", NOW_MS - 1_000),), published_to=None)
    done = begun(memory, a=BUNDLES[1:], b=[BUNDLES[0]])
    assert [outcome.outcome for _, outcome in done.inputs.settled.ended] == ["confirmed"]
    under_way = begun(memory, a=BUNDLES, b=[])
    row = int(under_way.view.bundles.rows_of([BUNDLES[0]])[0])
    owners = [
        view.brokers.names[int(view.bundles.owner[row])]
        for view in (under_way.inputs.reported, under_way.view)
    ]
    assert owners == ["a", "b"]
    assert under_way.memory.pending == memory.pending


def test_answer_decides_an_order_and_says_so() -> None:
    state = begun(a=BUNDLES, b=[])
    decide_commands(
        state, [order("unload", namespace="t/n", bundle="0x00000000_0x10000000", destination="b")]
    )
    assert [
        (decision.kind, decision.bundle, decision.destination) for decision in state.decisions
    ] == [("unload", BUNDLES[0], "b")]
    assert [one.outcome for one in state.responder.answers] == ["accepted"]


def test_nothing_is_decided_of_its_own_accord_while_a_new_cluster_waits_for_brokers() -> None:
    config = cluster_config({"dry_run": False, "min_brokers": 3})
    state = begun(config=config, a=BUNDLES, b=[])
    assert not may_decide(state)
    assert [refusal.rule for refusal in state.refusals] == ["min_brokers"]


def test_nothing_is_decided_of_its_own_accord_while_the_view_lacks_brokers_that_report() -> None:
    state = begun(a=BUNDLES, b=[])
    assert may_decide(state, ("a", "b")), "both have reported before"
    assert not may_decide(state, ("a", "c"))
    assert [(found.rule, found.subjects) for found in state.refusals] == [
        ("reports_awaited", ("c",))
    ]


def test_place_gives_released_bundles_the_owner_that_their_unload_named() -> None:
    memory = Memory(seq=1, pending=(moving("b", NOW_MS - 1_000),), published_to=None)
    first, _ = fold(
        Shard.empty(),
        batch_of(
            [
                Report("a", NOW_MS - 5_000, dict.fromkeys(BUNDLES, BundleStats())),
                Report("b", NOW_MS - 5_000, {}, offset=1),
            ]
        ),
        NOW_MS - 5_000,
        CONFIG.fold,
    )
    later, _ = fold(
        first,
        batch_of([Report("a", NOW_MS, dict.fromkeys(BUNDLES[1:], BundleStats()), offset=2)]),
        NOW_MS,
        CONFIG.fold,
    )
    state = settle(
        observe(view_of("c", [later], NOW_MS, CONFIG.balancer.weights), memory, Inbox(), CONFIG), ()
    )
    assert state.reserved == {BUNDLES[0]: "b"}
    place(state)
    assert [
        (decision.kind, decision.bundle, decision.destination, decision.rule)
        for decision in state.decisions
    ] == [("assign", BUNDLES[0], "b", "released")]


def test_balance_does_nothing_while_it_is_switched_off() -> None:
    off = begun(
        config=cluster_config({"dry_run": False, "enabled": False, "shedding_interval_ms": 0}),
        a=BUNDLES,
        b=[],
    )
    balance(off, ())
    on = begun(a=BUNDLES, b=[])
    balance(on, ())
    assert (off.shed, on.shed) == (False, True)


def test_an_exchange_of_which_a_rule_keeps_one_half_is_not_made() -> None:
    red, free, blue = "t/red/0x00000000_0xffffffff", BUNDLES[0], "t/blue/0x00000000_0xffffffff"

    def exchange(context: ShedContext[Any, Any]) -> tuple[Unloads, Any]:
        names = context.view.bundles.names.to_pylist()
        there, back = (
            Unload(
                names.index(one), at, "Overloaded", Decides.ABOVE_EVEN, 1.0, 1.0, None, None, 1 - at
            )
            for at, one in ((0, red), (1, free))
        )
        return Unloads((structs.replace(there, with_next=True), back)), context.memory

    swaps = replace(
        CONFIG.shedder, function=exchange, traits=Traits(manager="any", chooses_destination=True)
    )
    apart = {"t/red": "apart", "t/blue": "apart"}
    for groups, made in ((dict[str, str](), [red, free]), (apart, [])):
        state = begun(
            Memory(operator_state=OperatorState(anti_affinity=groups)),
            config=replace(CONFIG, shedder=swaps),
            a=[red],
            b=[free, blue],
            c=[],
        )
        unload_from_hot(state)
        assert [decision.bundle for decision in state.decisions] == made
        assert [(refusal.rule, refusal.broker) for refusal in state.refusals] == (
            [] if made else [("anti_affinity", "a")]
        )


def test_a_bundle_stays_for_its_dwell_time_with_a_shedder_that_passes_over_the_grace_period() -> (
    None
):
    config = cluster_config({**SETTINGS, "min_dwell_ms": 1})
    asked = list[ShedContext[Any, Any]]()

    def ask(context: ShedContext[Any, Any]) -> tuple[Unloads, Any]:
        asked.append(context)
        return Unloads(()), context.memory

    for settings in (CONFIG, config):
        unload_from_hot(
            begun(
                config=replace(settings, shedder=replace(settings.shedder, function=ask)),
                a=BUNDLES,
                b=[],
            )
        )
    assert [one.movable.any() for one in asked] == [True, False], "they have just come"


@pytest.mark.parametrize("strategy", ["ThresholdShedder", "OverloadShedder"])
def test_a_pass_asks_which_bundles_may_move_once_a_broker_is_hot(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster_config({**SETTINGS, "shedding_strategy": strategy, "min_throughput_mb": 0.0})
    asked = list[bool]()

    def ask(state: RoundState, held: Bools) -> Bools:
        asked.append(True)
        return movable_bundles(state, held)

    monkeypatch.setattr(shed, "movable_bundles", ask)
    for usage, times in ((40.0, 0), (95.0, 1)):
        view = seen(config, a=BUNDLES[:2], b=BUNDLES[2:])
        used = np.array([usage / 100, 0.4])
        view = replace(view, brokers=replace(view.brokers, usage=used))
        state = settle(observe(view, Memory(), Inbox(), config), ())
        unload_from_hot(state)
        assert len(asked) == times and bool(state.decisions) == bool(times)


def test_record_remembers_what_was_decided_and_writes_its_ownership_records() -> None:
    memory = Memory(seq=4, published_to=None)
    state = begun(memory, a=BUNDLES, b=[])
    decide_commands(
        state, [order("unload", namespace="t/n", bundle="0x00000000_0x10000000", destination="b")]
    )
    made = record(state, memory)
    assert made.seq == made.memory.seq == 5
    assert [(one.bundle, one.destination) for one in made.memory.pending] == [(BUNDLES[0], "b")]
    assert [(one.bundle, one.state) for one in made.ownership if one.decision_id] == [
        (BUNDLES[0], "Releasing")
    ]


def test_a_settings_command_counts_in_the_very_round_that_takes_it() -> None:
    inbox = Inbox(commands=(order("dry-run", on=True),))
    made = decide_with(seen(a=BUNDLES, b=[]), Memory(), inbox, SETTINGS)
    assert [result.outcome for result in made.results] == ["done"]
    assert made.memory.pending == () and made.ownership == ()
