"""The keys of the TOML file that a scenario is built from: descriptions and defaults.

Times are seconds, rates messages/s. Keys that scenario.json also has, have the same names.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from lb_stream.contracts.keys import KeyModel, key
from lb_stream.sim.scenario.scenario import EventKind, FaultKind, StatedLimit

MOST_BROKERS = 10_000
MOST_BUNDLES_PER_BROKER = 10_000


class _Part(KeyModel):
    """A part of the file. No type is converted: `--set` reads its values as TOML does."""

    model_config = ConfigDict(strict=True)


def _chosen(value: object) -> int | str | list[str]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return value
    raise PydanticCustomError("chosen", 'how many brokers, "all", or a list of their names')


Chosen = Annotated[int | str | list[str], PlainValidator(_chosen)]
"""Brokers: a number of them, which the seed chooses; "all"; or a list of names."""


class MoveSpec(_Part):
    """How long a move takes."""

    release_s: float = key(2.0, "from a decision to the release", unit="s", ge=0)
    acquire_s: float = key(3.0, "from a decision to the acquisition", unit="s", ge=0)
    reconnect_s: float = key(
        2.0, "time that each client loses beside that, to reconnect", unit="s", ge=0
    )


class ClusterSpec(_Part):
    """Brokers, and how many bundles there are."""

    brokers: int = key(
        12, "number of brokers, with those that come up later", ge=1, le=MOST_BROKERS
    )
    machines: list[Annotated[float, Field(ge=1e-6, le=1e6)]] = key(
        [1.0], "sizes of machines, given to the brokers in turn", min_length=1
    )
    bandwidths_gbit_per_s: list[Annotated[float, Field(ge=1e-6, le=1e6)]] = key(
        [2.5],
        "bandwidths of a machine of size 1, in each direction, given to the brokers in turn",
        min_length=1,
    )
    shuffled: bool = key(
        False, "give machines and bandwidths in an order that the seed draws, not in turn"
    )
    bundles_per_broker: int = key(
        40, "bundles for each broker that is up at the start", ge=1, le=MOST_BUNDLES_PER_BROKER
    )
    bundles_per_namespace: int = key(
        8, "number of bundles of a namespace", ge=1, le=MOST_BUNDLES_PER_BROKER
    )
    tenants: int = key(
        5, "number of tenants; namespaces are given to them in turn", ge=1, le=10_000
    )
    topics_per_bundle: float = key(
        10.0, "mean number of a bundle's topics; each bundle has at least one", ge=1, le=10_000
    )


class KindSpec(_Part):
    """A kind of bundles: sizes of messages, and fan-out."""

    share: float = key(
        1.0,
        "share of the bundles that are of this kind, relative to other kinds' shares",
        ge=1e-6,
        le=1e6,
    )
    message_bytes: list[Annotated[float, Field(ge=1e-6, le=1e9)]] = key(
        [256.0, 512.0, 1024.0, 2048.0],
        "sizes of messages; each bundle gets one at random",
        min_length=1,
    )
    fan_out: list[Annotated[float, Field(ge=0, le=1e6)]] = key(
        [1.0, 1.0, 2.0, 3.0],
        "messages out for each message in; each bundle gets one at random",
        min_length=1,
    )
    size: float = key(1.0, "factor on the sizes of these bundles", ge=1e-9, le=1e6)


class LargestSpec(_Part):
    """A bundle that is as large as is asked."""

    size: float = key(1.6, "its size; 1 is the load of an average broker", ge=1e-6, le=1e6)
    topics: int | None = key(
        None, "number of its topics; not given: as of the others", ge=1, le=1_000_000
    )
    hot_topic: float | None = key(
        None, "share of its load that one topic has; not given: as of the others", ge=0, le=1
    )


class LoadSpec(_Part):
    """How much load there is, and how it is spread over bundles."""

    usage: float = key(0.45, "usage of brokers if they share the load evenly", ge=1e-6, le=100)
    sizes: Literal["equal", "lognormal", "zipf"] = key(
        "lognormal", "distribution of bundles' sizes"
    )
    spread: float = key(
        0.5, "lognormal: standard deviation of the logarithm; zipf: the exponent", ge=0, le=5
    )
    largest: list[LargestSpec] = key([], "the largest bundles")
    jitter: float = key(
        0.02, "standard deviation of the random change of each bundle's load; 0: none", ge=0, le=2
    )
    kinds: list[KindSpec] = key([KindSpec()], "kinds of bundles", min_length=1)


class Diurnal(_Part):
    """Each tenant's load follows a sine; tenants have different phases."""

    kind: Literal["diurnal"]
    period_s: float = key(7_200.0, "length of a day", unit="s", ge=1e-6)
    amplitude: float = key(0.6, "amplitude, as a part of the mean", ge=0, le=1)


