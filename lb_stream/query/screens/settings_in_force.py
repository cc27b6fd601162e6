"""The settings that were given for a cluster, and what operators' commands have set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lb_stream.query.references import refer, remedy

if TYPE_CHECKING:
    from lb_stream.query.cluster_state import ClusterState
    from lb_stream.query.lake import Row

JOB, COMMAND, PROFILE = "the job's settings", "a command", "the brokers' versions"
"""Where a setting was given."""


def list_given_settings(state: ClusterState) -> list[Row]:
    """Return the settings that aren't defaults: key, value, and where they were given.

    A command's override precedes the job's own setting, which is `job_value` then.
    """
    overrides = state.operator_state.settings
    rows = [
        {"key": key, "value": value, "given_by": COMMAND, "job_value": state.given.get(key)}
        for key, value in overrides.items()
    ]
    rows += [
        {"key": key, "value": value, "given_by": JOB, "job_value": None}
        for key, value in state.given.items()
        if key not in overrides
    ]
    if "profile" not in {row["key"] for row in rows}:
        profile = state.memory.followed.profile
        rows.append({"key": "profile", "value": profile, "given_by": PROFILE, "job_value": None})
    return sorted(rows, key=lambda row: (row["given_by"] != COMMAND, row["key"]))


def list_operator_state(state: ClusterState) -> list[Row]:
    """Return what operators' commands have set and what is in force now.

    Each row has `what`, `text`, `until_ms` (None: until a command ends it), `references` and
    `remedies`.
    """
    rows = (_build_row(*parts) for parts in _list_parts(state))
    return [row for row in rows if row["until_ms"] is None or row["until_ms"] > state.now_ms]


def _build_row(
    what: str, text: str, until_ms: int | None, references: object, remedies: object
) -> Row:
    return {
        "what": what,
        "text": text,
        "until_ms": until_ms,
        "references": references,
        "remedies": remedies,
    }


def _list_parts(state: ClusterState) -> Iterator[tuple[str, str, int | None, object, object]]:
    name, now = state.cluster, state.operator_state
    if now.paused:
        yield "pause", "nothing is shed or split", None, (), (remedy("resume", name),)
    for broker in now.drained:
        ends = (remedy("undrain", name, broker=broker),)
        yield "drain", "it gets no bundle", None, refer("broker", name, broker), ends
    for bundle, until_ms in now.pins.items():
        ends = (remedy("unpin", name, bundle=bundle),)
        yield "pin", "balancing doesn't move it", until_ms, refer("bundle", name, bundle), ends
    for rejected in now.rejections:
        text = f"no {'move' if rejected.is_move else 'split'} of it is proposed: {rejected.why}"
        about = refer("bundle", name, rejected.bundle)
        yield "rejection", f"{text} ({rejected.by})", rejected.until_ms, about, ()
    if now.rollout is not None:
        text = f"of {len(now.rollout.brokers)} brokers, by {now.rollout.by or 'unknown'}"
        yield "rollout", text, None, refer("rollout", name), ()
    for policy in now.isolation:
        yield "isolation policy", policy, None, (), ()
    for namespace, group in now.anti_affinity.items():
        about = refer("namespace", name, namespace)
        yield "anti-affinity group", group, None, about, ()
    for broker, domain in now.failure_domains.items():
        yield "failure domain", domain, None, refer("broker", name, broker), ()
    for capacity in now.capacities:
        yield "capacity", capacity, None, (), ()
