"""The look for bundles that people could merge. It decides nothing. See docs/strategies.md "Merge advice"."""

from __future__ import annotations

from lb_stream.core.round.state import RoundState
from lb_stream.core.splitting.merging import LOOKS, MergeLook, merge_look, withdrawn


def advise_merges(state: RoundState) -> None:
    """Look when that is due and a report has come: most rounds only find that it isn't."""
    config, memory = state.config.splitting, state.memory
    if not config.merge_advice_enabled or not _is_due(state, config.merge_advice_after_ms // LOOKS):
        return
    least = {name: cut for name, cut in memory.orders.namespaces.items() if isinstance(cut, int)}
    state.merges = merge_look(state.view, state.free_bundles(), least, memory.mergeable, config)


def _is_due(state: RoundState, interval_ms: int) -> bool:
    memory = state.memory
    last_ms = memory.first_ms if memory.merges_sought_ms is None else memory.merges_sought_ms
    return last_ms is not None and state.now_ms - last_ms >= interval_ms and bool(state.view.brokers.sampled.any())


def merges_after(state: RoundState) -> MergeLook:
    """What is to be remembered and told of merges after this round, looked or not."""
    if state.merges is not None:
        return state.merges
    if not state.config.splitting.merge_advice_enabled:
        return MergeLook(told=withdrawn(state.memory.mergeable, {}))
    return MergeLook(state.memory.merges_sought_ms, state.memory.mergeable)
