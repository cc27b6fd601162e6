"""Mode approve: what waits and what doesn't, what an approval is checked against, what a rejection
is remembered for, and what ends."""

from dataclasses import replace
from typing import Any

import pytest

from lb_stream.contracts.commands import COMMANDS
from lb_stream.core.commands.proposal_book import ProposalNews
from lb_stream.core.commands.responder import CommandAnswer, Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Round
from tests.support import budget_cluster, splitting_cluster
from tests.support.budget_cluster import HEAVY, SETTINGS
from tests.support.splitting_cluster import LARGE, LEFT, PARENT, RIGHT, SMALL
from tests.support.wordings import check_wording

MINUTE_MS = 60_000
EXPIRES_MS = 30 * MINUTE_MS
APPROVING = {name: value for name, value in SETTINGS.items() if name != "dry_run"} | {
    "mode": "approve"
}


class Cluster(budget_cluster.Cluster):
    """Two brokers of which one is hot. What is decided waits for approval."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings, self.sent = {**APPROVING, **settings}, 0

    def say(self, kind: str, by: str = "User:ann", **fields: Any) -> Received:
        self.sent += 1
        return Received.from_command(
            COMMANDS[kind](id=f"c{self.sent}", by=by, **fields), self.now_ms
        )

    def approve(self, *ids: str, after_ms: int = 1_000) -> tuple[Round, CommandAnswer]:
        made = self.round(after_ms, commands=(self.say("approve-proposals", proposals=list(ids)),))
        return made, made.results[0]

    def reject(
        self, *ids: str, for_ms: int = MINUTE_MS, after_ms: int = 1_000
    ) -> tuple[Round, CommandAnswer]:
        order = self.say(
            "reject-proposals", by="User:bob", proposals=list(ids), why="not now", for_ms=for_ms
        )
        made = self.round(after_ms, commands=(order,))
        return made, made.results[0]

    @property
    def waiting(self) -> dict[str, str]:
        """Bundle → the id of the proposal about it."""
        return {proposal.bundle: proposal.proposal_id for proposal in self.memory.proposals}


def news(made: Round) -> list[tuple[str, str]]:
    return [(proposal.proposal.proposal_id, proposal.state) for proposal in made.proposals]


def ended(made: Round) -> list[ProposalNews]:
    return [proposal for proposal in made.proposals if proposal.state != "waiting"]


def test_what_a_shedder_wants_waits_is_told_once_and_is_not_proposed_again() -> None:
    acts = budget_cluster.Cluster()
    wanted = [
        (
            decision.kind,
            decision.bundle,
            decision.source,
            decision.destination,
            decision.rule,
            decision.explain,
        )
        for decision in acts.round().decisions
    ]
    cluster = Cluster()
    first = cluster.round()
    assert first.decisions == ()
    proposed = [proposal.proposal for proposal in first.proposals]
    assert [(one.kind, one.bundle, one.source, one.destination, one.rule) for one in proposed] == [
        one[:5] for one in wanted
    ] and wanted
    assert [one.explain for one in proposed] == [
        one[5].model_dump(mode="json") for one in wanted
    ], "the whole explanation is told"
    assert [one.proposal_id for one in proposed] == [
        f"c:1:p{number}" for number in range(len(wanted))
    ]
    assert {one.expires_ms for one in proposed} == {cluster.now_ms + EXPIRES_MS} and {
        one.bytes_per_s for one in proposed
    } == {9e6}
    for _ in range(3):
        again = cluster.round()
        assert again.decisions == () and again.proposals == (), "their load counts as moved"
    assert list(cluster.waiting) == [one.bundle for one in proposed]


def test_an_approval_becomes_the_decision_that_was_proposed_and_names_who_gave_it() -> None:
    cluster = Cluster()
    cluster.round()
    ids = list(cluster.waiting.values())
    made, answer = cluster.approve(ids[0])
    (decision,) = made.decisions
    assert (decision.bundle, decision.kind, decision.source, decision.destination) == (
        HEAVY[0],
        "unload",
        "a",
        "b",
    )
    assert (decision.approved_by, decision.proposal_id) == ("User:ann", ids[0])
    assert (decision.reason, decision.rule, decision.strategy) == (
        "Overloaded",
        "overloaded",
        "OverloadShedder",
    )
    assert [candidate.broker for candidate in decision.explain.candidates] == ["b"], (
        "the best candidates are kept"
    )
    assert (answer.outcome, answer.decision_ids) == ("accepted", (decision.decision_id,))
    (told,) = ended(made)
    assert (told.state, told.by, told.decision_id) == ("approved", "User:ann", decision.decision_id)
    assert list(cluster.waiting.values()) == ids[1:]
    cluster.obey(made)
    assigned = cluster.round()
    assert [
        (decision.kind, decision.bundle, decision.destination) for decision in assigned.decisions
    ] == [("assign", HEAVY[0], "b")], "nobody is asked"
    cluster.obey(assigned)
    assert [(result.id, result.outcome) for result in cluster.round().results] == [("c1", "done")]
    again, answer = cluster.approve(ids[0])
    assert (again.decisions, answer.outcome, answer.rule) == ((), "refused", "unknown_proposal")


def test_several_are_approved_at_once_and_each_is_answered_for() -> None:
    cluster = Cluster()
    cluster.round()
    ids = list(cluster.waiting.values())
    made, answer = cluster.approve(*ids, "c:9:p9", ids[0])
    assert [decision.proposal_id for decision in made.decisions] == ids
    count = len(ids)
    assert answer.outcome == "accepted"
    assert answer.text.startswith(
        f"{count} of {count + 1} proposals are approved; 1 refused by unknown_proposal"
    )


def test_a_rejection_is_learned_for_as_long_as_it_says_whatever_the_mode() -> None:
    cluster = Cluster()
    cluster.round()
    wanted = cluster.waiting[HEAVY[1]]
    made, answer = cluster.reject(wanted)
    assert answer.outcome == "done" and "rejected for 1 min" in answer.text
    (told,) = ended(made)
    assert (told.state, told.by, told.why, told.until_ms) == (
        "rejected",
        "User:bob",
        "not now",
        cluster.now_ms + MINUTE_MS,
    )
    refused = next(refusal for refusal in made.refusals if refusal.rule == "rejected")
    assert (refused.subjects, refused.until_ms) == ((HEAVY[1],), cluster.now_ms + MINUTE_MS)
    assert HEAVY[1] not in cluster.waiting and HEAVY[1] not in cluster_in_act(cluster)
    cluster.round(MINUTE_MS // 2)
    assert HEAVY[1] not in cluster.waiting
    until = cluster.memory
    assert "rejections" in until.to_json() and Memory.from_json(until.to_json()) == until
    later = cluster.round(MINUTE_MS)
    assert (
        later.memory.operator_state.rejections == () and "rejections" not in later.memory.to_json()
    )
    assert HEAVY[1] in cluster_in_act(cluster)


def cluster_in_act(cluster: Cluster) -> set[str]:
    """What the same cluster would move now if it needed nobody's approval."""
    acts = Cluster(mode="act")
    acts.shard, acts.memory, acts.now_ms, acts.owned = (
        cluster.shard,
        cluster.memory,
        cluster.now_ms,
        cluster.owned,
    )
    return {decision.bundle for decision in acts.round().decisions}


