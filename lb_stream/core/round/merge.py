"""Merges that operators command, and the advice on bundles that could be merged.

Nothing else merges bundles. See docs/splitting.md "Merge advice" and docs/commands.md "Merges".
"""

from __future__ import annotations

from lb_stream.contracts.decisions import Explain
from lb_stream.core.commands.responder import BundleAnswer
from lb_stream.core.model.names import bundle_name, namespace_of, parse_bundle
from lb_stream.core.model.rules import Decides, Refuses
from lb_stream.core.round.state import Division, RoundState
from lb_stream.core.splitting.manual import REASON
from lb_stream.core.splitting.merging import LOOKS, MergeLook, find_merge_advice, withdraw_advice

STRATEGY = "operator"


def advise_merges(state: RoundState) -> None:
    """Look for bundles that could be merged, if that is due and this batch has new samples."""
    config, memory = state.config.splitting, state.memory
    if not config.merge_advice_enabled or not _is_due(state, config.merge_advice_after_ms // LOOKS):
        return
    least = {
        name: cut for name, cut in memory.operator_state.namespaces.items() if isinstance(cut, int)
    }
    free = state.free_bundles() & ~state.overlapped.reshaping
    state.merges = find_merge_advice(state.view, free, least, memory.mergeable, config)


def _is_due(state: RoundState, interval_ms: int) -> bool:
    """Whether the interval has passed since the last look, and this batch has new samples."""
    memory = state.memory
    last_ms = memory.first_ms if memory.merges_sought_ms is None else memory.merges_sought_ms
    return (
        last_ms is not None
        and state.now_ms - last_ms >= interval_ms
        and bool(state.view.brokers.sampled.any())
    )


def find_merges_after(state: RoundState) -> MergeLook:
    """Return the merges to remember and to advise: of this round's look, else of the last one."""
    if state.merges is not None:
        return state.merges
    if not state.config.splitting.merge_advice_enabled:
        return MergeLook(advice=withdraw_advice(state.memory.mergeable, {}))
    return MergeLook(state.memory.merges_sought_ms, state.memory.mergeable)


def advised_pairs(state: RoundState, namespace: str, most: int) -> list[tuple[int, int]]:
    """Return the rows of a namespace's pairs with merge advice, sorted by range, at most `most`."""
    advised = sorted(
        (bundle, mergeable.neighbour)
        for bundle, mergeable in state.memory.mergeable.items()
        if mergeable.advised_ms and namespace_of(bundle) == namespace
    )
    names = [name for pair in advised[:most] for name in pair]
    rows = state.view.bundles.rows_of(names).reshape(-1, 2)
    return [(low, high) for low, high in rows.tolist() if low >= 0 and high >= 0]


def explain_overlap(state: RoundState, row: int) -> BundleAnswer:
    """Return the refusal of a bundle that overlaps another, with the other's name and broker."""
    bundles, brokers = state.inputs.reported.bundles, state.view.brokers.names
    beside = state.overlapped.beside[row]
    text = (
        f"{bundles.name(row)} overlaps {bundles.name(beside)}, which "
        f"{brokers[int(bundles.owner[beside])]} reports: "
        "one of them was split or merged; try again once reports name only bundles that exist"
    )
    return BundleAnswer("refused", text, Refuses.OVERLAPS.name)


def refuse_system_bundle(name: str) -> BundleAnswer:
    """Return the refusal of a command about a system bundle."""
    text = f"{name} is a heartbeat or SLA-monitor bundle: it belongs to its broker"
    return BundleAnswer("refused", text, "system_namespace")


def merge(state: RoundState, low: int, high: int) -> BundleAnswer:
    """Decide that the owner of two bundles merges them, and return the answer.

    `low`, `high`: rows of the bundles, about which no decision is pending. Policies are not
    checked, as both bundles have those of their namespace.
    """
    # Both are served, and neighbours.
    bundles, brokers = state.view.bundles, state.view.brokers.names
    first, second = bundles.name(low), bundles.name(high)
    (namespace, lower, end), (_, begin, upper) = parse_bundle(first), parse_bundle(second)
    if bundles.system[low]:
        return refuse_system_bundle(first)
    if end != begin:
        return BundleAnswer(
            "refused", f"{second} does not begin where {first} ends", "not_adjacent"
        )
    for name, row in ((first, low), (second, high)):
        if bundles.owner[row] < 0:
            return BundleAnswer(
                "refused", f"{name} is unassigned: merge it when it is served", "unowned"
            )
        if state.overlapped.reshaping[row]:
            return explain_overlap(state, row)
    # One broker has both, and can merge them.
    owner, other = brokers[int(bundles.owner[low])], brokers[int(bundles.owner[high])]
    if owner != other:
        return BundleAnswer(
            "refused",
            f"{owner} has {first} and {other} has {second}: move one of them first",
            "different_owners",
        )
    if owner not in state.memory.merging:
        heartbeats = "its agent's heartbeats don't offer it (Pulsar has no merge)"
        text = f"{owner} can't merge bundles: {heartbeats}"
        return BundleAnswer("refused", text, "cannot_merge")
    # The decision, and the ownership records of both bundles.
    merged = bundle_name(namespace, lower, upper)
    state.ledger.version(second, high)
    division = Division((merged,), neighbour=second)
    state.decide(
        "merge",
        low,
        owner,
        None,
        reason=REASON,
        rule=Decides.MERGE_COMMAND,
        strategy=STRATEGY,
        explain=Explain(unit=""),
        division=division,
    )
    return BundleAnswer(
        "decided", f"{first} and {second} become {merged.rpartition('/')[2]} at {owner}"
    )
