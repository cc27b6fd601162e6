"""What a Pulsar cluster says about its namespaces: bundles, isolation policies, anti-affinity
groups, failure domains."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar.admin import AdminClient
from lb_stream.contracts.base import describe_expected
from lb_stream.contracts.namespaces import ClusterNamespaces, Namespace, NamespaceIsolation

NAMESPACES = "/admin/v2/namespaces"
PARTS = 2
"""Of a namespace's name.

Names with a cluster in them (the brokers' heartbeats) have three, and belong to their brokers.
"""


def read_cluster(admin: AdminClient, cluster: str) -> ClusterNamespaces:
    """Everything about the namespaces of a cluster, sorted by name; two calls for each.

    Raises BrokerError.
    """
    names = (
        name
        for tenant in sorted(admin.get_json("/admin/v2/tenants"))
        for name in sorted(admin.get_json(f"{NAMESPACES}/{quote(tenant)}"))
        if len(name.split("/")) == PARTS
    )
    found = (_namespace(admin, name, cluster) for name in names)
    of_cluster = f"/admin/v2/clusters/{quote(cluster)}"
    return ClusterNamespaces(
        namespaces=[namespace for namespace in found if namespace is not None],
        isolation=_isolation(_optional(admin, f"{of_cluster}/namespaceIsolationPolicies") or {}),
        failure_domains=_domains(_optional(admin, f"{of_cluster}/failureDomains") or {}),
    )


def bundle_boundaries(admin: AdminClient, namespace: str) -> list[int]:
    """Where a namespace's hash ring is cut now, both ends included. Raises BrokerError."""
    return _boundaries(admin.get_json(f"{NAMESPACES}/{quote(namespace)}/bundles"), namespace)


def _namespace(admin: AdminClient, name: str, cluster: str) -> Namespace | None:
    """None for one that was deleted meanwhile, or that lives in other clusters only."""
    policies = _optional(admin, f"{NAMESPACES}/{quote(name)}")
    if policies is None:
        return None
    clusters = policies.get("replication_clusters") or []
    if clusters and cluster not in clusters:
        return None
    group = _text(admin, f"{NAMESPACES}/{quote(name)}/antiAffinity")
    try:
        return Namespace(
            name=name,
            boundaries=_boundaries(policies.get("bundles"), name),
            anti_affinity_group=group or None,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise BrokerError(f"namespace {name}: expected {describe_expected(first)}") from None


def _boundaries(given: Any, namespace: str) -> list[int]:
    try:
        return [int(bound, 16) for bound in given["boundaries"]]
    except (TypeError, KeyError, ValueError):
        raise BrokerError(
            f"bundles of {namespace}: expected boundaries as hexadecimal numbers, got "
            f"{str(given)[:80]}"
        ) from None


def _isolation(given: dict[str, Any]) -> list[NamespaceIsolation]:
    found = []
    for name, policy in sorted(given.items()):
        parameters = (policy.get("auto_failover_policy") or {}).get("parameters") or {}
        try:
            found.append(
                NamespaceIsolation(
                    name=name,
                    namespaces=policy.get("namespaces") or [],
                    primary=policy.get("primary") or [],
                    secondary=policy.get("secondary") or [],
                    min_available=int(parameters.get("min_limit", 1)),
                    usage_threshold_percent=float(parameters.get("usage_threshold", 100)),
                )
            )
        except (ValidationError, ValueError) as error:
            raise BrokerError(f"isolation policy {name}: {' '.join(str(error).split())}") from None
    return found


def _domains(given: dict[str, Any]) -> dict[str, str]:
    return {
        broker: domain
        for domain, one in sorted(given.items())
        for broker in sorted(one.get("brokers") or ())
    }


def _optional(admin: AdminClient, path: str) -> Any:
    """A JSON value; None where there is no such thing. Raises AdminError."""
    answer = admin.get(path)
    return None if answer.status in (204, 404) else admin.parsed(path, answer)


def _text(admin: AdminClient, path: str) -> str:
    """An answer that is a word, with or without quotes; empty where there is no such thing.

    Raises AdminError.
    """
    answer = admin.get(path)
    if answer.status in (204, 404):
        return ""
    if answer.status != 200:
        raise admin.refusal("GET", path, answer)
    return answer.body.decode("utf-8", "replace").strip().strip('"')
