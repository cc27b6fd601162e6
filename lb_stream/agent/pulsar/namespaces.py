"""A Pulsar cluster's namespaces: bundles, isolation policies, anti-affinity groups, domains."""

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
"""Parts of a namespace's name. System namespaces have three: their names hold a cluster."""


def read_cluster(
    admin: AdminClient, cluster: str, with_namespaces: bool = True
) -> ClusterNamespaces:
    """Return a cluster's namespaces and their policies, sorted by name. Raises BrokerError.

    Makes two calls for each namespace; without `with_namespaces` two calls in all.
    """
    names = (
        name
        for tenant in sorted(admin.get_json("/admin/v2/tenants") if with_namespaces else ())
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
    """Return where a namespace's hash ring is cut, both ends included. Raises BrokerError."""
    return _boundaries(admin.get_json(f"{NAMESPACES}/{quote(namespace)}/bundles"), namespace)


def _namespace(admin: AdminClient, name: str, cluster: str) -> Namespace | None:
    """Return a namespace; None if it was deleted meanwhile, or is in other clusters only."""
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


def _boundaries(bundles: Any, namespace: str) -> list[int]:
    try:
        return [int(bound, 16) for bound in bundles["boundaries"]]
    except (TypeError, KeyError, ValueError):
        raise BrokerError(
            f"bundles of {namespace}: expected boundaries as hexadecimal numbers, got "
            f"{str(bundles)[:80]}"
        ) from None


def _isolation(policies: dict[str, Any]) -> list[NamespaceIsolation]:
    found = []
    for name, policy in sorted(policies.items()):
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


def _domains(domains: dict[str, dict[str, list[str]]]) -> dict[str, str]:
    """Return broker → its failure domain."""
    return {
        broker: name
        for name, domain in sorted(domains.items())
        for broker in sorted(domain.get("brokers") or ())
    }


def _optional(admin: AdminClient, path: str) -> Any:
    """Return a JSON value; None where the path has none. Raises AdminError."""
    answer = admin.get(path)
    return None if answer.status in (204, 404) else admin.parse(path, answer)


def _text(admin: AdminClient, path: str) -> str:
    """Return an answer that is one word, with or without quotes; empty where the path has none.

    Raises AdminError.
    """
    answer = admin.get(path)
    if answer.status in (204, 404):
        return ""
    if answer.status != 200:
        raise admin.refusal("GET", path, answer)
    return answer.body.decode("utf-8", "replace").strip().strip('"')
