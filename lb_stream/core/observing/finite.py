"""Brokers with figures that are NaN, infinite or beyond MAX_AMOUNT: they would spoil comparisons.

The contracts reject such figures in reports. Figures that are computed from accepted reports may
still be so. With a limit of 1e-46, which single precision takes for 0, a usage of 5 is infinite and
one of 0 is NaN; sums may be beyond MAX_AMOUNT. So every round checks them: it costs a sum over each
column.
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
    """Return the view without brokers of non-finite figures, and a refusal for each of them.

    A broker is excluded for a figure of its own or of one of its bundles: it is marked as not alive
    and its figures are 0. So it gets and loses no bundle in this round, and counts in no mean. An
    unassigned bundle counts as idle. A refusal names the figures. O(brokers), and a sum over each
    column of the bundles.
    """
    bundles, broken_bundles = _zero_bundles(view.bundles)
    wrong = dict(_find_non_finite_columns(view.brokers))  # row of a broker → its figures
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
    """Return the bundles with 0 in place of non-finite rates, and the rows where that was so."""
    broken = np.zeros(len(bundles), np.bool_)
    with np.errstate(all="ignore"):
        for span in SPANS:
            for column in getattr(bundles, span).columns:
                # The sum is one pass, and nearly always shows that nothing is wrong.
                if not abs(np.add.reduce(column)) <= MAX_AMOUNT:
                    broken |= ~(np.abs(column) <= MAX_AMOUNT)
    if not broken.any():
        return bundles, broken
    latest, short, long = (
        _zero_rates(rates, broken) for rates in (bundles.latest, bundles.short, bundles.long)
    )
    return replace(bundles, latest=latest, short=short, long=long), broken


def _find_non_finite_columns(brokers: Brokers) -> Iterator[tuple[int, list[str]]]:
    """Yield the row of each broker that has non-finite figures, and their names."""
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
        figures = zip(names, fine[:, row].tolist(), strict=True)
        yield row, [name for name, is_finite in figures if not is_finite]


def _exclude_brokers(brokers: Brokers, rows: Bools) -> Brokers:
    """Return the brokers with these marked as not alive, and with 0 for their figures."""
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
    """Return the rates with 0 in these rows."""
    return Rates(*(np.where(rows, 0.0, column) for column in rates.columns))
