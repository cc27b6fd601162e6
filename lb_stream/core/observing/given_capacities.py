"""Capacities that operators have given, in place of the limits that brokers report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lb_stream.core.config.broker_capacities import parse_rule
from lb_stream.core.model.policies import host_of
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import ClusterView


def with_given_capacities(view: ClusterView, rules: Sequence[str]) -> ClusterView:
    """Return the view with given limits and the usages that follow; a later rule wins.

    `rules`: in the form of `broker_capacities`. Applied again, they change nothing more.
    """
    if not rules:
        return view
    # Most rules name a broker: a thousand of these must not take a thousand looks at each broker.
    brokers, rows_of = view.brokers, dict[str, list[int]]()
    for row, broker in enumerate(brokers.names):
        for name in {broker, host_of(broker)}:
            rows_of.setdefault(name, []).append(row)
    limits = {name: limit.copy() for name, (_, limit) in brokers.resources.items()}
    for rule in map(parse_rule, rules):
        matching = rows_of.get(rule.pattern, []) if rule.is_name else rule.find_rows(brokers.names)
        for resource, given in rule.limits().items():
            limits[resource][matching] = given
    if all((limits[name] == limit).all() for name, (_, limit) in brokers.resources.items()):
        return view
    resources = {name: (usage, limits[name]) for name, (usage, _) in brokers.resources.items()}
    usage = max_weighted_usage(resources, brokers.weights)
    return replace(view, brokers=replace(brokers, usage=usage, resources=resources))