class FlashCrowd(_Part):
    """Some namespaces carry several times their load for a while."""

    kind: Literal["flash_crowd"]
    from_s: float = key(900.0, "when it begins", unit="s", ge=0)
    to_s: float = key(1_800.0, "when it ends", unit="s", ge=0)
    namespaces: int = key(3, "number of namespaces", ge=1)
    times: float = key(7.0, "factor on their load", ge=0, le=1e6)


class DriftingHot(_Part):
    """One set of bundles after another is hot."""

    kind: Literal["drifting_hot"]
    every_s: float = key(600.0, "how long each set of bundles is hot", unit="s", ge=1)
    share: float = key(0.05, "share of the bundles that are hot", ge=1e-6, le=1)
    times: float = key(10.0, "factor on their load", ge=0, le=1e6)


class Growth(_Part):
    """The load of bundles that start at some brokers grows evenly, and then stays high."""

    kind: Literal["growth"]
    brokers: Chosen = key(3, "brokers whose bundles grow")
    from_s: float = key(600.0, "when the growth begins", unit="s", ge=0)
    to_s: float = key(1_800.0, "when the growth ends", unit="s", ge=0)
    times: float = key(1.5, "factor on their load at the end", ge=0, le=1e6)


Shape = Annotated[Diurnal | FlashCrowd | DriftingHot | Growth, Field(discriminator="kind")]


class SplitSpec(_Part):
    """Bundles can be split: their topics' shares of load, and how brokers split."""

    sizes: Literal["equal", "lognormal", "zipf"] = key(
        "lognormal", "distribution of topics' shares of their bundle's load"
    )
    spread: float = key(
        0.8, "lognormal: standard deviation of the logarithm; zipf: the exponent", ge=0, le=5
    )
    split_s: float = key(2.0, "from a decision to the split", unit="s", ge=0)
    detailed_bundles: int = key(
        10, "heaviest bundles of which a broker reports topics' shares; 0: of none", ge=0
    )
    max_rate: float = key(
        30_000.0, "flow_or_qps_equally_divide: limit of a piece", unit="messages/s", ge=1e-6
    )
    max_bytes_per_s: float = key(
        104_857_600.0, "flow_or_qps_equally_divide: limit of a piece", unit="bytes/s", ge=1e-6
    )
    difference: float = key(
        0.1, "flow_or_qps_equally_divide: part by which a bundle must exceed a limit", ge=0
    )


class StartSpec(_Part):
    """Where bundles are when the scenario begins."""

    placement: Literal["balanced", "random", "equal_counts", "by_tenant", "by_kind"] = key(
        "balanced", "how bundles are placed"
    )
    own_share: float = key(
        0.8,
        "by_tenant, by_kind: share of the bundles that start beside others of their tenant or kind",
        ge=0,
        le=1,
    )
    hot: Chosen = key(0, "balanced: brokers that carry more than the others")
    hot_times: float = key(2.0, "balanced: factor on the load of these brokers", ge=1e-6, le=1e6)
    strays: float = key(
        0.0,
        "balanced: share of the other than the largest bundles that start at random brokers",
        ge=0,
        le=1,
    )


class NoiseSpec(_Part):
    """Measurement noise: standard deviations of its factors."""

    bundles: float = key(0.03, "on each bundle's load; 0: none", ge=0, le=2)
    cpu: float = key(0.02, "on each broker's cpu; 0: none", ge=0, le=2)
    lasting_s: float = key(
        0.0,
        "time within which the autocorrelation of noise falls to 1/e; 0: there is none",
        unit="s",
        ge=0,
    )
    cpu_lasting_s: float | None = key(
        None, "the same for brokers' cpu; not given: lasting_s", unit="s", ge=0
    )


class LimitSpec(_Part):
    """Brokers whose limits aren't what their machines, or their load reports, promise.

    Without both factors the limits are as those of other brokers, and load reports leave them out.
    """

    brokers: Chosen = key(1, "brokers with these limits")
    resources: list[StatedLimit] = key(
        ["bandwidth_in", "bandwidth_out"], "resources whose limits are meant", min_length=1
    )
    true_times: float = key(
        1.0, "factor on the machine's limits: what the broker really has", ge=1e-6, le=1e6
    )
    stated_times: float | None = key(
        None,
        "factor on the machine's limits that load reports state; not given: they state none",
        ge=1e-9,
        le=1e9,
    )


class BackgroundSpec(_Part):
    """Cpu of brokers' hosts that no bundle causes."""

    brokers: Chosen = key(1, "brokers with it")
    cpu: float = key(0.3, "share of the cpu that it takes", ge=0, le=10)
    from_s: float = key(0.0, "when it begins", unit="s", ge=0)
    for_s: float = key(0.0, "how long it lasts; 0: until the end", unit="s", ge=0)
    every_s: float = key(0.0, "time from one broker's begin to the next one's", unit="s", ge=0)
    jitter: float = key(
        0.0, "standard deviation of its random change, as a part of it; 0: none", ge=0, le=2
    )


