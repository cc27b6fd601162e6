"""Capacities that operators have given, in place of the limits that brokers report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lb_stream.core.config.broker_capacities import parse_rule
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.view import ClusterView


def with_given_capacities(view: ClusterView, rules: Sequence[str]) -> ClusterView:
    """Return the view with given limits and the usages that follow; a later rule wins.

    `rules`: in the form of `broker_capacities`. Applied again, they change nothing more.
    """
    if not rules:
        return view
    brokers = view.brokers
    limits = {name: limit for name, (_, limit) in brokers.resources.items()}
    for rule in map(parse_rule, rules):
        rows = np.array([rule.matches(name) for name in brokers.names], np.bool_)
        if rows.any():
            limits |= {
                name: np.where(rows, given, limits[name]) for name, given in rule.limits().items()
            }
    resources = {name: (usage, limits[name]) for name, (usage, _) in brokers.resources.items()}
    if all(resources[name][1] is limit for name, (_, limit) in brokers.resources.items()):
        return view
    usage = max_weighted_usage(resources, brokers.weights)
    return replace(view, brokers=replace(brokers, usage=usage, resources=resources))
