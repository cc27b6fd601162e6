"""What is wrong in a cluster's balancer settings, given what the cluster carries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lb_stream.contracts.keys import GivenSettings
from lb_stream.contracts.settings import Settings
from lb_stream.contracts.unread import WHY
from lb_stream.core.config.cluster_config import ClusterConfig
from lb_stream.core.model.followed_profile import FollowedProfile
from lb_stream.core.model.names import namespace_codes
from lb_stream.core.model.view import ClusterView, Floats
from lb_stream.core.shedding.avg import AvgShedderConfig
from lb_stream.core.shedding.base import MB
from lb_stream.core.shedding.overload import OverloadShedderConfig
from lb_stream.core.shedding.threshold import AboveAverageConfig
from lb_stream.core.shedding.transfer import TransferShedderConfig
from lb_stream.core.shedding.uniform import UniformLoadShedderConfig
from lb_stream.core.splitting.trigger import REASONS, ReasonLimits, SplitLoads, reasons
from lb_stream.settings.differing import parse_java_text
from lb_stream.settings.explain import ExplainedSetting, Origins, explain_settings
from lb_stream.settings.load import same_value
from lb_stream.settings.names import list_pulsar_names
from lb_stream.settings.resolve import resolve

LARGEST_STD = 0.5
"""No set of usages from 0 to 1 has a higher standard deviation."""
NEAR_LIMIT = 0.5
"""Automatic splits are idle while no bundle has this part of any limit."""
LOCAL = ("port", "address", "Dir", "Path", "Url", "Name")
"""Ends of Pulsar's keys that differ between brokers by their nature."""


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """Something about settings that an operator should know.

    `kind`: `never` (can't have an effect), `off`, `contradiction`, `idle`, `excluded`, `differs`,
    `unread`, `waits` (its threshold is not reached now).
    """

    kind: str
    key: str  # Pulsar's, or ours where Pulsar has none
    description: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting that the cluster's balancing reads."""

    key: str
    value: object
    unit: str
    given_by: str
    read_by: tuple[str, ...]


def list_settings_in_force(explained: Iterable[ExplainedSetting]) -> tuple[SettingInForce, ...]:
    """Return the settings of Pulsar's that the cluster's balancing reads."""
    return tuple(
        SettingInForce(
            setting.pulsar, setting.value, setting.unit, setting.given_by, setting.read_by
        )
        for setting in explained
        if setting.section == "balancer" and setting.pulsar and setting.read_by
    )


def explain_cluster_settings(
    values: GivenSettings, origins: Origins, profile: str, version: str
) -> tuple[ExplainedSetting, ...]:
    """Explain a cluster's settings, where those that are not given follow the brokers' release."""
    followed = FollowedProfile(profile=profile, version=version)
    given = Settings(balancer=dict(values))
    return tuple(explain_settings(given, origins, "", followed))


def check_settings(
    view: ClusterView,
    values: GivenSettings,
    explained: Iterable[ExplainedSetting],
    profile: str,
    runtimes: Mapping[str, Mapping[str, object]],
) -> tuple[SettingFinding, ...]:
    """Find what is wrong in settings.

    `view`: the cluster as last reported. `runtimes`: broker → its settings in force, by Pulsar's
    keys; with several, those that differ are found too.
    """
    resolved = resolve(values, followed=profile)
    return (
        *_find_off(resolved.config),
        *_find_never(view, resolved.config),
        *(SettingFinding("contradiction", "", warning) for warning in resolved.warnings),
        *_find_excluded(view, resolved.config),
        *_find_idle_splits(view, resolved.config),
        *_find_differing(runtimes),
        *_find_unread(explained, resolved.config.shedder.name),
    )


def _find_off(config: ClusterConfig) -> Iterator[SettingFinding]:
    balancer = config.balancer
    if not balancer.enabled:
        also = [
            key
            for key, is_on in (
                ("loadBalancerSheddingEnabled", balancer.shedding_enabled),
                ("loadBalancerAutoBundleSplitEnabled", config.splitting.split_enabled),
            )
            if is_on
        ]
        without = f", although {' and '.join(also)} are true" if also else ""
        yield SettingFinding(
            "off", "loadBalancerEnabled", f"false: nothing is shed or split{without}"
        )
    elif not balancer.shedding_enabled:
        text = "false: no broker is ever relieved, however hot it is"
        yield SettingFinding("off", "loadBalancerSheddingEnabled", text)
    counted = [name for name, weight in balancer.weights.items() if weight > 0]
    if not counted:
        text = "all weights of resources are 0: every broker's usage is 0, and nothing moves"
        yield SettingFinding("never", "loadBalancerCPUResourceWeight", text)


# --- thresholds ---


