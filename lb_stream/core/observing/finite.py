"""Figures that are no numbers, or so great that their sums would be none: they would spoil every
comparison that they enter.

The contracts refuse NaN, infinities and what is beyond MAX_AMOUNT in a report. Still, figures made
from accepted reports may be so: a usage of 5 with a limit of 1e-46, which single precision takes
for 0, is infinite, a usage of 0 with it is NaN, and sums may be beyond MAX_AMOUNT. So this runs in
every round: it costs a sum over each column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from lb_stream.contracts.base import MAX_AMOUNT
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.resources import max_weighted_usage
from lb_stream.core.model.rules import Refuses
from lb_stream.core.model.view import Bools, Brokers, Bundles, ClusterView, Rates

SPANS = ("latest", "short", "long")


def exclude_non_finite(view: ClusterView) -> tuple[ClusterView, list[Refusal]]:
    """The view without brokers that have a NaN, infinite or endless figure, their own or of one of
    their bundles.

    They are marked as not alive and their figures are 0: nothing is unloaded from them or placed on
    them in this round, and they count in no average. Their bundles stay theirs; an unowned bundle
    counts as idle. One refusal for each broker names its figures. O(brokers), and a sum over each
    column of the bundles.
    """
    bundles, broken_bundles = _zero_bundles(view.bundles)
    wrong = dict(_find_non_finite_columns(view.brokers))
    if not wrong and bundles is view.bundles:
        return view, []
    owners = view.bundles.owner[broken_bundles]
    orphans = np.flatnonzero(broken_bundles)[owners < 0].tolist()
    for owner in np.unique(owners[owners >= 0]).tolist():
        wrong.setdefault(owner, []).append("bundles")
    refusals = [
        refusal(Refuses.NOT_FINITE, view.brokers.names[broker], figures)
        for broker, figures in wrong.items()
    ]
    if orphans:
        refusals.append(
            refusal(Refuses.NOT_FINITE, None, [view.bundles.name(row) for row in orphans])
        )
    excluded = np.zeros(len(view.brokers), np.bool_)
    excluded[list(wrong)] = True
    return replace(
        view, brokers=_exclude_brokers(view.brokers, excluded), bundles=bundles
    ), refusals


def _zero_bundles(bundles: Bundles) -> tuple[Bundles, Bools]:
    """The bundles with 0 for what is no number, and where that was."""
    broken = np.zeros(len(bundles), np.bool_)
    with np.errstate(all="ignore"):
        for span in SPANS:
            for column in getattr(bundles, span).columns:
                if (
                    not abs(np.add.reduce(column)) <= MAX_AMOUNT
                ):  # one pass, where nearly always nothing is wrong
                    broken |= ~(np.abs(column) <= MAX_AMOUNT)
    if not broken.any():
        return bundles, broken
    latest, short, long = (
        _zero_rates(rates, broken) for rates in (bundles.latest, bundles.short, bundles.long)
    )
    return replace(bundles, latest=latest, short=short, long=long), broken


def _find_non_finite_columns(brokers: Brokers) -> Iterator[tuple[int, list[str]]]:
    """Row of each broker with a figure that is no number → which."""
    pairs = chain.from_iterable(brokers.resources.values())
    columns = [
        brokers.usage,
        *pairs,
        *brokers.latest.columns,
        *brokers.short.columns,
        *brokers.long.columns,
    ]
    fine = np.abs(np.array(columns)) <= MAX_AMOUNT
    if fine.all():
        return
    parts = (f"{name}_{part}" for name in brokers.resources for part in ("usage", "limit"))
    names = ["usage", *parts, *(f"{span}_{name}" for span in SPANS for name in Rates.__slots__)]
    for row in np.flatnonzero(~fine.all(axis=0)).tolist():
        yield (
            row,
            [name for name, right in zip(names, fine[:, row].tolist(), strict=True) if not right],
        )


def _exclude_brokers(brokers: Brokers, rows: Bools) -> Brokers:
    resources = {
        name: (np.where(rows, 0.0, usage), np.where(rows, 0.0, limit))
        for name, (usage, limit) in brokers.resources.items()
    }
    return replace(
        brokers,
        usage=np.where(rows, 0.0, max_weighted_usage(resources, brokers.weights)),
        resources=resources,
        alive=brokers.alive & ~rows,
        latest=_zero_rates(brokers.latest, rows),
        short=_zero_rates(brokers.short, rows),
        long=_zero_rates(brokers.long, rows),
    )


def _zero_rates(rates: Rates, rows: Bools) -> Rates:
    return Rates(*(np.where(rows, 0.0, column) for column in rates.columns))
