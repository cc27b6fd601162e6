"""A Pulsar cluster's namespaces: bundles, isolation policies, anti-affinity groups, domains."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from pydantic import ValidationError

from lb_stream.agent.adapter import BrokerError
from lb_stream.agent.pulsar.admin import AdminClient
from lb_stream.contracts.base import describe_expected
from lb_stream.contracts.namespaces import ClusterNamespaces, Namespace, NamespaceIsolation

NAMESPACES = "/admin/v2/namespaces"
PARTS = 2
"""Parts of a namespace's name. System namespaces have three: their names hold a cluster."""

_Shape = TypeVar("_Shape")


class _Policies(msgspec.Struct):
    """The fields of a namespace's policies that are read."""

    bundles: Any = None
    replication_clusters: list[str] | None = None


class _FailoverPolicy(msgspec.Struct):
    parameters: dict[str, Any] | None = None


class _IsolationPolicy(msgspec.Struct):
    """The fields of an isolation policy."""

    namespaces: list[str] | None = None
    primary: list[str] | None = None
    secondary: list[str] | None = None
    auto_failover_policy: _FailoverPolicy | None = None


class _Domain(msgspec.Struct):
    """A failure domain."""

    brokers: list[str] | None = None


def read_cluster(
    admin: AdminClient, cluster: str, with_namespaces: bool = True
) -> ClusterNamespaces:
    """Return a cluster's namespaces and their policies, sorted by name. Raises BrokerError.

    Makes two calls for each namespace; without `with_namespaces` two calls in all.
    """
    names = (
        name
        for tenant in sorted(_read_names(admin, "/admin/v2/tenants") if with_namespaces else ())
        for name in sorted(_read_names(admin, f"{NAMESPACES}/{quote(tenant)}"))
        if len(name.split("/")) == PARTS
    )
    found = (_namespace(admin, name, cluster) for name in names)
    of_cluster = f"/admin/v2/clusters/{quote(cluster)}"
    policies_path, domains_path = (
        f"{of_cluster}/{name}" for name in ("namespaceIsolationPolicies", "failureDomains")
    )
    return ClusterNamespaces(
        namespaces=[namespace for namespace in found if namespace is not None],
        isolation=_isolation(_optional(admin, policies_path, dict[str, _IsolationPolicy]) or {}),
        failure_domains=_domains(_optional(admin, domains_path, dict[str, _Domain]) or {}),
    )


def bundle_boundaries(admin: AdminClient, namespace: str) -> list[int]:
    """Return where a namespace's hash ring is cut, both ends included. Raises BrokerError."""
    return _boundaries(admin.get_json(f"{NAMESPACES}/{quote(namespace)}/bundles"), namespace)


def _read_names(admin: AdminClient, path: str) -> list[str]:
    return admin.get_as(path, list[str])


def _namespace(admin: AdminClient, name: str, cluster: str) -> Namespace | None:
    """Return a namespace; None if it was deleted meanwhile, or is in other clusters only."""
    policies = _optional(admin, f"{NAMESPACES}/{quote(name)}", _Policies)
    if policies is None:
        return None
    clusters = policies.replication_clusters or []
    if clusters and cluster not in clusters:
        return None
    group = _text(admin, f"{NAMESPACES}/{quote(name)}/antiAffinity")
    try:
        return Namespace(
            name=name,
            boundaries=_boundaries(policies.bundles, name),
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


def _isolation(policies: dict[str, _IsolationPolicy]) -> list[NamespaceIsolation]:
    found = []
    for name, policy in sorted(policies.items()):
        failover = policy.auto_failover_policy or _FailoverPolicy()
        parameters = failover.parameters or {}
        try:
            found.append(
                NamespaceIsolation(
                    name=name,
                    namespaces=policy.namespaces or [],
                    primary=policy.primary or [],
                    secondary=policy.secondary or [],
                    min_available=int(parameters.get("min_limit", 1)),
                    usage_threshold_percent=float(parameters.get("usage_threshold", 100)),
                )
            )
        except (ArithmeticError, TypeError, ValueError) as error:
            raise BrokerError(f"isolation policy {name}: {' '.join(str(error).split())}") from None
    return found


def _domains(domains: dict[str, _Domain]) -> dict[str, str]:
    """Return broker → its failure domain."""
    return {
        broker: name
        for name, domain in sorted(domains.items())
        for broker in sorted(domain.brokers or ())
    }


def _optional(admin: AdminClient, path: str, shape: type[_Shape]) -> _Shape | None:
    """Return a JSON value of a shape; None where the path has none. Raises AdminError."""
    answer = admin.get(path)
    return None if answer.status in (204, 404) else admin.parse_as(path, answer, shape)


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