class EventSpec(_Part):
    """An event at brokers. A broker whose first event is `up` is down at the start."""

    kind: EventKind
    t_s: float = key(600.0, "time of the event", unit="s", ge=0)
    brokers: Chosen = key(1, "brokers of the event")
    every_s: float = key(0.0, "time from one broker's event to the next one's", unit="s", ge=0)
    for_s: float = key(
        0.0,
        "time until it is undone: crash, leave by up, drain by undrain, slow by factor 1; 0: never",
        unit="s",
        ge=0,
    )
    factor: float | None = key(None, "kind slow: factor on the cpu's capacities", ge=1e-6, le=1e6)


class RolloutSpec(_Part):
    """An operator's order to restart brokers, each once."""

    t_s: float = key(600.0, "when it is given", unit="s", ge=0)
    brokers: Chosen = key(
        "all", 'brokers to restart; "all": those that are up at the start of the scenario'
    )
    restart_s: float = key(60.0, "how long a broker is down", unit="s", ge=1e-6)
    at_most: int = key(1, "brokers that may be down at the same time", ge=1)
    order: Literal["any", "given"] = key(
        "any",
        "given: brokers restart in the order of the list, or in one that the seed draws",
    )


class FaultSpec(_Part):
    """A fault at brokers for a while."""

    kind: FaultKind
    brokers: Chosen = key(1, "brokers of the fault")
    from_s: float = key(0.0, "when it begins", unit="s", ge=0)
    to_s: float | None = key(None, "when it ends; not given: never", unit="s", ge=1e-6)
    delay_s: float | None = key(None, "kind stale_reports: age of the figures", unit="s", ge=0)


class IsolationSpec(_Part):
    """Brokers for one tenant's namespaces alone."""

    tenant: str
    primary: Chosen = key(3, "the tenant's own brokers")
    secondary: Chosen = key(0, "brokers that help out")
    min_available: int = key(
        1, "number of primary brokers below which the secondary ones help out", ge=0
    )


class BudgetSpec(_Part):
    """A budget of moves for each namespace of a tenant."""

    tenant: str
    moves_per_hour: int = key(2, "maximum moves in any hour", ge=0)


class PoliciesSpec(_Part):
    """Rules that the balancer must keep."""

    isolation: list[IsolationSpec] = key([], "tenants with brokers of their own")
    anti_affinity: list[Annotated[int, Field(ge=2)]] = key(
        [], "sizes of anti-affinity groups, in namespaces"
    )
    pinned_namespaces: int = key(0, "number of namespaces whose bundles must stay", ge=0)
    budgets: list[BudgetSpec] = key([], "tenants with a budget of moves")


class Spec(_Part):
    """All keys of the file."""

    name: str = key("scenario", "name of the scenario", min_length=1)
    why: str = key("", "the situation, and what a good policy does in it")
    seed: int = key(
        1, "seed of all random choices: another seed gives another scenario of the same kind", ge=0
    )
    tick_s: float = key(10.0, "length of a tick", unit="s", ge=1e-6)
    ticks: int = key(360, "length of the scenario", unit="ticks", ge=1, le=100_000)
    load_step_ticks: int = key(3, "ticks after which loads change", unit="ticks", ge=1)
    noise_step_ticks: int = key(3, "ticks after which noise changes", unit="ticks", ge=1)
    noise_unit: float = key(0.005, "resolution of noise in the files", ge=1e-3, le=1)
    report_interval_s: float = key(30.0, "time between a broker's own reports", unit="s", ge=1e-6)
    report_delay_s: float = key(1.0, "time that a report takes to arrive", unit="s", ge=0)
    judge_from_s: float = key(0.0, "when the disturbance begins", unit="s", ge=0)
    settled_from_s: float | None = key(
        None,
        "when the disturbance should be over; not given: after half of the scenario",
        unit="s",
        ge=0,
    )
    move: MoveSpec = key(MoveSpec(), "how long a move takes")
    cluster: ClusterSpec = key(ClusterSpec(), "brokers and bundles")
    load: LoadSpec = key(LoadSpec(), "amount and distribution of load")
    shapes: list[Shape] = key([], "how load changes over time: each multiplies it")
    start: StartSpec = key(StartSpec(), "where bundles are at the start")
    noise: NoiseSpec = key(NoiseSpec(), "measurement noise")
    split: SplitSpec | None = key(
        None, "topics' shares of load, and splits; not given: bundles can't be split"
    )
    limits: list[LimitSpec] = key([], "limits that brokers don't know, or state wrongly")
    background: list[BackgroundSpec] = key([], "cpu that no bundle causes")
    rollout: RolloutSpec | None = key(None, "a rolling restart that the policy times")
    events: list[EventSpec] = key([], "events of brokers")
    faults: list[FaultSpec] = key([], "faults of brokers")
    policies: PoliciesSpec = key(PoliciesSpec(), "rules of the scenario")
