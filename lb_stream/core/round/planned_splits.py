"""The splits that a shedder plans: which it may propose, and the decisions about them.

See docs/splitting.md "Splits of a plan".
"""

from __future__ import annotations

import numpy as np

from lb_stream.contracts.decisions import Explain
from lb_stream.core.model.names import begins_with_another, namespace_of, parse_bundle
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import Bools, ClusterView
from lb_stream.core.round.state import Division, RoundState
from lb_stream.core.shedding.base import PlanExpectation, SplitProposal, Splittable
from lb_stream.core.splitting import SplitRejected, plan
from lb_stream.core.splitting.config import MIB
from lb_stream.core.splitting.extensible import blocks_split
from lb_stream.core.splitting.manual import FLOW, Rejected, find_algorithm


def find_splittable(state: RoundState) -> Splittable | None:
    """Return the splits that the shedder may propose in this round; None: it may propose none."""
    config = state.config.splitting
    if not config.split_enabled or not state.config.plans_splits:
        return None
    splitting = _splitting(state)
    extensible = state.config.balancer.load_manager == "extensible"
    several = config.split_at_several_boundaries or not extensible

    def room(bundle: int) -> int:
        namespace = namespace_of(state.view.bundles.name(bundle))
        count = count_bundles(state.view, namespace)
        count += sum(namespace_of(name) == namespace for name in splitting)
        return config.namespace_max_bundles - count

    return Splittable(
        bundles=may_split(state) & ~state.overlapped.reshaping,
        left=max(config.max_splits_in_flight - len(splitting), 0),
        room=room,
        several=several,
        algorithms=frozenset(config.supported_split_algorithms),
        flow_limits=_find_flow_limits(state) if several else None,
        waiting=frozenset(
            proposal.bundle for proposal in state.responder.book.waiting if proposal.kind == "split"
        ),
    )


def _find_flow_limits(state: RoundState) -> tuple[float, float] | None:
    """Return the limits by which owners cut by flow_or_qps_equally_divide; None: they don't.

    Before Pulsar 5.0 (`split_options`) they do only where it is the default algorithm.
    """
    config = state.config.splitting
    found = find_algorithm(FLOW, config, state.config.split_algorithms)
    if FLOW not in config.supported_split_algorithms or isinstance(found, Rejected):
        return None
    return config.bundle_max_msgs_per_s, config.bundle_max_bandwidth_mb * MIB


def split_as_planned(state: RoundState) -> None:
    """Decide the splits that the shedder has proposed in this round."""
    facts = state.proposed.plan
    for proposal in state.proposed.splits:
        refused = _decide(state, proposal, None if facts is None else facts.expected)
        if refused is not None:
            state.refusals.append(refused)


def _decide(
    state: RoundState, proposal: SplitProposal, expected: PlanExpectation | None
) -> Refusal | None:
    """Decide one split, or return the refusal."""
    view, config = state.view, state.config
    name, source = view.bundles.name(proposal.bundle), view.brokers.names[proposal.source]
    parent = parse_bundle(name)
    if config.balancer.load_manager == "extensible" and any(
        blocks_split(parent, parse_bundle(other), config.splitting) for other in _splitting(state)
    ):
        return refusal(Refuses.NEIGHBOUR_IS_SPLITTING, source, [name])
    algorithm = config.split_algorithms.named(proposal.algorithm)
    topics = int(view.bundles.topics[proposal.bundle])
    found = plan(config.split_algorithms, algorithm, parent, max(topics, 2), proposal.boundaries)
    if isinstance(found, SplitRejected):
        return refusal(found.rule, source, [name])
    explain = Explain(
        saw=proposal.saw,
        limit=proposal.limit,
        average=proposal.average,
        unit=proposal.rule.unit,
    )
    state.decide(
        "split",
        proposal.bundle,
        source,
        None,
        reason=proposal.reason,
        rule=proposal.rule,
        strategy=config.shedder.name,
        explain=with_expectation(explain, expected),
        division=Division(found.children, found.boundaries, algorithm.name, False),
    )
    return None


def with_expectation(explain: Explain, expected: PlanExpectation | None) -> Explain:
    """Return an explanation with what the decision's plan with splits is expected to reach."""
    if expected is None:
        return explain
    figures = {
        "plan": expected.plan,
        "plan_max_before": expected.before,
        "plan_max_unsplit": expected.unsplit,
        "plan_max_split": expected.split,
        "plan_max_after": expected.after,
    }
    return explain.model_copy(update=figures)


def may_split(state: RoundState) -> Bools:
    """Return the free bundles whose split no operator has rejected."""
    free = state.free_bundles()
    rows = state.view.bundles.rows_of(state.memory.operator_state.rejected(moves=False))
    free[rows[rows >= 0]] = False
    return free


def count_bundles(view: ClusterView, namespace: str) -> int:
    """Return the number of a namespace's bundles, without those that were split."""
    mine = view.bundles.rows_of_namespace(namespace)
    owned = (view.bundles.owner[mine] >= 0) | view.bundles.in_flight[mine]
    return int(np.count_nonzero(owned | ~begins_with_another(view.bundles.names[mine])))


def _splitting(state: RoundState) -> list[str]:
    """Return the bundles whose split is pending or new in this round."""
    pending = [pending.bundle for pending in state.memory.pending if pending.kind == "split"]
    return pending + [made.bundle for made in state.decisions if made.kind == "split"]