def _find_never(view: ClusterView, config: ClusterConfig) -> Iterator[SettingFinding]:
    """Yield the shedder's thresholds: those that can't be reached, and those that aren't now."""
    alive = view.brokers.alive
    usage = view.brokers.usage[alive]
    if not len(usage):
        return
    mean, highest, lowest = float(usage.mean()), float(usage.max()), float(usage.min())
    match config.shedder_config:
        case AboveAverageConfig() as own:
            yield from _check_above_average(own, usage, view.brokers.latest.throughput[alive])
        case OverloadShedderConfig() as own:
            limit = own.overloaded_threshold_percent / 100
            key = "loadBalancerBrokerOverloadedThresholdPercentage"
            yield from _compare(
                key,
                f"a broker sheds at {limit:.0%}",
                f"the fullest is at {highest:.0%}",
                limit > 1,
                highest < limit,
            )
        case UniformLoadShedderConfig() as own:
            yield from _check_uniform(own, view)
        case AvgShedderConfig() as own:
            yield from _check_avg(own, 100 * (highest - lowest))
        case TransferShedderConfig() as own:
            std = float(usage.std())
            yield from _compare(
                "loadBalancerBrokerLoadTargetStd",
                f"bundles move when the standard deviation of loads is above {own.target_std:g}",
                f"it is {std:.3f} now, and can be {LARGEST_STD} at most",
                own.target_std >= LARGEST_STD,
                std <= own.target_std,
            )
    overloaded = config.balancer.overloaded_threshold_percent / 100
    if config.balancer.load_manager == "modular" and lowest > overloaded:
        yield SettingFinding(
            "contradiction",
            "loadBalancerBrokerOverloadedThresholdPercentage",
            f"all brokers are above {overloaded:.0%} (the emptiest is at {lowest:.0%}, the mean is "
            f"{mean:.0%}): none of them is left as a destination",
        )


def _compare(key: str, needs: str, now: str, never: bool, waits: bool) -> Iterator[SettingFinding]:
    if never:
        yield SettingFinding("never", key, f"can never trigger: {needs}; {now}")
    elif waits:
        yield SettingFinding("waits", key, f"does not trigger now: {needs}; {now}")


def _check_above_average(
    own: AboveAverageConfig, usage: Floats, throughput: Floats
) -> Iterator[SettingFinding]:
    mean, highest = float(usage.mean()), float(usage.max())
    limit = mean + own.threshold
    # One busy broker among idle ones is furthest above the mean.
    furthest = max(1.0 - max(mean, 1.0 / len(usage)), 0.0)
    yield from _compare(
        "loadBalancerBrokerThresholdShedderPercentage",
        f"a broker sheds at the mean, {mean:.0%}, and {own.threshold_percent:g} points, so at "
        f"{limit:.0%}",
        f"the fullest is at {highest:.0%}",
        own.threshold >= furthest,
        highest < limit,
    )
    least, most = own.min_throughput_mb * MB, float(throughput.max(initial=0.0))
    if least > most > 0:
        yield SettingFinding(
            "never",
            "loadBalancerBundleUnloadMinThroughputThreshold",
            f"can never be reached: {own.min_throughput_mb:g} MiB/s must move at once, and no "
            f"broker carries more than {most / MB:.2g} MiB/s",
            "lower it to a part of what a broker carries",
        )


def _check_uniform(own: UniformLoadShedderConfig, view: ClusterView) -> Iterator[SettingFinding]:
    alive = view.brokers.alive
    rate, throughput = (
        column[alive] for column in (view.brokers.latest.rate, view.brokers.latest.throughput)
    )
    percent, times = own.rate_difference_percent, own.throughput_multiplier
    apart = 100 * float((rate.max() - rate.min()) / max(rate.min(), 1e-9))
    factor = float(throughput.max() / max(throughput.min(), 1e-9))
    is_reached = (0 < percent < apart) or (0 < times < factor)
    yield from _compare(
        "loadBalancerMsgRateDifferenceShedderThreshold",
        f"the busiest broker must have {percent:g} % more messages than the idlest, or {times:g} "
        "times its throughput",
        f"it has {min(apart, 1e6):.3g} % more, and {min(factor, 1e6):.3g} times",
        percent <= 0 and times <= 0,
        not is_reached,
    )
    least, most = own.min_unload_msgs_per_s, float(rate.max())
    if most and own.max_unload_ratio * most < least:
        yield SettingFinding(
            "never",
            "minUnloadMessage",
            f"can never be reached by messages: {least} msg/s must move at once, and "
            f"{own.max_unload_ratio:.0%} (maxUnloadPercentage) of the busiest broker's are "
            f"{own.max_unload_ratio * most:.0f}",
        )