def test_a_rejection_can_be_given_another_time_and_be_taken_back() -> None:
    cluster = Cluster()
    cluster.round()
    wanted = cluster.waiting[HEAVY[0]]
    cluster.reject(wanted)
    cluster.reject(wanted, for_ms=10 * MINUTE_MS)
    assert [rejection.until_ms for rejection in cluster.memory.operator_state.rejections] == [
        cluster.now_ms + 10 * MINUTE_MS
    ]
    _, answer = cluster.reject(wanted, for_ms=0)
    assert cluster.memory.operator_state.rejections == ()
    check_wording(answer.text)
    _, answer = cluster.reject(wanted)
    assert (answer.outcome, answer.rule) == ("refused", "unknown_proposal")
    _, answer = cluster.reject(wanted, for_ms=0)
    assert (answer.outcome, answer.text) == (
        "done",
        f"no rejection holds any more: {wanted}",
    )


def test_the_two_of_an_exchange_are_approved_rejected_and_taken_back_together() -> None:
    def exchanging() -> tuple[Cluster, str, str]:
        cluster = Cluster()
        cluster.round()
        first, second, *_ = cluster.memory.proposals
        pair = replace(first), replace(second, together=first.proposal_id)
        cluster.memory = replace(cluster.memory, proposals=pair)
        return cluster, first.proposal_id, second.proposal_id

    cluster, first, second = exchanging()
    made, answer = cluster.approve(second)
    assert [decision.proposal_id for decision in made.decisions] == [
        first,
        second,
    ] and answer.outcome == "accepted"
    cluster, first, second = exchanging()
    made, _ = cluster.reject(second)
    assert [one.proposal.proposal_id for one in ended(made)] == [first, second]
    assert {rejection.bundle for rejection in cluster.memory.operator_state.rejections} == set(
        HEAVY[:2]
    )
    cluster.reject(second, for_ms=0)
    assert cluster.memory.operator_state.rejections == ()


