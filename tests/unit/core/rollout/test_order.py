"""Which broker of a rollout is next, and what keeps one from being begun."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lb_stream.core.model.policies import IsolationPolicy, Policies
from lb_stream.core.model.rollout import BrokerProgress, RolloutOrder, RolloutProgress
from lb_stream.core.model.view import Bools
from lb_stream.core.rollout.loads import Loads
from lb_stream.core.rollout.order import Queue
from tests.unit.core.rollout.clusters import a_cluster

ORDER = RolloutOrder("r", "anna", 0, ("a", "b", "c", "d"), wanted=4, at_most=2)
WAITING = RolloutProgress("r", 0, dict.fromkeys(ORDER.brokers, BrokerProgress()))
SMALL = {"a": [0.05] * 6, "b": [0.1, 0.1, 0.05, 0.05], "c": [0.04] * 7, "d": [0.1] * 3}


def a_queue(loads: Loads, order: RolloutOrder = ORDER, **phases: str) -> Queue:
    """Return the queue; `phases`: of brokers that don't wait."""
    brokers = {
        name: replace(broker, phase=phases.get(name, "waiting"))
        for name, broker in WAITING.brokers.items()
    }
    active: Bools = loads.view.active.copy()
    for name, phase in phases.items():
        active[ord(name) - ord("a")] = phase == "done"
    return Queue(loads, order, replace(WAITING, brokers=brokers), active, True)


def test_the_first_broker_has_the_fewest_bundles_as_all_of_them_move_again() -> None:
    queue = a_queue(a_cluster(SMALL))
    assert queue.sort() == ["d", "b", "a", "c"]
    turn, refusals = queue.next(queue.sort())
    assert turn is not None and not refusals
    assert turn.absence.broker == "d"
    assert turn.absence.usage == pytest.approx(1.18 / 3)


def test_a_later_one_fits_into_brokers_that_stay() -> None:
    loads = a_cluster({"a": [0.4, 0.2], "b": [0.2, 0.2], "c": [0.5, 0.4], "d": []})
    assert a_queue(loads, d="done").sort()[-1] == "c"


def test_the_canary_comes_first_and_an_order_that_is_given_is_kept() -> None:
    loads = a_cluster(SMALL)
    assert a_queue(loads, replace(ORDER, canary="c")).sort()[0] == "c"
    given = a_queue(loads, replace(ORDER, in_order=True))
    assert given.sort() == list(ORDER.brokers)


def test_a_broker_that_a_command_names_comes_before_all_others_and_only_it_is_tried() -> None:
    loads = a_cluster(SMALL)
    for order in (ORDER, replace(ORDER, in_order=True), replace(ORDER, canary="c")):
        queue = replace(a_queue(loads, order), called=("c", "x"))
        assert queue.sort()[0] == "c"
        turn, refusals = queue.next(queue.sort())
        assert turn is not None and turn.absence.broker == "c" and not refusals
    domains = {"a": "east", "b": "east", "c": "west", "d": "west"}
    loads = a_cluster(SMALL, policies=Policies(failure_domains=domains))
    queue = replace(a_queue(loads, b="down"), called=("a",))
    turn, refusals = queue.next(queue.sort())
    assert turn is None and [refused.broker for refused in refusals] == ["a"]
    both = replace(queue, called=("a", "d"))
    turn, refusals = both.next(both.sort())
    assert turn is not None and turn.absence.broker == "d"


def test_a_broker_is_not_begun_if_the_others_can_not_carry_its_load() -> None:
    loads = a_cluster({name: [0.5, 0.4] for name in "abcd"})
    turn, refusals = a_queue(loads).next(["a"])
    assert turn is None
    (refused,) = refusals
    assert (refused.rule, refused.broker, refused.subjects) == ("rollout_too_full", "a", ("cpu",))
    assert refused.greatest == pytest.approx(1.2)
    full = a_queue(loads, replace(ORDER, even_if_full=True))
    assert full.next(["a"])[0] is not None


def test_the_last_broker_of_a_failure_domain_waits_and_another_is_begun() -> None:
    domains = {"a": "east", "b": "east", "c": "west", "d": "west"}
    loads = a_cluster(SMALL, policies=Policies(failure_domains=domains))
    turn, refusals = a_queue(loads, b="down").next(["a", "c"])
    assert [refused.rule for refused in refusals] == ["rollout_domain"]
    assert turn is not None and turn.absence.broker == "c"


def test_no_other_broker_is_begun_while_the_canary_may_not_be() -> None:
    domains = {"a": "east", "b": "east", "c": "west", "d": "west"}
    loads = a_cluster(SMALL, policies=Policies(failure_domains=domains))
    queue = a_queue(loads, replace(ORDER, canary="a"), b="down")
    turn, refusals = queue.next(queue.sort())
    assert turn is None
    assert [(refused.rule, refused.broker) for refused in refusals] == [("rollout_domain", "a")]
    after = a_queue(loads, replace(ORDER, canary="a"), a="done")
    assert after.next(after.sort())[0] is not None


def test_a_broker_that_is_alone_in_its_failure_domain_is_begun() -> None:
    domains = {"a": "east", "b": "west", "c": "west", "d": "west"}
    loads = a_cluster(SMALL, policies=Policies(failure_domains=domains))
    assert a_queue(loads).next(["a"])[0] is not None


@pytest.mark.parametrize(
    ("policy", "away", "begins"),
    [
        pytest.param(IsolationPolicy(("t/n",), ("a", "b"), (), 2), {}, True, id="the first"),
        pytest.param(
            IsolationPolicy(("t/n",), ("a", "b", "c"), (), 2), {"b": "down"}, False, id="too few"
        ),
        pytest.param(
            IsolationPolicy(("t/n",), ("a", "b", "c"), (), 1), {"b": "down"}, True, id="enough"
        ),
        pytest.param(IsolationPolicy(("t/n",), ("a",), (), 0), {}, False, id="none is left"),
        pytest.param(IsolationPolicy(("t/n",), ("a",), ("b",), 1), {}, True, id="a secondary"),
    ],
)
def test_isolation_policies_keep_their_minimum(
    policy: IsolationPolicy, away: dict[str, str], begins: bool
) -> None:
    loads = a_cluster(SMALL, policies=Policies(isolation=(policy,)))
    turn, refusals = a_queue(loads, **away).next(["a"])
    assert (turn is not None) == begins
    assert [refused.rule for refused in refusals] == ([] if begins else ["rollout_isolation"])


def test_a_broker_with_a_bundle_that_would_fill_another_one_is_not_the_first() -> None:
    heavy = {"a": [0.3, 0.05], "b": [0.1] * 3, "c": [0.1, 0.1, 0.05, 0.05], "d": [0.05] * 6}
    assert a_queue(a_cluster(heavy)).sort() == ["b", "c", "d", "a"]
