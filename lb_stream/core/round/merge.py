"""Merges: the look for bundles that could be one, which decides nothing, and what operators have
ordered.

Nothing is merged otherwise. See docs/splitting.md "Merge advice" and docs/commands.md "Merges".
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
    """Look when that is due and a report has come: most rounds only find that it isn't."""
    config, memory = state.config.splitting, state.memory
    if not config.merge_advice_enabled or not _is_due(state, config.merge_advice_after_ms // LOOKS):
        return
    least = {
        name: cut for name, cut in memory.operator_state.namespaces.items() if isinstance(cut, int)
    }
    free = state.free_bundles() & ~state.overlapped.reshaping
    state.merges = find_merge_advice(state.view, free, least, memory.mergeable, config)


def _is_due(state: RoundState, interval_ms: int) -> bool:
    memory = state.memory
    last_ms = memory.first_ms if memory.merges_sought_ms is None else memory.merges_sought_ms
    return (
        last_ms is not None
        and state.now_ms - last_ms >= interval_ms
        and bool(state.view.brokers.sampled.any())
    )


def merges_after(state: RoundState) -> MergeLook:
    """What is to be remembered and told of merges after this round, looked or not."""
    if state.merges is not None:
        return state.merges
    if not state.config.splitting.merge_advice_enabled:
        return MergeLook(advice=withdraw_advice(state.memory.mergeable, {}))
    return MergeLook(state.memory.merges_sought_ms, state.memory.mergeable)


def advised_pairs(state: RoundState, namespace: str, most: int) -> list[tuple[int, int]]:
    """The rows of the pairs of a namespace that people are advised to merge, in the order of their
    ranges."""
    advised = sorted(
        (first, one.neighbour) for first, one in state.memory.mergeable.items() if one.advised_ms
    )
    names = [name for pair in advised if namespace_of(pair[0]) == namespace for name in pair][
        : 2 * most
    ]
    rows = state.view.bundles.rows_of(names).reshape(-1, 2)
    return [(low, high) for low, high in rows.tolist() if low >= 0 and high >= 0]


def explain_overlap(state: RoundState, row: int) -> BundleAnswer:
    """Why a bundle is left alone whose range another served one has, too: which one, at whom."""
    bundles, brokers = state.inputs.reported.bundles, state.view.brokers.names
    beside = state.overlapped.beside[row]
    text = (
        f"{bundles.name(row)} overlaps {bundles.name(beside)}, which "
        f"{brokers[int(bundles.owner[beside])]} reports:"
        " one of them was split or merged; ask again when reports name only what there is now"
    )
    return BundleAnswer("refused", text, Refuses.OVERLAPS.name)


def merge(state: RoundState, low: int, high: int) -> BundleAnswer:
    """Have their owner make one bundle of two, or say why that can't be.

    Nothing is under way with either.

    Policies are a namespace's: those of both are the same.
    """
    # Whether the two are neighbours, and free.
    bundles, brokers = state.view.bundles, state.view.brokers.names
    first, second = bundles.name(low), bundles.name(high)
    (namespace, lower, end), (_, begin, upper) = parse_bundle(first), parse_bundle(second)
    if bundles.system[low]:
        return BundleAnswer(
            "refused",
            f"{first} is a heartbeat or SLA-monitor bundle: it belongs to its broker",
            "system_namespace",
        )
    if end != begin:
        return BundleAnswer(
            "refused", f"{second} does not begin where {first} ends", "not_adjacent"
        )
    for name, row in ((first, low), (second, high)):
        if bundles.owner[row] < 0:
            return BundleAnswer(
                "refused", f"nobody owns {name}: merge it when it is served", "unowned"
            )
        if state.overlapped.reshaping[row]:
            return explain_overlap(state, row)
    # Whether one broker has both, and can merge them.
    owner, other = brokers[int(bundles.owner[low])], brokers[int(bundles.owner[high])]
    if owner != other:
        return BundleAnswer(
            "refused",
            f"{owner} has {first} and {other} has {second}: move one of them first",
            "different_owners",
        )
    if owner not in state.memory.merging:
        text = (
            f"{owner} can't merge bundles: its agent's heartbeats don't say that it can (Pulsar "
            "has no merge)"
        )
        return BundleAnswer("refused", text, "cannot_merge")
    merged = bundle_name(namespace, lower, upper)
    state.ledger.version(second, high)  # it will be asked to write that bundle's record, too
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