def test_of_two_approvals_in_one_batch_the_first_counts_and_a_rejection_goes_before_both() -> None:
    cluster = Cluster()
    cluster.round()
    wanted, other, *_ = cluster.waiting.values()
    orders = [
        cluster.say("approve-proposals", by=by, proposals=[wanted, other])
        for by in ("User:ann", "User:eve")
    ]
    rejects = cluster.say(
        "reject-proposals", by="User:bob", proposals=[other], why="no", for_ms=MINUTE_MS
    )
    made = cluster.round(1_000, commands=(*orders, rejects))
    assert [(decision.proposal_id, decision.approved_by) for decision in made.decisions] == [
        (wanted, "User:ann")
    ]
    assert {result.id: (result.outcome, result.rule) for result in made.results} == {
        "c1": ("accepted", "unknown_proposal"),
        "c2": ("refused", "unknown_proposal"),
        "c3": ("done", None),
    }


def test_a_proposal_of_another_cluster_is_unknown() -> None:
    cluster = Cluster()
    cluster.round()
    made, answer = cluster.approve(cluster.waiting[HEAVY[0]].replace("c:", "d:"))
    assert (made.decisions, answer.rule) == ((), "unknown_proposal")


def test_an_unknown_one_among_several_leaves_all_as_they_are() -> None:
    cluster = Cluster()
    cluster.round()
    before = cluster.waiting
    made, answer = cluster.reject(before[HEAVY[0]], "c:7:p0")
    assert (answer.outcome, answer.rule) == (
        "refused",
        "unknown_proposal",
    ) and "c:7:p0 waits" in answer.text
    assert ended(made) == [] and before.items() <= cluster.waiting.items()


def test_a_proposal_expires_once_and_may_then_be_made_anew() -> None:
    cluster = Cluster(shedding_interval_ms=MINUTE_MS)
    cluster.round()
    ids = set(cluster.waiting.values())
    assert ended(cluster.round(EXPIRES_MS - 1)) == []
    made, answer = cluster.approve(*ids, after_ms=1)
    assert {(one.proposal.proposal_id, one.state) for one in ended(made)} == {
        (one, "expired") for one in ids
    }
    assert (made.decisions, answer.rule) == ((), "unknown_proposal")
    assert ended(cluster.round(1)) == []
    later = cluster.round(2 * MINUTE_MS)
    assert ended(later) == []
    assert cluster.waiting and not ids & set(cluster.waiting.values()), "an id is never used twice"


@pytest.mark.parametrize("mode", ["act", "observe"])
def test_another_mode_withdraws_what_waits(mode: str) -> None:
    cluster = Cluster(shedding_interval_ms=MINUTE_MS)
    cluster.round()
    count = len(cluster.waiting)
    made = cluster.round(1_000, commands=(cluster.say("set-config", values={"mode": mode}),))
    assert [(one.state, one.why) for one in ended(made)] == [
        ("withdrawn", f"the cluster's mode is {mode}")
    ] * count
    assert cluster.memory.proposals == () and "proposals" not in cluster.memory.to_json()


