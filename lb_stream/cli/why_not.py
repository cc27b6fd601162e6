"""Why nothing happened to a bundle: everything that may keep it where it is, checked against the tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lb_stream.cli.explained import Row, decisions_about, refusals_about
from lb_stream.cli.lake import records, run
from lb_stream.cli.output import CommandError, clock
from lb_stream.cli.rule_words import figure
from lb_stream.core.names import is_system_bundle

if TYPE_CHECKING:
    import duckdb

    from lb_stream.contracts.balancer import BalancerConfig

    Lake = duckdb.DuckDBPyConnection

_BUNDLE = """
    WITH loads AS (
        SELECT cluster, bundle, owner, owner_since_ms,
               short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s AS short_bytes_per_s
        FROM bundle_averages
    ), ranked AS (
        SELECT *, rank() OVER (PARTITION BY cluster, owner ORDER BY short_bytes_per_s DESC) - 1 AS heavier,
               count(*) OVER (PARTITION BY cluster, owner) AS bundles
        FROM loads
    )
    SELECT * FROM ranked WHERE bundle = $1 AND ($2 IS NULL OR cluster = $2) ORDER BY cluster
"""
_ROUND = "SELECT seq, now_ms, error, memory, inputs FROM rounds WHERE cluster = $1 ORDER BY log_seq DESC LIMIT 1"
_BROKER = """
    SELECT * FROM (
        SELECT broker, alive, usage_ratio, bundles, seq, avg(usage_ratio) FILTER (WHERE alive) OVER () AS mean_ratio,
               rank() OVER (ORDER BY usage_ratio DESC) AS place, count(*) OVER () AS brokers
        FROM broker_loads WHERE cluster = $1 AND log_seq = (SELECT max(log_seq) FROM broker_loads WHERE cluster = $1)
    ) WHERE broker = $2
