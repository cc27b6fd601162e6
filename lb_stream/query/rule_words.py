"""What the rules mean, in words: those that decide, those that refuse, and those that take a broker out of the candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DECIDES: Mapping[str, str] = {
    "above_average": "{source} was at {saw} usage, smoothed, not below {limit}: the brokers' average of {average} and the threshold",
    "lower_boundary": "somebody was below {limit}, the average of {average} less the threshold, and {source} was the highest with {saw}",
    "below_range": "somebody was below {limit}, the average of {average} less the range, and {source} was the highest with {saw}",
    "overloaded": "{source} was at {saw} usage, not below the limit of {limit}",
    "rate_difference": "the busiest broker's message rate was {saw} above the idlest one's, more than {limit}",
    "throughput_multiple": "the busiest broker's throughput was {saw} the idlest one's, more than {limit}",
    "pair_apart": "{source} was {saw} above the idlest broker, more than {limit}, for as many rounds as it takes",
    "std_above_target": "the brokers' usages had a standard deviation of {saw}, above the target of {limit}, round a mean of {average}",
    "underloaded_broker": "a broker was at {saw} usage, below {limit}, so that it takes from the fullest, {source}",
    "idle_broker": "a broker carried {saw}, less than {limit}, so that it takes from the fullest, {source}",
    "overloaded_broker": "{source} was at {saw} usage, above {limit} and far above the others",
    **{
        f"overloaded_{resource}": f"{{source}}'s {resource.replace('_', ' ')} was at {{saw}}, not below the limit of {{limit}}"
        for resource in ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
    },
    "split_child": "its parent has just been split, and its parts are to be placed anew",
    "released": "its broker has released it, for the destination that the unload had named",
    "unowned": "nobody owned it, and this broker scored best ({saw}; the lowest score wins)",
    "drained": "{source} is being drained by an operator's command",
    "namespace_deleted": "an operator's command has deleted its namespace",
    "unload_command": "an operator's command asked for it",
    "split_command": "an operator's command asked for it",
    "max_topics": "it had {saw}, more than {limit}",
    "max_sessions": "it had {saw}, more than {limit}",
    "max_rate": "it carried {saw}, more than {limit}",
    "max_bandwidth": "it carried {saw}, more than {limit}",
}
"""Rule of a decision → why it was made."""

REFUSES: Mapping[str, str] = {
    "paused": "an operator's command has paused the balancing",
    "single_broker": "only one broker lives: there is nobody to move to",
    "moves_in_flight": "as many moves as allowed are under way in the cluster",
    "moves_in_flight_of_broker": "as many moves as allowed are under way out of this broker",
    "moves_per_minute": "as many moves as allowed were begun within the last minute",
    "moved_per_minute": "as much load as allowed was moved within the last minute",
    "no_candidate": "no broker may take it",
    "shifts_overload": "the move would only shift the overload: whoever took it would be too hot then",
    "placement_keeps_owner": "placement found no better broker than its owner",
    "no_other_allowed": "policies allow no other broker",
    "anti_affinity": "its namespace's anti-affinity group would be spread worse",
    "back_off": "its last decision failed; it waits before the next",
    "min_brokers": "a new cluster waits for more brokers",
    "not_finite": "reported figures are not finite numbers",
    "min_throughput": "too little throughput would move",
    "min_unload": "too little load would move",
    "sole_bundle": "the broker has one bundle: moving it would only move the trouble",
    "no_bundles": "the broker has no bundle",
    "no_eligible_bundle": "none of the broker's bundles may move now: lately unloaded, on their way, or excluded",
    "recently_unloaded": "it was unloaded within the grace period",
    "nobody_comfortable": "no other broker has room for it",
    "cool_down": "the broker was unloaded lately; its figures don't show it yet",
    "hit_count": "not uneven for enough rounds in a row yet",
    "outdated_data": "the brokers' figures are too old",
    "no_brokers": "there are too few brokers",
    "no_load_data": "some broker's figures are missing",
    "no_bundles_to_move": "no broker names a bundle that could move",
    "unloading": "earlier moves are still under way",
    "no_top_bundles": "the broker names no bundle that could move",
    "no_fitting_bundle": "every bundle is too large: moving it would only turn the difference round",
    "not_transferable": "the destination may not have it",
    "balances_itself": "the brokers' own cluster balances, too: agents refuse to act until that is off",
    "mass_disappearance": "many brokers vanished at once: the fault is more likely on this side",
    "mass_failover": "brokers that vanished together have been silent for the whole wait: they are dead, and their bundles go to others",
    "suspended": "nothing is decided until the silent brokers speak, the wait is over, or `lbctl clusters declare-dead` ends it",
    "assignments_per_minute": "as many bundles without an owner as allowed got one within the last minute",
    "left_to_lookup": "the destination that its unload named is gone: the next lookup places it",
    "everything_silent": "all brokers are silent: the fault is more likely on this side",
    "namespace_max_bundles": "the namespace has as many bundles as allowed",
    "split_disabled": "splitting is switched off",
    "splits_in_flight": "as many splits as allowed are under way",
    "not_its_owner": "another broker owns it than the one that asked to split it",
    "not_free": "a decision about it is under way, or waits after a failure",
    "neighbour_is_splitting": "another bundle of its namespace is being split",
    "no_boundary": "no boundary was found that would divide it",
    "range_too_narrow": "its range can't be divided further",
    "boundary_outside": "the boundaries lie outside of it",
    "empty_child": "a boundary is given twice",
    "not_in_ring": "its namespace has no such bundle",
}
"""Rule of a refusal → why nothing was done."""

HOLDS_BY: Mapping[str, tuple[str, ...]] = {
    "operators": ("paused",),
    "suspension": (
        "mass_disappearance", "everything_silent", "suspended", "min_brokers", "single_broker", "not_finite", "balances_itself",
    ),
    "limits": ("moves_in_flight", "moves_in_flight_of_broker", "moves_per_minute", "moved_per_minute", "splits_in_flight"),
    "policies": ("no_other_allowed", "anti_affinity", "not_transferable", "no_candidate", "placement_keeps_owner", "shifts_overload"),
    "assigning": ("assignments_per_minute", "left_to_lookup"),
    "waiting": ("not_free", "back_off", "recently_unloaded", "neighbour_is_splitting"),
    "strategy": (
        "outdated_data", "no_load_data", "no_brokers", "cool_down", "hit_count", "unloading", "min_throughput", "min_unload", "sole_bundle",
        "no_bundles", "no_eligible_bundle", "nobody_comfortable", "no_bundles_to_move", "no_top_bundles", "no_fitting_bundle",
    ),
    "splitting": (
        "namespace_max_bundles", "split_disabled", "not_its_owner", "no_boundary", "range_too_narrow", "boundary_outside", "empty_child",
        "not_in_ring",
    ),
}  # fmt: skip
"""What a bundle or broker may be kept by, in order of precedence → the refusing rules that say so. Each rule has one place."""

KEEPS_NOTHING = frozenset({"mass_failover"})
"""Rules that are told with the refusals and hold nobody: they say that a wait is over."""

TAKES_OUT: Mapping[str, str] = {
    "overloaded": "too full to take it",
    "no_load_data": "nothing is known of its load",
    "topic_kind": "doesn't serve topics of this kind",
    "isolation": "isolation policies keep it apart",
    "max_topics": "has as many topics as allowed",
    "anti_affinity": "serves more of the anti-affinity group",
    "failure_domain": "its failure domain serves more of the anti-affinity group",
    "even_distribution": "has more bundles of the namespace than others",
    "load_manager_class": "runs another load manager",
    "version": "runs an older version",
    "drained": "is being drained",
    "failed_before": "has refused it before, or not answered",
    "shifts_overload": "would be too hot with it",
    "being_relieved": "is itself being relieved in this round",
}
"""What took a broker out of the candidates → in words."""


def figure(value: float | None, unit: str | None) -> str:
    """A figure with its unit; ratios as per cent."""
    if value is None:
        return "-"
    if unit in ("ratio", "%"):
        return f"{100 * value if unit == 'ratio' else value:.1f}%"
    if unit == "bytes/s":
        return f"{value / 1e6:.2f} MB/s"
    if unit == "times":
        return f"{value:.2f} times"
    return f"{value:.0f} {unit}".rstrip() if value == int(value) and abs(value) < 1e6 else f"{value:.5g} {unit or ''}".rstrip()


def why_decided(rule: str, source: str | None, explain: Mapping[str, Any]) -> str:
    """Why a decision was made; an unknown rule (of a strategy of somebody else) with its figures."""
    figures = {name: figure(explain.get(name), explain.get("unit")) for name in ("saw", "limit", "average")}
    known = DECIDES.get(rule)
    if known is not None:
        return known.format(source=source or "its broker", **figures)
    told = [
        f"{words} {figures[name]}" for name, words in (("saw", "saw"), ("limit", "limit"), ("average", "average")) if figures[name] != "-"
    ]
    return f"rule {rule}" + (f": {', '.join(told)}" if told else "")


def why_refused(rule: str) -> str:
    """Why nothing was done."""
    return REFUSES.get(rule, rule.replace("_", " "))


def why_taken_out(rule: str) -> str:
    """Why a broker was no candidate."""
    return TAKES_OUT.get(rule, rule.replace("_", " "))