def test_the_end_of_a_dry_run_lifts_no_need_for_approval() -> None:
    cluster = Cluster()
    made = cluster.round(commands=(cluster.say("dry-run", on=True),))
    assert (
        made.decisions
        and all(decision.dry_run for decision in made.decisions)
        and made.proposals == ()
    )
    made = cluster.round(commands=(cluster.say("dry-run", on=False),))
    assert made.results[0].text.endswith(
        "moves and splits of balancing wait for approval (mode = approve)"
    )
    assert made.decisions == () and cluster.waiting
    acts = Cluster(mode="observe")
    assert acts.round(commands=(acts.say("dry-run", on=False),)).decisions


def test_the_end_of_a_dry_run_lifts_no_need_for_approval_that_was_commanded_or_came_later() -> None:
    commanded = Cluster(mode="observe")
    for on in (True, False):
        orders = (
            commanded.say("set-config", values={"mode": "approve"})
            if on
            else commanded.say("dry-run", on=on)
        )
        made = commanded.round(commands=(orders, commanded.say("dry-run", on=on)))
        assert [decision.dry_run for decision in made.decisions] == [True] * len(
            made.decisions
        ) and bool(made.decisions) == on
    assert commanded.waiting and commanded.memory.operator_state.settings == {"mode": "approve"}
    earlier = Cluster(mode="observe")
    earlier.round(commands=(earlier.say("dry-run", on=False),))
    assert earlier.memory.operator_state.settings == {"dry_run": False}
    later = Cluster()  # the same cluster; its job was started anew with mode = approve
    later.memory = replace(later.memory, operator_state=earlier.memory.operator_state)
    assert later.round().decisions == () and later.waiting


def test_owners_for_bundles_without_one_drains_and_orders_wait_for_nobody() -> None:
    cluster = Cluster()
    cluster.round()
    namespace, _, bundle = HEAVY[5].rpartition("/")
    cluster.round(commands=(cluster.say("create-namespace", namespace="t/new", bundles=1),))
    made = cluster.round(
        commands=(cluster.say("unload", namespace=namespace, bundle=bundle, destination="b"),)
    )
    assert [(decision.kind, decision.bundle) for decision in made.decisions] == [
        ("unload", HEAVY[5])
    ]
    placed = {one.bundle for one in cluster.memory.pending if one.kind == "assign"}
    assert "t/new/0x00000000_0xffffffff" in placed
    drained = cluster.round(commands=(cluster.say("drain-broker", broker="a"),))
    assert {decision.bundle for decision in drained.decisions} >= set(HEAVY[:5]), (
        "those that waited leave with the others"
    )
    assert {one.state for one in ended(drained)} == {"stale"} and cluster.memory.proposals == ()


def test_a_broker_that_dies_has_its_bundles_placed_at_once_and_its_proposals_are_stale() -> None:
    cluster = Cluster(mass_disappearance_wait_ms=0)
    cluster.round()
    count, owned = len(cluster.waiting), cluster.owned.pop("a")
    made = cluster.round(31_000)
    made = made if made.decisions else cluster.round(1_000)
    assigned = [one for one in made.decisions if one.kind == "assign" and one.destination == "b"]
    assert {decision.bundle for decision in assigned} == set(owned)
    assert {decision.explain.died for decision in assigned} == {"a"}
    assert [one.why for one in ended(made)] == [
        "a doesn't have the bundle any more: no broker has it"
    ] * count


