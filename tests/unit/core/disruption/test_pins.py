"""Pinned bundles: what balancing leaves where it is, until when, and what moves it all the same."""

from typing import Any

from lb_stream.contracts.commands import COMMANDS, MOST_PINS
from lb_stream.core.commands.responder import Received
from tests.support.budget_cluster import HEAVY, LIGHT, NOW_MS, Cluster

MINUTE_MS = 60_000


def order(cluster: Cluster, kind: str, command_id: str = "pin", **fields: Any) -> Received:
    return Received.from_command(
        COMMANDS[kind](id=command_id, by="User:ann", **fields), at_ms=cluster.now_ms
    )


def shed(cluster: Cluster, *commands: Received) -> set[str]:
    """The bundles that a round moves."""
    return {decision.bundle for decision in cluster.round(commands=commands).decisions}


def test_what_is_pinned_is_not_shed_until_its_time_is_over() -> None:
    cluster = Cluster()
    made = cluster.round(commands=(order(cluster, "pin-bundles", bundles=HEAVY, for_ms=MINUTE_MS),))
    assert made.results[0].outcome == "done" and "for 1 min" in made.results[0].text
    assert {decision.bundle for decision in made.decisions} <= set(LIGHT) and made.decisions
    refused = next(refusal for refusal in made.refusals if refusal.rule == "pinned")
    assert (refused.count, refused.until_ms) == (len(HEAVY), cluster.now_ms + MINUTE_MS)
    assert not shed(cluster) & set(HEAVY)
    later = cluster.round(after_ms=MINUTE_MS)
    assert {decision.bundle for decision in later.decisions} & set(HEAVY)
    assert later.memory.operator_state.pins == {} and "pins" not in later.memory.to_json()


def test_a_pin_is_taken_back_by_a_pin_of_no_time() -> None:
    cluster = Cluster()
    assert not shed(cluster, order(cluster, "pin-bundles", bundles=HEAVY, for_ms=MINUTE_MS)) & set(
        HEAVY
    )
    made = cluster.round(
        commands=(order(cluster, "pin-bundles", "free", bundles=[*HEAVY, LIGHT[0]], for_ms=0),)
    )
    assert (
        made.results[0].text.startswith("no longer pinned: t/heavy")
        and made.memory.operator_state.pins == {}
    )


def test_an_operators_own_order_moves_what_is_pinned() -> None:
    cluster = Cluster(shedding_enabled=False)
    cluster.round(commands=(order(cluster, "pin-bundles", bundles=HEAVY[:1], for_ms=MINUTE_MS),))
    namespace, _, bundle = HEAVY[0].rpartition("/")
    assert shed(
        cluster, order(cluster, "unload", "go", namespace=namespace, bundle=bundle, destination="b")
    ) == {HEAVY[0]}


def test_an_unknown_bundle_and_too_many_are_refused_and_change_nothing() -> None:
    cluster = Cluster()
    made = cluster.round(
        commands=(order(cluster, "pin-bundles", bundles=[HEAVY[0], "t/n/0x0_0x1"], for_ms=1),)
    )
    assert (made.results[0].rule, made.memory.operator_state.pins) == ("unknown_bundle", {})
    cluster.owned["b"] = [
        f"t/many/0x{number:08x}_0x{number + 1:08x}" for number in range(MOST_PINS)
    ]
    cluster.round(
        commands=(
            order(
                cluster, "pin-bundles", "many", bundles=cluster.owned["b"], for_ms=10 * MINUTE_MS
            ),
        )
    )
    made = cluster.round(
        commands=(order(cluster, "pin-bundles", "more", bundles=HEAVY[:1], for_ms=10 * MINUTE_MS),)
    )
    assert (
        made.results[0].rule == "too_many_pins"
        and len(made.memory.operator_state.pins) == MOST_PINS
    )
    assert cluster.now_ms > NOW_MS