"""
RECENT_MS = 600_000
"""Refusals of so long before the last round are shown."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that may keep a bundle where it is: what the tables say, and whether it does."""

    name: str
    found: str
    keeps: bool


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The answer in a sentence, and everything that was checked."""

    sentence: str
    cluster: str
    bundle: str
    checks: tuple[Check, ...]
    refusals: tuple[Row, ...]

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        return asdict(self)


def why_not(lake: Lake, bundle: str, cluster: str | None) -> WhyNot:
    """Raises CommandError for a bundle that nobody has named, or that is in several clusters and none was said."""
    known = _known(lake, bundle, cluster)
    cluster = known["cluster"]
    last = records(run(lake, _ROUND, [cluster]))[0]
    memory = json.loads(last["memory"])
    config = _config(last, memory)
    broker = records(run(lake, _BROKER, [cluster, known["owner"]])) if known["owner"] else []
    refusals = refusals_about(
        lake,
        "cluster = $1 AND now_ms > $2 AND (list_contains(subjects, $3) OR broker = $4 OR (broker IS NULL AND len(subjects) = 0))",
        [cluster, last["now_ms"] - RECENT_MS, bundle, known["owner"]],
    )
    checks = (
        *_switched(config, memory, bundle),
        _round_failed(last),
        _owner(known, broker),
        _pending(memory, bundle),
        _backing_off(memory, bundle, last["now_ms"]),
        _recently(memory, config, bundle, last["now_ms"]),
        *_dwelling(known, config, last["now_ms"]),
        _interval(memory, config, last["now_ms"]),
        _refused(refusals, bundle),
        *_standing(known, broker),
    )
    return WhyNot(_sentence(bundle, known, checks, config), cluster, bundle, checks, tuple(refusals))


def _known(lake: Lake, bundle: str, cluster: str | None) -> Row:
    found = records(run(lake, _BUNDLE, [bundle, cluster]))
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"{bundle} is in {', '.join(row['cluster'] for row in found)}: say which, --cluster NAME", code=2)
    splits = [
        row for row in decisions_about(lake, "bundle", bundle, cluster, 100) if row["kind"] == "split" and row["outcome"] == "confirmed"
    ]
    if splits:
        children = ", ".join(splits[-1]["children"]) or "its children"
        raise CommandError(f"{bundle} is no more: it was split into {children} ({splits[-1]['decision_id']})", code=2)
    raise CommandError(f'no report names {bundle}: lbctl sql "select bundle from bundle_averages" lists those that are known', code=2)


def _config(last: Row, memory: Row) -> BalancerConfig:
    """The settings in force: what operators have commanded over what the job was given."""
    from lb_stream.core.command_settings import in_force
    from lb_stream.core.config import cluster_config

    return cluster_config(in_force(json.loads(last["inputs"])["settings"], memory.get("orders", {}).get("settings", {}))).balancer


def _switched(config: BalancerConfig, memory: Row, bundle: str) -> list[Check]:
    paused = bool(memory.get("orders", {}).get("paused"))
    namespace = bundle.rpartition("/")[0]
    excluded = namespace in config.shedding_excluded_namespaces
    return [
        Check("balancing", f"enabled = {config.enabled}".lower(), not config.enabled),
        Check("operators", "have paused the balancing" if paused else "have not paused the balancing", paused),
        Check("dry run", "decisions are logged and not published" if config.dry_run else "off", config.dry_run),
        Check("shedding", f"shedding_enabled = {config.shedding_enabled}".lower(), not config.shedding_enabled),
        Check("namespace", f"{namespace} is {'' if excluded else 'not '}in shedding_excluded_namespaces", excluded)
        if not is_system_bundle(bundle)
        else Check("namespace", f"{namespace} is one of the system's: its bundle belongs to its broker", True),
    ]


def _round_failed(last: Row) -> Check:
    error = last["error"]
    return Check(
        "last round", f"failed: {error.strip().splitlines()[-1]}" if error else f"{last['seq']}, without an error", error is not None
    )


def _owner(known: Row, broker: list[Row]) -> Check:
    if known["owner"] is None:
        return Check("owner", "nobody: there is nothing to unload; it is waiting to be assigned", True)
    if broker and not broker[0]["alive"]:
        return Check("owner", f"{known['owner']}, which is dead: its bundles are assigned, not unloaded", True)
    return Check("owner", f"{known['owner']} since {clock(known['owner_since_ms'])}", False)


def _pending(memory: Row, bundle: str) -> Check:
    found = [one for one in memory["pending"] if one["bundle"] == bundle]
    if not found:
        return Check("on its way", "no decision about it is open", False)
    one = found[-1]
    return Check("on its way", f"{one['kind']} {one['decision_id']} is open until {clock(one['expires_ms'])}", True)


def _backing_off(memory: Row, bundle: str, now_ms: int) -> Check:
    retry = memory["retries"].get(bundle)
    if retry is None:
        return Check("back-off", "no decision about it has failed lately", False)
    wait_s = (retry["not_before_ms"] - now_ms) / 1000
    text = f"{retry['attempts']} failed {retry['kind']}s in a row: not before {clock(retry['not_before_ms'])}"
    return Check("back-off", text + (f", in {wait_s:.0f} s" if wait_s > 0 else ""), wait_s > 0)


def _recently(memory: Row, config: BalancerConfig, bundle: str, now_ms: int) -> Check:
    at_ms, grace_ms = memory["recently_unloaded"].get(bundle), config.shedding_grace_period_ms
    if at_ms is None:
        return Check("grace period", f"not unloaded within the last {grace_ms / 1000:.0f} s", False)
    left_s = (at_ms + grace_ms - now_ms) / 1000
    found = f"unloaded at {clock(at_ms)}: left alone for {grace_ms / 1000:.0f} s, {max(0.0, left_s):.0f} s of them to go"
    return Check("grace period", found, left_s >= 0)


def _dwelling(known: Row, config: BalancerConfig, now_ms: int) -> list[Check]:
    """Only where there is such a limit."""
    if not config.min_dwell_ms or known["owner_since_ms"] is None:
        return []
    since_ms, least_ms = known["owner_since_ms"], config.min_dwell_ms
    left_s = (since_ms + least_ms - now_ms) / 1000
    found = f"came at {clock(since_ms)}: stays for {least_ms / 1000:.0f} s (min_dwell_ms), {max(0.0, left_s):.0f} s of them to go"
    return [Check("dwell time", found, left_s > 0)]


def _interval(memory: Row, config: BalancerConfig, now_ms: int) -> Check:
    last_ms, every_ms = memory["last_shed_ms"], config.shedding_interval_ms
    if last_ms is None:
        return Check("shedding pass", "there has been none yet", True)
    return Check(
        "shedding pass",
        f"last at {clock(last_ms)}, {(now_ms - last_ms) / 1000:.0f} s before the last round; every {every_ms / 1000:g} s",
        False,
    )


def _refused(refusals: list[Row], bundle: str) -> Check:
    if not refusals:
        return Check("refusals", "none of it, of its broker or of the whole cluster in ten minutes", False)
    newest = refusals[0]
    saw = f", saw {figure(newest['greatest'], newest['unit'])}" if newest["greatest"] is not None else ""
    saw += f", limit {figure(newest['limit'], newest['unit'])}" if newest["limit"] is not None else ""
    return Check(
        "refusals", f"{newest['rule']} at {newest['broker'] or 'the cluster'} in round {newest['last_seq']}: {newest['why']}{saw}", True
    )


def _standing(known: Row, broker: list[Row]) -> list[Check]:
    if not broker or broker[0]["usage_ratio"] is None:
        return []
    row = broker[0]
    usage, mean = figure(row["usage_ratio"], "ratio"), figure(row["mean_ratio"], "ratio")
    heavier = f"{known['heavier']} of its broker's {known['bundles']} bundles are heavier"
    load = f"{figure(known['short_bytes_per_s'], 'bytes/s')} short-term; {heavier}"
    return [
        Check("its broker", f"{usage} usage, place {row['place']} of {row['brokers']}; mean {mean}", False),
        Check("its own load", load, False),
    ]


def _sentence(bundle: str, known: Row, checks: tuple[Check, ...], config: BalancerConfig) -> str:
    keeping = [check for check in checks if check.keeps]
    if keeping:
        return f"{bundle} stays where it is: {keeping[0].name}: {keeping[0].found}."
    standing = next((check.found for check in checks if check.name == "its broker"), "its broker's load is not known")
    return f"Nothing forbids to move {bundle}: {config.shedding_strategy} sees no reason to. Its broker {known['owner']}: {standing}."