@pytest.mark.parametrize(
    ("kind", "fields", "rule"),
    [
        ("pause-cluster", {}, "paused"),
        ("set-config", {"values": {"freeze": "a release"}}, "frozen"),
        ("pin-bundles", {"bundles": HEAVY[:1], "for_ms": MINUTE_MS}, "pinned"),
        ("set-config", {"values": {"max_moves_in_flight": 0}}, "moves_in_flight"),
        ("set-config", {"values": {"namespace.t/heavy.moves_per_hour": 0}}, "moves_per_hour"),
    ],
)
def test_an_approval_lifts_no_limit_and_what_it_holds_up_waits_on(
    kind: str, fields: dict[str, Any], rule: str
) -> None:
    cluster = Cluster(shedding_interval_ms=60 * MINUTE_MS)
    cluster.round()
    wanted = cluster.waiting[HEAVY[0]]
    cluster.round(1_000, commands=(cluster.say(kind, **fields),))
    made, answer = cluster.approve(wanted)
    assert (made.decisions, answer.outcome, answer.rule) == ((), "refused", rule)
    assert wanted in cluster.waiting.values()


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("set-config", {"values": {"shedding_enabled": False}}, "shedding_enabled is false"),
        (
            "set-config",
            {"values": {"shedding_excluded_namespaces": "t/heavy"}},
            "t/heavy is excluded (shedding_excluded_namespaces)",
        ),
        (
            "set-policies",
            {
                "isolation": [
                    {
                        "name": "i",
                        "namespaces": ["t/heavy"],
                        "primary": ["a"],
                        "secondary": [],
                        "min_available": 0,
                    }
                ]
            },
            "b may not have it (isolation)",
        ),
    ],
)
def test_an_approval_of_what_is_not_allowed_any_more_is_refused_and_ends_it(
    kind: str, fields: dict[str, Any], why: str
) -> None:
    cluster = Cluster(shedding_interval_ms=60 * MINUTE_MS)
    cluster.round()
    wanted = cluster.waiting[HEAVY[0]]
    cluster.round(1_000, commands=(cluster.say(kind, **fields),))
    made, answer = cluster.approve(wanted)
    assert (made.decisions, answer.outcome, answer.rule) == (
        (),
        "refused",
        "stale",
    ) and why in answer.text
    assert (wanted, "stale") in news(made) and wanted not in cluster.waiting.values()


def test_a_destination_that_has_become_hot_is_not_given_more() -> None:
    cluster = Cluster()
    cluster.round()
    wanted = cluster.waiting[HEAVY[0]]
    cluster.usage = {"a": 50.0, "b": 84.0}
    made, answer = cluster.approve(wanted)
    assert (made.decisions, answer.rule) == (
        (),
        "stale",
    ) and "usage with it (shifts_overload)" in answer.text


def test_a_proposal_without_a_destination_is_approved_unless_its_owner_is_the_best_now() -> None:
    cluster = Cluster(modular_preselect_destination=False)
    cluster.round()
    first, second, *_ = cluster.memory.proposals
    assert first.destination is None
    made, _ = cluster.approve(first.proposal_id)
    assert [
        (decision.bundle, decision.destination, decision.proposal_id) for decision in made.decisions
    ] == [(first.bundle, None, first.proposal_id)]
    cluster.usage = {"a": 50.0, "b": 84.0}
    made, answer = cluster.approve(second.proposal_id)
    assert (made.decisions, answer.rule) == (
        (),
        "stale",
    ) and "(placement_keeps_owner)" in answer.text


def test_what_moved_otherwise_meanwhile_is_stale_without_anybody_asking() -> None:
    cluster = Cluster(shedding_interval_ms=60 * MINUTE_MS)
    cluster.round()
    cluster.owned["a"].remove(HEAVY[0])
    cluster.owned["b"].append(HEAVY[0])
    made = cluster.round(1_000)
    assert [(one.proposal.bundle, one.state, one.why) for one in ended(made)] == [
        (HEAVY[0], "stale", "a doesn't have the bundle any more: b has it")
    ]