def _check_avg(own: AvgShedderConfig, points: float) -> Iterator[SettingFinding]:
    low, high = own.low_threshold_points, own.high_threshold_points
    if low > high:
        yield SettingFinding(
            "contradiction",
            "loadBalancerAvgShedderLowThreshold",
            f"{low} is above loadBalancerAvgShedderHighThreshold = {high}",
            "the low threshold is the smaller difference, which must last longer",
        )
    elif low < high and own.hit_count_high >= own.hit_count_low:
        yield SettingFinding(
            "contradiction",
            "loadBalancerAvgShedderHitCountHighThreshold",
            f"{own.hit_count_high} rounds are no fewer than the low threshold's "
            f"{own.hit_count_low}: the high threshold has no effect",
        )
    yield from _compare(
        "loadBalancerAvgShedderLowThreshold",
        f"two brokers must be {low} points apart for {own.hit_count_low} rounds",
        f"the fullest and the emptiest are {points:.0f} points apart",
        min(low, high) >= 100,
        points <= min(low, high),
    )


# --- namespaces and splits ---


def _find_excluded(view: ClusterView, config: ClusterConfig) -> Iterator[SettingFinding]:
    key = "loadBalancerSheddingExcludedNamespaces"
    codes, namespaces = namespace_codes(view.bundles.names)
    load = view.bundles.latest.throughput
    of_each = np.bincount(codes, load, len(namespaces))
    total = float(load.sum())
    for name in config.balancer.shedding_excluded_namespaces:
        if name not in namespaces:
            text = f"{name} is excluded, and no broker serves a bundle of it: is it misspelt?"
        else:
            share = float(of_each[namespaces.index(name)]) / total if total else 0.0
            text = f"{name} is never shed: {share:.0%} of the traffic stays where it is"
        yield SettingFinding("excluded", key, text)


def _find_idle_splits(view: ClusterView, config: ClusterConfig) -> Iterator[SettingFinding]:
    """Yield what automatic splits do: nothing while no bundle is near a limit."""
    bundles, splitting = view.bundles, config.splitting
    own = np.flatnonzero((bundles.owner >= 0) & ~bundles.system)
    if not len(own):
        return
    loads = SplitLoads(
        bundles.topics, bundles.sessions, bundles.long.rate, bundles.long.throughput
    ).take(own)
    limits = ReasonLimits.from_config(splitting)
    above = int(np.count_nonzero(reasons(loads, splitting)))
    parts = {
        reason: float(np.max(column) / limit)
        for reason, column, limit in zip(
            REASONS[1:],
            (loads.topics, loads.sessions, loads.rate, loads.throughput),
            limits[1:],
            strict=True,
        )
        if limit > 0
    }
    key = "loadBalancerAutoBundleSplitEnabled"
    if not (splitting.split_enabled and config.balancer.enabled):
        if above:
            text = f"off, and {above} bundles are above a limit of splitting"
            yield SettingFinding("off", key, text)
        return
    nearest = max(parts, key=lambda reason: parts[reason], default="")
    traffic = bundles.latest.throughput[own]
    if not above and parts and parts[nearest] < NEAR_LIMIT:
        largest = float(traffic.max() / traffic.sum()) if traffic.sum() else 0.0
        yield SettingFinding(
            "idle",
            key,
            f"on, and idle: the largest bundle has {parts[nearest]:.0%} of a limit ({nearest}) and "
            f"carries {largest:.0%} of the cluster's traffic",
            "limits are absolute figures: they don't split a bundle because it is large here",
        )
    codes, namespaces = namespace_codes(bundles.names)
    counts = np.bincount(codes[own], minlength=len(namespaces))
    full = np.flatnonzero(counts >= splitting.namespace_max_bundles)
    if above and len(full):
        yield SettingFinding(
            "never",
            "loadBalancerNamespaceMaximumBundles",
            f"{len(full)} namespaces have {splitting.namespace_max_bundles} bundles or more, such "
            f"as {namespaces[int(full[0])]}: they are split no further",
        )


# --- keys ---


def _find_differing(runtimes: Mapping[str, Mapping[str, object]]) -> Iterator[SettingFinding]:
    """Yield keys of balancing that brokers of one cluster have with several values."""
    known = list_pulsar_names()
    for key in sorted({key for own in runtimes.values() for key in own if key in known}):
        values: dict[str, list[str]] = {}
        for broker, own in runtimes.items():
            values.setdefault(parse_java_text(own.get(key)) or "not set", []).append(broker)
        if len(values) > 1 and not key.endswith(LOCAL):
            how = ", ".join(f"{value} at {_count(names)}" for value, names in values.items())
            yield SettingFinding(
                "differs",
                key,
                f"brokers differ: {how}",
                "the leader's value counts, and any broker may lead",
            )


def _count(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} brokers"


def _find_unread(explained: Iterable[ExplainedSetting], strategy: str) -> Iterator[SettingFinding]:
    """Yield the settings that were given another value than their default, and nothing reads."""
    unread = [
        f"{setting.pulsar or setting.key} = {setting.value}"
        for setting in explained
        if setting.is_ineffective
        and setting.key not in WHY
        and not same_value(setting.value, setting.default)
    ]
    if unread:
        yield SettingFinding(
            "unread", "", f"set, and without effect under {strategy}: {', '.join(unread)}"
        )
