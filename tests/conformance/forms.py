"""The shapes that the cases have in common (RESOURCE, STATS, BUNDLEDATA, BROKER), read into
columns, rows in the case's order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import DEFAULT_RATES
from lb_stream.core.model.blocks import RESOURCES
from lb_stream.core.model.names import is_system_bundle
from lb_stream.core.model.releases import Release
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import Brokers, Bundles, ClusterView, Rates

FOUR_NAMES = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
RESOURCE_NAMES = dict(
    zip(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), RESOURCES, strict=True)
)
DEFAULT_BUNDLE = {"short": list(DEFAULT_RATES), "long": list(DEFAULT_RATES)}


def resource(form: Any) -> tuple[float, float]:
    """RESOURCE → (usage, limit)."""
    if form is None:
        return 0.0, 0.0
    usage, limit = (form["usage"], form["limit"]) if isinstance(form, Mapping) else form
    return float(usage), float(limit)


def resource_columns(
    brokers: Iterable[Mapping[str, Any]],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The five resources of some BROKERs as (usage, limit) columns under our names."""
    brokers = list(brokers)
    columns = {}
    for theirs, ours in RESOURCE_NAMES.items():
        pairs = np.array([resource(broker.get(theirs)) for broker in brokers]).reshape(-1, 2)
        columns[ours] = (pairs[:, 0], pairs[:, 1])
    return columns


def stats(form: Any) -> BundleStats:
    """STATS, a list of four or five values or an object."""
    if isinstance(form, Mapping):
        whole = {"consumerCount", "producerCount", "topics", "cacheSize"}
        return BundleStats(
            **{name: int(value) if name in whole else float(value) for name, value in form.items()}
        )
    four = dict(zip(FOUR_NAMES, map(float, form[:4]), strict=True))
    return BundleStats(**four, topics=int(form[4]) if len(form) > 4 else 0)


def rates(rows: Sequence[Sequence[float]]) -> Rates:
    """Rows of FOUR as columns."""
    table = np.array(rows, float).reshape(-1, 4)
    return Rates(*(np.ascontiguousarray(table[:, column]) for column in range(4)))


def in_order(names: Iterable[str], order: Sequence[str] | None) -> list[str]:
    """The names as `order` lays them; those that it doesn't name follow as they came."""
    place = {name: index for index, name in enumerate(order or ())}
    return sorted(names, key=lambda name: place.get(name, len(place)))


def bundle_rates(data: Mapping[str, Any], names: Iterable[str]) -> tuple[Rates, Rates]:
    """BUNDLEDATA of the named bundles → their short and long averages; `long` defaults to
    `short`."""
    forms = [data.get(name, DEFAULT_BUNDLE) for name in names]
    return rates([form["short"] for form in forms]), rates(
        [form.get("long", form["short"]) for form in forms]
    )


def view_of_loads(
    loads: Mapping[str, Any],
    weights: Mapping[str, float],
    order: Mapping[str, Any] | None = None,
    release: Release = "any",
) -> ClusterView:
    """LOADDATA as a view whose rows lie as brokerOrder and bundleOrder say.

    Bundles that a broker names and `bundleData` doesn't know are there too, with default averages.
    """
    order = order or loads
    brokers = {
        name: loads["brokers"][name]
        for name in in_order(loads["brokers"], order.get("brokerOrder"))
    }
    data = loads.get("bundleData", {})
    owner_of = {
        bundle: row
        for row, broker in enumerate(brokers.values())
        for bundle in broker.get("bundles", broker.get("lastStats", {}))
    }
    names = in_order(dict.fromkeys([*data, *owner_of]), order.get("bundleOrder"))
    owner = np.array([owner_of.get(name, -1) for name in names], np.int32)
    short, long = bundle_rates(data, names)
    count, zeros = len(brokers), np.zeros(len(brokers), np.int64)
    resources = resource_columns(brokers.values())
    columns = Brokers(
        names=tuple(brokers),
        usage=max_weighted_usage(resources, weights),
        resources=resources,
        latest=rates([_latest(broker) for broker in brokers.values()]),
        short=short.sums_by(owner, count),
        long=long.sums_by(owner, count),
        topics=np.array([broker.get("numTopics", 0) for broker in brokers.values()], np.int64),
        bundles=np.array(
            [
                len(broker.get("bundles", broker.get("lastStats", ())))
                for broker in brokers.values()
            ],
            np.int64,
        ),
        load_ema=np.full(count, np.nan),
        throughput_ema=np.full(count, np.nan),
        seen_ms=zeros,
        clock_ms=zeros,
        reported_ms=zeros,
        heartbeats=np.ones(count, np.bool_),
        left=np.zeros(count, np.bool_),
        sampled=np.ones(count, np.bool_),
        alive=np.ones(count, np.bool_),
        speaking=np.ones(count, np.bool_),
        persistent_topics=np.ones(count, np.bool_),
        non_persistent_topics=np.ones(count, np.bool_),
        versions=("",) * count,
        load_managers=("",) * count,
        weights=weights,
    )
    return ClusterView(
        "conformance", 0, columns, _bundles(names, owner, data, short, long, release)
    )


def _latest(broker: Mapping[str, Any]) -> list[float]:
    """A broker's own four values; where they are missing, the sums of its lastStats."""
    all_stats = [
        stats(form).model_dump(by_alias=True) for form in broker.get("lastStats", {}).values()
    ]
    return [float(broker.get(name, sum(stat[name] for stat in all_stats))) for name in FOUR_NAMES]


def _bundles(
    names: list[str],
    owner: np.ndarray,
    data: Mapping[str, Any],
    short: Rates,
    long: Rates,
    release: Release,
) -> Bundles:
    count = len(names)
    zeros = np.zeros(count, np.int64)
    return Bundles(
        names=pa.array(names, pa.string()),
        owner=owner,
        owner_since_ms=zeros,
        reported_ms=zeros,
        gained=np.zeros(count, np.bool_),
        appeared=np.zeros(count, np.bool_),
        in_flight=np.zeros(count, np.bool_),
        system=np.array([is_system_bundle(name, release) for name in names], np.bool_),
        topics=np.array([data.get(name, {}).get("topics", 0) for name in names], np.int64),
        sessions=zeros,
        cache_bytes=zeros,
        short_samples=np.array(
            [data.get(name, {}).get("shortSamples", 10) for name in names], np.int32
        ),
        long_samples=np.array(
            [data.get(name, {}).get("longSamples", 1000) for name in names], np.int32
        ),
        latest=short,
        short=short,
        long=long,
    )