def test_what_waits_of_brokers_that_the_job_has_not_heard_yet_waits_on() -> None:
    cluster = Cluster(shedding_interval_ms=60 * MINUTE_MS)
    cluster.round()
    before, owned = dict(cluster.waiting), cluster.owned.pop("a")
    cluster.shard = (
        Shard.empty()
    )  # as after the loss of a checkpoint, or when another pipeline has taken the cluster over
    made, answer = cluster.approve(before[HEAVY[0]])
    assert (ended(made), answer.outcome, answer.rule) == (
        [],
        "refused",
        "unknown_bundle",
    ) and cluster.waiting == before
    cluster.owned = {"a": owned}
    cluster.shard = Shard.empty()
    made, answer = cluster.approve(before[HEAVY[0]])
    assert (ended(made), answer.outcome, answer.rule) == (
        [],
        "refused",
        "unknown_bundle",
    ) and cluster.waiting == before
    cluster.owned = {"a": owned, "b": []}
    made, answer = cluster.approve(before[HEAVY[0]])
    assert [decision.bundle for decision in made.decisions if decision.proposal_id] == HEAVY[
        :1
    ] and answer.outcome == "accepted"


def test_a_cluster_that_balances_nothing_by_itself_any_more_withdraws_what_waits() -> None:
    cluster = Cluster()
    cluster.round()
    cluster.settings |= {"enabled": False}
    assert {one.state for one in ended(cluster.round())} == {
        "withdrawn"
    } and cluster.memory.proposals == ()


def test_what_waits_is_bounded_and_the_rest_is_a_refusal() -> None:
    cluster = Cluster(max_proposals=2)
    made = cluster.round()
    assert len(cluster.waiting) == 2
    refused = next(refusal for refusal in made.refusals if refusal.rule == "max_proposals")
    assert (refused.limit, refused.least, refused.subjects) == (2, 2, (HEAVY[2],))


def test_limits_on_moves_count_what_waits() -> None:
    assert len(Cluster(max_moves_in_flight=1).round().proposals) == 1
    budget = Cluster(**{"namespace.t/heavy.moves_per_hour": 1})
    for _ in range(3):
        budget.round()
    assert len([bundle for bundle in budget.waiting if bundle in HEAVY]) == 1


def test_a_rule_approves_within_its_budget_and_the_rest_waits() -> None:
    rule = "kind=move max_mb=20 per_hour=2"
    cluster = Cluster(auto_approve=f"kind=split; {rule}")
    made = cluster.round()
    assert [(decision.bundle, decision.approved_by) for decision in made.decisions] == [
        (name, f"auto_approve: {rule}") for name in HEAVY[:2]
    ]
    assert [(proposal.state, proposal.by) for proposal in made.proposals] == [
        ("approved", f"auto_approve: {rule}")
    ] * 2 + [("waiting", "")]
    assert (
        len(made.decisions[0].explain.candidates) >= 1
        and made.proposals[0].decision_id == made.decisions[0].decision_id
    )
    assert Memory.from_json(cluster.memory.to_json()) == cluster.memory and cluster.memory.approvals
    ended_ms = cluster.now_ms + 60 * MINUTE_MS
    while cluster.now_ms < ended_ms - MINUTE_MS:
        assert all(
            decision.kind == "assign" for decision in cluster.round(5 * MINUTE_MS).decisions
        ), "its budget is spent for an hour"
    cluster.round(3 * MINUTE_MS)
    assert [
        text for text, until_ms, _ in cluster.memory.approvals if until_ms <= ended_ms + MINUTE_MS
    ] == []


def test_what_rules_have_approved_is_remembered_by_the_minute_however_much_it_is() -> None:
    cluster = Cluster(auto_approve="kind=move per_hour=1000")
    for _ in range(4):
        made = cluster.round(1_000)
        cluster.obey(made)
        for decision in made.decisions:
            if decision.kind == "unload":
                cluster.owned["a"].append(decision.bundle)  # it comes back at once
        cluster.memory = replace(cluster.memory, pending=(), recently_unloaded={}, retries={})
    ((rule, _, count),) = cluster.memory.approvals
    assert rule == "kind=move per_hour=1000" and count > len(HEAVY)


