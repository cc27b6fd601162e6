"""Every rule by which something is decided, refused or filtered: its name, sentence and unit.

The log and the tables hold a rule's name. Refusals, `lbctl explain`, `--why-not`, the report page
and docs/rules.md take its sentence and unit from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Place = Literal[
    "operators",
    "suspension",
    "limits",
    "policies",
    "assigning",
    "waiting",
    "strategy",
    "splitting",
    "",
]
PLACES: tuple[Place, ...] = (
    "operators",
    "suspension",
    "limits",
    "policies",
    "assigning",
    "waiting",
    "strategy",
    "splitting",
)
"""The sources of refusals. If several keep a bundle in place, the first one explains it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    The sentence of a rule that decides may contain {source}, {saw}, {limit} and {average}, in the
    place of the decision's values.
    """

    name: str
    sentence: str
    unit: str = ""  # of `saw` and `limit`; empty: none, or the unit of the placement's score
    place: Place = ""  # the source of a refusal; empty: the rule keeps no bundle in place

    def __str__(self) -> str:
        return self.name


class Decides:
    """The rules by which a decision is made."""

    ABOVE_AVERAGE = Rule(
        "above_average",
        "{source}'s smoothed usage was {saw}, not below {limit}: the brokers' average of "
        "{average} plus the threshold",
        "ratio",
    )
    ABOVE_EVEN = Rule(
        "above_even",
        "{source} used {saw} of its scarcest resource, more than {limit}: its even load of "
        "{average} plus the tolerance",
        "ratio",
    )
    LARGER_THAN_EVEN = Rule(
        "larger_than_even",
        "it alone used {saw} of a broker's scarcest resource, more than {limit}: the even load of "
        "{average} plus the tolerance",
        "ratio",
    )
    LOWER_BOUNDARY = Rule(
        "lower_boundary",
        "a broker's usage was below {limit}, the average of {average} less the threshold; {source} "
        "had the highest usage, {saw}",
        "ratio",
    )
    BELOW_RANGE = Rule(
        "below_range",
        "a broker's usage was below {limit}, the average of {average} less the threshold; {source} "
        "had the highest usage, {saw}",
        "ratio",
    )
    OVERLOADED = Rule(
        "overloaded", "{source}'s usage was {saw}, not below the limit of {limit}", "ratio"
    )
    RATE_DIFFERENCE = Rule(
        "rate_difference",
        "the busiest broker's message rate was {saw} above the idlest broker's, more than {limit}",
        "%",
    )
    THROUGHPUT_MULTIPLE = Rule(
        "throughput_multiple",
        "the busiest broker's throughput was {saw} the idlest broker's, more than {limit}",
        "times",
    )
    PAIR_APART = Rule(
        "pair_apart",
        "{source}'s usage was {saw} above its partner's, more than {limit}, for enough rounds in a "
        "row",
        "points",
    )
    STD_ABOVE_TARGET = Rule(
        "std_above_target",
        "the brokers' usages had a standard deviation of {saw}, above the target of {limit}, "
        "around a mean of {average}",
        "ratio",
    )
    UNDERLOADED_BROKER = Rule(
        "underloaded_broker",
        "a broker's usage was {saw}, below {limit}: it takes load from the fullest broker, "
        "{source}",
        "ratio",
    )
    IDLE_BROKER = Rule(
        "idle_broker",
        "a broker carried {saw}, less than {limit}: it takes load from the fullest broker, "
        "{source}",
        "bytes/s",
    )
    OVERLOADED_BROKER = Rule(
        "overloaded_broker",
        "{source}'s usage was {saw}, above {limit} and far above the others",
        "ratio",
    )
    OVERLOADED_CPU = Rule(
        "overloaded_cpu",
        "{source}'s usage was {saw}, above the limit of {limit}, and its cpu was fullest",
        "ratio",
    )
    OVERLOADED_MEMORY = Rule(
        "overloaded_memory",
        "{source}'s usage was {saw}, above the limit of {limit}, and its memory was fullest",
        "ratio",
    )
    OVERLOADED_BANDWIDTH_IN = Rule(
        "overloaded_bandwidth_in",
        "{source}'s usage was {saw}, above the limit of {limit}, and its bandwidth in was fullest",
        "ratio",
    )
    OVERLOADED_BANDWIDTH_OUT = Rule(
        "overloaded_bandwidth_out",
        "{source}'s usage was {saw}, above the limit of {limit}, and its bandwidth out was fullest",
        "ratio",
    )
    SPLIT_CHILD = Rule(
        "split_child", "it is a child of a bundle that was split, and placement chooses its broker"
    )
    RELEASED = Rule(
        "released", "its broker has released it for the destination that the unload named"
    )
    REPEATED = Rule(
        "repeated", "its destination restarted before it took the bundle, and is asked again"
    )
    UNOWNED = Rule(
        "unowned", "it was unassigned, and its new broker had the lowest score ({saw}), which wins"
    )
    DRAINED = Rule("drained", "{source} is being drained by an operator's command")
    ANTI_AFFINITY = Rule(
        "anti_affinity",
        "{source} served other namespaces of its anti-affinity group ({saw}), "
        "and its new broker serves none",
        "namespaces",
    )
    FAILURE_DOMAIN = Rule(
        "failure_domain",
        "{source}'s failure domain served other namespaces of its anti-affinity group ({saw}), "
        "and its new broker's serves none",
        "namespaces",
    )
    ROLLOUT = Rule("rollout", "{source} is to be restarted by a rollout")
    ROLLOUT_LEVELS = Rule(
        "rollout_levels",
        "all brokers of a rollout were back, and {source} used {saw} of its scarcest resource, more "
        "than its even load of {limit}",
        "ratio",
    )
    NAMESPACE_DELETED = Rule("namespace_deleted", "an operator's command deleted its namespace")
    UNLOAD_COMMAND = Rule("unload_command", "an operator's command asked for it")
    SPLIT_COMMAND = Rule("split_command", "an operator's command asked for it")
    MERGE_COMMAND = Rule("merge_command", "an operator's command asked for it")
    MAX_TOPICS = Rule("max_topics", "it had {saw}, more than {limit}", "topics")
    MAX_SESSIONS = Rule("max_sessions", "it had {saw}, more than {limit}", "sessions")
    MAX_RATE = Rule("max_rate", "it carried {saw}, more than {limit}", "msg/s")
    MAX_BANDWIDTH = Rule("max_bandwidth", "it carried {saw}, more than {limit}", "bytes/s")


class Refuses:
    """The rules by which something is not done."""

    PAUSED = Rule("paused", "an operator's command has paused balancing", place="operators")
    SINGLE_BROKER = Rule(
        "single_broker",
        "only one broker is alive: there is no destination",
        "brokers",
        place="suspension",
    )
    MOVES_IN_FLIGHT = Rule(
        "moves_in_flight",
        "the cluster has as many pending moves as allowed",
        "moves",
        place="limits",
    )
    MOVES_IN_FLIGHT_OF_BROKER = Rule(
        "moves_in_flight_of_broker",
        "as many moves out of the broker as allowed are pending",
        "moves",
        place="limits",
    )
    MOVES_PER_MINUTE = Rule(
        "moves_per_minute",
        "as many moves as allowed began within the last minute",
        "moves",
        place="limits",
    )
    MOVED_PER_MINUTE = Rule(
        "moved_per_minute",
        "as much load as allowed was moved within the last minute",
        "bytes/s",
        place="limits",
    )
    ROLLOUT = Rule(
        "rollout",
        "a rollout is on, during which loads are uneven by design: only full brokers are relieved",
        place="operators",
    )
    ROLLOUT_STANDS_STILL = Rule(
        "rollout_stands_still",
        "the rollout waits for these brokers for longer than rollout_back_within_ms: no other is "
        "begun",
        "ms",
    )
    ROLLOUT_TOO_FULL = Rule(
        "rollout_too_full",
        "the rollout can't begin it, as the remaining brokers can't carry its load",
        "ratio",
    )
    ROLLOUT_DOMAIN = Rule(
        "rollout_domain",
        "the rollout can't begin it yet, as no other broker of its failure domain would remain",
    )
    ROLLOUT_ANTI_AFFINITY = Rule(
        "rollout_anti_affinity",
        "the rollout can't begin it while another broker is away, as bundles of an anti-affinity "
        "group would come together",
    )
    ROLLOUT_DRY_RUN = Rule(
        "rollout_dry_run", "the rollout rests, as decisions are not published in a dry run"
    )
    ROLLOUT_ISOLATION = Rule(
        "rollout_isolation",
        "the rollout can't begin it, as too few brokers of an isolation policy would remain",
    )
    FROZEN = Rule("frozen", "balancing moves nothing during a freeze", place="operators")
    OUTSIDE_WINDOW = Rule(
        "outside_window",
        "balancing moves bundles only within disruption windows, and none is open",
        place="operators",
    )
    PINNED = Rule("pinned", "an operator's command has pinned it to its broker", place="operators")
    REJECTED = Rule(
        "rejected", "an operator has rejected a proposal of this kind about it", place="operators"
    )
    RAISES_MAX = Rule(
        "raises_max",
        "approved alone, it would raise the usage of the busiest broker",
        "ratio",
        place="strategy",
    )
    MAX_PROPOSALS = Rule(
        "max_proposals",
        "as many proposals as allowed wait for approval",
        "proposals",
        place="limits",
    )
    MOVES_PER_HOUR = Rule(
        "moves_per_hour",
        "as many moves as its namespace's budget allows began within the last hour",
        "moves",
        place="limits",
    )
    NO_CANDIDATE = Rule("no_candidate", "no broker may take it", "brokers", place="policies")
    ISOLATION_MATCHES_NONE = Rule(
        "isolation_matches_none",
        "its namespace's isolation policy names brokers, and none of them is alive",
        place="policies",
    )
    SHIFTS_OVERLOAD = Rule(
        "shifts_overload",
        "the move would only shift the overload: its destination would then be hot",
        "ratio",
        place="policies",
    )
    PLACEMENT_KEEPS_OWNER = Rule(
        "placement_keeps_owner", "placement found no better broker than its owner", place="policies"
    )
    NO_OTHER_ALLOWED = Rule("no_other_allowed", "policies allow no other broker", place="policies")
    ANTI_AFFINITY = Rule(
        "anti_affinity",
        "its namespace's anti-affinity group would be spread worse",
        place="policies",
    )
    NOT_APART = Rule(
        "not_apart",
        "its broker or failure domain serves other namespaces of its anti-affinity group, and "
        "no broker without them may take it and has room for it",
    )
    BACK_OFF = Rule(
        "back_off",
        "its last decision failed, and its back-off is not over",
        "ms",
        place="waiting",
    )
    MIN_BROKERS = Rule(
        "min_brokers", "a new cluster waits for more brokers", "brokers", place="suspension"
    )
    REPORTS_AWAITED = Rule(
        "reports_awaited",
        "the job knows only some brokers yet: it has asked the others for the names of the bundles "
        "in their columnar reports",
        place="suspension",
    )
    NOT_FINITE = Rule("not_finite", "reported figures are not finite numbers", place="suspension")
    MIN_THROUGHPUT = Rule(
        "min_throughput", "too little throughput would move", "bytes/s", place="strategy"
    )
    MIN_UNLOAD = Rule("min_unload", "too little load would move", "msg/s", place="strategy")
    SOLE_BUNDLE = Rule(
        "sole_bundle",
        "the broker has one bundle: its move would move the overload with it",
        "bundles",
        place="strategy",
    )
    NO_BUNDLES = Rule("no_bundles", "the broker has no bundle", "bundles", place="strategy")
    NO_ELIGIBLE_BUNDLE = Rule(
        "no_eligible_bundle",
        "none of the broker's bundles may move now: each was unloaded recently, is moving, is "
        "excluded, or is held by a limit of its namespace",
        "bundles",
        place="strategy",
    )
    EXCLUDED_NAMESPACE = Rule(
        "excluded_namespace",
        "the strategy chose it, and its namespace is excluded from shedding: it stays, and no "
        "other bundle moves instead",
        place="policies",
    )
    IDLE_BUNDLES = Rule(
        "idle_bundles",
        "none of the broker's bundles that may move carries load: no move would relieve the broker",
        "bytes/s",
        place="strategy",
    )
    NONE_IN_A_PASS = Rule(
        "none_in_a_pass",
        "the strategy's settings allow no move in a pass",
        "bundles",
        place="strategy",
    )
    NOTHING_PROPOSED = Rule(
        "nothing_proposed",
        "the strategy proposed no move, though the broker's usage is at least 10 points above "
        "the brokers' mean",
        "ratio",
    )
    RECENTLY_UNLOADED = Rule(
        "recently_unloaded", "it was unloaded within the grace period", place="waiting"
    )
    NONE_COMFORTABLE = Rule(
        "none_comfortable", "no other broker has room for it", "%", place="strategy"
    )
    COOL_DOWN = Rule(
        "cool_down",
        "the broker was unloaded recently, and its load reports don't show that yet",
        "ms",
        place="strategy",
    )
    HIT_COUNT = Rule(
        "hit_count",
        "the load has not been uneven for enough rounds in a row yet",
        "rounds",
        place="strategy",
    )
    OUTDATED_DATA = Rule(
        "outdated_data", "the brokers' load reports are too old", "ms", place="strategy"
    )
    NO_BROKERS = Rule("no_brokers", "there are too few brokers", place="strategy")
    NO_LOAD_DATA = Rule("no_load_data", "a broker's load report is missing", place="strategy")
    NO_BUNDLES_TO_MOVE = Rule(
        "no_bundles_to_move", "no broker reports a bundle that could move", place="strategy"
    )
    NOT_HOT_FOR_LONG = Rule(
        "not_hot_for_long",
        "the broker has not been hot for long enough yet",
        "ms",
        place="strategy",
    )
    WITHIN_NOISE = Rule(
        "within_noise",
        "the broker is above the limit by no more than the noise of its reports",
        "ratio",
        place="strategy",
    )
    CARRIES_NO_MORE = Rule(
        "carries_no_more",
        "bundles came to the broker, and it carried no more: that is its limit, whatever it reports",
        "bytes/s",
        place="strategy",
    )
    RESTARTS = Rule(
        "restarts",
        "brokers restart one after another: until that is over, only full brokers are relieved",
        place="strategy",
    )
    FIXED_LOAD = Rule(
        "fixed_load",
        "the broker is above its even share by load that can't move: no bundle causes it, or its "
        "bundles are held",
        "ratio",
        place="strategy",
    )
    NO_ROOM = Rule(
        "no_room",
        "no other broker has room for the load that should leave the broker, and with a part of it "
        "none would be clearly less full than the broker is",
        "ratio",
        place="strategy",
    )
    DOES_NOT_PAY_BACK = Rule(
        "does_not_pay_back",
        "a move of these bundles would take more time from clients than it saves them within the "
        "payback time",
        "min",
        place="strategy",
    )
    UNLOADING = Rule("unloading", "earlier moves are still pending", "moves", place="strategy")
    NO_TOP_BUNDLES = Rule(
        "no_top_bundles",
        "the broker reports no bundle that could move",
        "bundles",
        place="strategy",
    )
    NO_FITTING_BUNDLE = Rule(
        "no_fitting_bundle",
        "every bundle that may move carries more load than should move: its move would reverse the "
        "difference between brokers",
        "bytes/s",
        place="strategy",
    )
    NOT_TRANSFERABLE = Rule(
        "not_transferable", "the destination may not take it", "bundles", place="policies"
    )
    BALANCES_ITSELF = Rule(
        "balances_itself",
        "the brokers' own load manager balances too: agents refuse to act until it is switched off",
        "brokers",
        place="suspension",
    )
    MASS_DISAPPEARANCE = Rule(
        "mass_disappearance",
        "many brokers vanished at once: the fault is more likely on the balancer's side",
        "ms",
        place="suspension",
    )
    MASS_FAILOVER = Rule(
        "mass_failover",
        "brokers that vanished together stayed silent for the whole wait: they are dead, and "
        "their bundles go to others",
        "ms",
    )
    SUSPENDED = Rule(
        "suspended",
        "nothing is decided until the silent brokers report again, the wait is over, or `lbctl "
        "clusters declare-dead` ends it",
        "ms",
        place="suspension",
    )
    ASSIGNMENTS_PER_MINUTE = Rule(
        "assignments_per_minute",
        "as many unassigned bundles as allowed got an owner within the last minute",
        "bundles",
        place="assigning",
    )
    LEFT_TO_LOOKUP = Rule(
        "left_to_lookup",
        "the destination that its unload named is no longer alive: the next lookup places it",
        place="assigning",
    )
    EVERYTHING_SILENT = Rule(
        "everything_silent",
        "all brokers are silent: the fault is more likely on the balancer's side",
        "ms",
        place="suspension",
    )
    NAMESPACE_MAX_BUNDLES = Rule(
        "namespace_max_bundles",
        "the namespace has as many bundles as allowed",
        "bundles",
        place="splitting",
    )
    SPLIT_DISABLED = Rule("split_disabled", "splitting is switched off", place="splitting")
    SPLITS_IN_FLIGHT = Rule(
        "splits_in_flight", "as many splits as allowed are pending", "splits", place="limits"
    )
    NOT_ITS_OWNER = Rule(
        "not_its_owner",
        "the broker that asked for its split is not its owner",
        place="splitting",
    )
    NOT_FREE = Rule(
        "not_free", "a decision about it is pending, or its back-off is not over", place="waiting"
    )
    NEIGHBOUR_IS_SPLITTING = Rule(
        "neighbour_is_splitting", "another bundle of its namespace is being split", place="waiting"
    )
    OVERLAPS = Rule(
        "overlaps",
        "its range overlaps that of another bundle that a broker serves: it was split or "
        "merged elsewhere, and reports still name both",
        place="waiting",
    )
    NO_BOUNDARY = Rule(
        "no_boundary", "no boundary was found that would divide it", place="splitting"
    )
    RANGE_TOO_NARROW = Rule(
        "range_too_narrow", "its range can't be divided further", place="splitting"
    )
    BOUNDARY_OUTSIDE = Rule(
        "boundary_outside", "the boundaries lie outside of it", place="splitting"
    )
    EMPTY_CHILD = Rule("empty_child", "a boundary is given twice", place="splitting")
    ONE_TOPIC = Rule(
        "one_topic",
        "it is larger than an even load, and one of its topics has nearly all of its load: no "
        "split would help, and the topic alone sets the max usage",
        "ratio",
        place="splitting",
    )
    HELD_WHOLE = Rule(
        "held_whole",
        "it is larger than an even load, but may not move: it is a system bundle, or a pin, a "
        "rejection, a window, a budget or its excluded namespace holds it. A plan splits only what "
        "may move",
        place="splitting",
    )
    IDLE_SPLIT = Rule(
        "idle_split",
        "it is larger than an even load, and came out of a split that left it nearly all of the "
        "load: probably one topic has it, which no split divides",
        "ratio",
        place="splitting",
    )
    SPLIT_GAINS_LITTLE = Rule(
        "split_gains_little",
        "it is larger than an even load, but its split would lower the max usage by less than a "
        "split has to",
        "ratio",
        place="splitting",
    )
    SPLITS_PER_HOUR = Rule(
        "splits_per_hour",
        "as many splits of its namespace as allowed were planned within the last hour",
        "splits",
        place="splitting",
    )
    CHILDREN_AWAITED = Rule(
        "children_awaited",
        "moves wait for the children of a split that has just been decided",
        "ms",
        place="strategy",
    )
    VERSION_UNKNOWN = Rule(
        "version_unknown",
        "a broker reports no version, or one that can't be read: the latest version is not known",
    )


class FilteredBy:
    """The rules by which a filter removes a broker from the candidates."""

    OVERLOADED = Rule("overloaded", "too full to take it")
    NO_LOAD_DATA = Rule("no_load_data", "its load is not known")
    TOPIC_KIND = Rule("topic_kind", "doesn't serve topics of this kind")
    ISOLATION = Rule("isolation", "isolation policies exclude it")
    MAX_TOPICS = Rule("max_topics", "has as many topics as allowed")
    ANTI_AFFINITY = Rule("anti_affinity", "serves more other namespaces of the anti-affinity group")
    FAILURE_DOMAIN = Rule(
        "failure_domain",
        "its failure domain serves more other namespaces of the anti-affinity group",
    )
    EVEN_DISTRIBUTION = Rule("even_distribution", "has more bundles of the namespace than others")
    LOAD_MANAGER_CLASS = Rule("load_manager_class", "runs another load manager")
    VERSION = Rule("version", "runs an older version")
    DRAINED = Rule("drained", "is being drained")
    ROLLOUT = Rule("rollout", "is to be restarted later by the rollout")
    FAILED_BEFORE = Rule("failed_before", "has refused it before, or did not answer")
    SHIFTS_OVERLOAD = Rule("shifts_overload", "would be hot with it")
    BEING_RELIEVED = Rule("being_relieved", "is itself being relieved in this round")


def _rules_of(kind: type) -> dict[str, Rule]:
    """Return the rules of a class by name."""
    return {rule.name: rule for rule in vars(kind).values() if isinstance(rule, Rule)}


DECIDES, REFUSES, FILTERED_BY = _rules_of(Decides), _rules_of(Refuses), _rules_of(FilteredBy)
"""Name → rule, for each of the three classes."""


def decides(name: str, sentence: str, unit: str = "ratio") -> Rule:
    """Register a rule by which another package's strategy decides.

    Raises ValueError for a name that is taken.
    """
    return _register(DECIDES, Rule(name, sentence, unit))


def refuses(name: str, sentence: str, unit: str = "") -> Rule:
    """Register a rule by which another package's strategy refuses.

    Raises ValueError for a name that is taken.
    """
    return _register(REFUSES, Rule(name, sentence, unit, "strategy"))


def _register(kind: dict[str, Rule], rule: Rule) -> Rule:
    """Add a rule to its kind."""
    if kind.setdefault(rule.name, rule) != rule:
        raise ValueError(f"rule {rule.name!r}: expected a name that no other rule has")
    return rule