def split_order(kind: str, proposal_id: str, at_ms: int, **fields: Any) -> Received:
    return Received.from_command(
        COMMANDS[kind](
            id=f"{kind}:{proposal_id}", by="User:ann", proposals=[proposal_id], **fields
        ),
        at_ms,
    )


def test_a_split_waits_and_is_approved_as_it_was_proposed() -> None:
    cluster, large = splitting_cluster.Cluster(mode="approve"), {"a": {PARENT: LARGE}, "b": {}}
    assert cluster.round(large).decisions == ()
    (proposal,) = cluster.memory.proposals
    assert (proposal.kind, proposal.bundle, proposal.source, proposal.children) == (
        "split",
        PARENT,
        "a",
        (LEFT, RIGHT),
    )
    assert cluster.round(large).proposals == ()
    order = split_order("approve-proposals", proposal.proposal_id, cluster.now_ms)
    (made,) = cluster.round(large, commands=(order,)).decisions
    (acts,) = splitting_cluster.Cluster().round(large).decisions
    same = (
        "kind",
        "bundle",
        "source",
        "children",
        "boundaries",
        "algorithm",
        "unload_children",
        "reason",
        "rule",
        "strategy",
        "explain",
    )
    assert [getattr(made, name) for name in same] == [getattr(acts, name) for name in same]
    children = cluster.round({"a": {LEFT: SMALL, RIGHT: SMALL}, "b": {}})
    assert {decision.rule for decision in children.decisions} <= {"split_child"}, (
        "what follows from it needs no approval of its own"
    )


def test_a_split_that_was_rejected_is_not_proposed_again_and_its_bundle_may_still_move() -> None:
    cluster, large = splitting_cluster.Cluster(mode="approve"), {"a": {PARENT: LARGE}, "b": {}}
    cluster.round(large)
    (proposal,) = cluster.memory.proposals
    order = split_order(
        "reject-proposals",
        proposal.proposal_id,
        cluster.now_ms,
        why="its topics go",
        for_ms=MINUTE_MS,
    )
    assert [proposal.state for proposal in cluster.round(large, commands=(order,)).proposals] == [
        "rejected"
    ]
    assert (
        cluster.round(large).proposals == ()
        and cluster.memory.operator_state.rejected(moves=True) == {}
    )
    assert [proposal.state for proposal in cluster.round(large, wait_ms=MINUTE_MS).proposals] == [
        "waiting"
    ]


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"split_enabled": False}, "stale"),
        ({"namespace_max_bundles": 1}, "stale"),
        ({"max_splits_in_flight": 0}, "splits_in_flight"),
    ],
)
def test_an_approval_of_a_split_is_checked_against_the_limits_of_now(
    settings: dict[str, Any], rule: str
) -> None:
    cluster, large = splitting_cluster.Cluster(mode="approve"), {"a": {PARENT: LARGE}, "b": {}}
    cluster.round(large)
    (proposal,) = cluster.memory.proposals
    cluster.settings |= settings
    made = cluster.round(
        large, commands=(split_order("approve-proposals", proposal.proposal_id, cluster.now_ms),)
    )
    assert (made.decisions, made.results[0].rule) == ((), rule)
    assert bool(cluster.memory.proposals) == (rule != "stale")


def test_an_approved_split_is_not_made_beside_the_children_that_a_broker_has_made_meanwhile() -> (
    None
):
    cluster, large = splitting_cluster.Cluster(mode="approve"), {"a": {PARENT: LARGE}, "b": {}}
    cluster.round(large)
    (proposal,) = cluster.memory.proposals
    order = split_order("approve-proposals", proposal.proposal_id, cluster.now_ms)
    made = cluster.round(
        {"a": {PARENT: LARGE, LEFT: SMALL}, "b": {RIGHT: SMALL}}, commands=(order,)
    )
    assert (made.decisions, made.results[0].rule) == ((), "overlaps")


def test_a_log_without_proposals_is_read_and_written_as_it_was() -> None:
    text = Memory().to_json()
    assert not [name for name in ("proposals", "approvals", "rejections") if name in text]
    assert Memory.from_json(text) == replace(Memory())
