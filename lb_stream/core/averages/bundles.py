"""Folds samples into the bundle table: short- and long-term averages, and owners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.averages.brokers import TakenReports
from lb_stream.core.averages.latest_topics import fold_topic_shares
from lb_stream.core.averages.rows import (
    find_bundle_rows,
    grouped_by_report,
    is_first,
    match_last_batch,
    place_in_group,
    renumber_owners,
    sorted_by_bundle,
)
from lb_stream.core.model.blocks import BUNDLE_SCHEMA, STATS_SCHEMA, Batch, one_array
from lb_stream.core.model.names import are_system_bundles
from lb_stream.core.model.rates import DEFAULT_RATES, RATE_COLUMNS, FoldConfig
from lb_stream.core.model.releases import Release
from lb_stream.core.model.view import Floats, Ints


def fold_samples(
    n: Floats | np.float64,
    before: Floats | np.float64,
    average: Floats,
    sample: Floats,
    into: Floats,
) -> Floats:
    """Return one step of an average: ((n-1)·v + s) / n, in this order of operations.

    `n`: number of samples with this one, capped. `before`: n-1. The result is written to `into`,
    which is returned.
    """
    np.multiply(before, average, out=into)
    into += sample
    into /= n
    return into


NEWS = ("gained", "appeared")
"""Columns about this batch only, which do not carry over."""


@dataclass(slots=True)
class Columns:
    """The bundle columns of a shard as arrays, with new bundles appended at the end.

    A column may be the shard's own array, which must not be changed: see `writable`.
    """

    name: pa.Array
    values: dict[str, NDArray]  # type: ignore[type-arg]
    topic_shares: pa.Array

    @staticmethod
    def build(
        bundles: pa.Table, owner: NDArray[np.int32], new_names: pa.Array, release: Release
    ) -> Columns:
        """Return the columns of a bundle table with these owners, and no news.

        `new_names`: bundles to append, unassigned and with default averages. `release`: whose names
        show which of them are system bundles.
        """
        added = len(new_names)
        others = ("name", "owner", "topic_shares", *NEWS)
        kept = [field.name for field in BUNDLE_SCHEMA if field.name not in others]
        values = {"owner": owner} | {name: bundles[name].to_numpy() for name in kept}
        news = {name: np.zeros(len(bundles) + added, np.bool_) for name in NEWS}
        topic_shares = one_array(bundles["topic_shares"])
        if not added:
            return Columns(one_array(bundles["name"]), values | news, topic_shares)
        values = {
            name: np.concatenate([old, np.zeros(added, old.dtype)]) for name, old in values.items()
        } | news
        values["owner"][len(bundles) :] = -1
        values["appeared"][len(bundles) :] = True
        values["system"][len(bundles) :] = are_system_bundles(new_names, release)
        for span in ("short", "long"):
            for column, default in zip(RATE_COLUMNS, DEFAULT_RATES, strict=True):
                values[f"{span}_{column}"][len(bundles) :] = default
        return Columns(
            pa.concat_arrays([*bundles["name"].chunks, new_names]),
            values,
            pa.concat_arrays([topic_shares, pa.nulls(added, pa.binary())]),
        )

    def writable(self, name: str) -> NDArray:  # type: ignore[type-arg]
        """Return a column that may be changed in place: a copy, if it is the shard's own array."""
        if not self.values[name].flags.writeable:
            self.values[name] = self.values[name].copy()
        return self.values[name]

    def at(self, rows: Ints) -> Ints | slice:
        """Return distinct rows as an index of columns: a slice if they are all rows."""
        return slice(None) if len(rows) == len(self.name) else rows

    def put(
        self,
        name: str,
        at: Ints | slice,
        column: NDArray,  # type: ignore[type-arg]
        kept: Ints | None = None,
    ) -> None:
        """Set the rows `at` of a column; if `at` is a slice, `column` replaces the whole column.

        `kept`: rows that keep their values then. Where there are few of them, this is quicker than
        to set the other rows.
        """
        if isinstance(at, slice):
            if kept is not None:
                column[kept] = self.values[name][kept]
            self.values[name] = column
        else:
            self.writable(name)[at] = column

    def table(self) -> pa.Table:
        """Return the columns as a bundle table."""
        arrays = {"name": self.name, "topic_shares": self.topic_shares}
        columns = [
            arrays[field.name]
            if field.name in arrays
            else pa.array(self.values[field.name], field.type)
            for field in BUNDLE_SCHEMA
        ]
        return pa.table(columns, schema=BUNDLE_SCHEMA)


def fold_bundles(
    bundles: pa.Table,
    brokers: pa.Table,
    row_of: Ints,
    batch: Batch,
    taken: TakenReports,
    config: FoldConfig,
) -> pa.Table:
    """Fold the samples of accepted reports into the bundle table.

    New samples change averages; all accepted reports change owners. `row_of`: old broker row → new
    one, with -1 at the end. `brokers`: the new broker table.
    """
    # Accepted reports in their order, and each sample's place in it.
    reports, broker_of_rank = batch.reports, taken.broker
    append_of_rank = reports["append_ms"].to_numpy()[taken.accepted]
    whole = ~reports["some_bundles"].fill_null(False).to_numpy().astype(np.bool_)[taken.accepted]
    rank = np.full(len(reports) + 1, -1, np.int64)  # report row → place in the order, -1: refused
    rank[taken.accepted] = np.arange(len(taken.accepted))
    samples, rank_of = grouped_by_report(batch.samples, rank)
    # The bundle of each sample, and its owner now. Nearly every batch names the same bundles as the
    # one before: then no name has to be looked up.
    names = one_array(samples["name"])
    owner = renumber_owners(bundles["owner"].to_numpy(), row_of)
    as_before = None
    if whole.all():
        as_before = match_last_batch(names, rank_of, broker_of_rank, bundles, owner, len(brokers))
    if as_before is not None:
        row, by_bundle = as_before
        columns = Columns.build(bundles, owner, names[:0], config.release)
        append_of_broker = np.zeros(len(brokers), np.int64)
        append_of_broker[broker_of_rank] = append_of_rank
        columns.put("reported_ms", columns.at(row), append_of_broker.take(owner[columns.at(row)]))
    else:
        place = place_in_group(is_first(rank_of))
        row, new_names = find_bundle_rows(names, place, rank_of, broker_of_rank, bundles, owner)
        columns = Columns.build(bundles, owner, new_names, config.release)
        if len(taken.accepted):
            by_bundle = sorted_by_bundle(row, rank_of, len(columns.name))
            row = row[by_bundle]
            columns.writable("place")[row] = place[by_bundle]  # the last assignment stays
            _update_owners(columns, row, rank_of[by_bundle], broker_of_rank, append_of_rank, whole)
    # The topics' shares, as last reported, and the averages, of the samples that count.
    if len(taken.accepted):
        columns.topic_shares = fold_topic_shares(
            columns.topic_shares,
            one_array(samples["topic_shares"]),
            row,
            by_bundle,
            columns.values["reported_ms"],
        )
        is_counted = np.zeros(len(rank), np.bool_)  # by rank
        is_counted[rank[taken.fresh]] = True
        if config.sample_mode == "reference":
            is_counted[:] = False
            if len(taken.fresh):
                is_counted[_count_for_all(columns, brokers, broker_of_rank, config)] = True
        if not (is_counted[:-1].all() and pc.all(samples["has_stats"]).as_py()):
            has_stats = samples["has_stats"].to_numpy(zero_copy_only=False)
            kept = (is_counted[rank_of] & has_stats)[by_bundle]
            row, by_bundle = row[kept], by_bundle[kept]
        _average(columns, row, samples, by_bundle, config)
    table = columns.table()
    return table.take(pc.sort_indices(table["name"])) if len(columns.name) > len(bundles) else table


def _update_owners(
    columns: Columns,
    row: Ints,
    rank: Ints,
    broker_of_rank: Ints,
    append_of_rank: Ints,
    whole: NDArray[np.bool_],
) -> None:
    """Update owners: a broker owns a bundle that it reports, until another broker reports it.

    It also loses a bundle that its next whole report omits. `row`, `rank`: the bundle and the
    report of each sample, sorted by row and then rank. `whole`: by rank, whether a report names all
    bundles of its broker. The turn of a report is the number of its broker's whole reports in this
    batch up to it; turn 0 stands for the shard before this batch.
    """
    # Each report's turn, by rank.
    values = columns.values
    before = values["owner"]
    by_broker = np.argsort(broker_of_rank, kind="stable")
    most = max(int(before.max(initial=0)), int(broker_of_rank.max(initial=0))) + 1
    turns = np.bincount(broker_of_rank[whole], minlength=most)  # of each broker in this batch
    first_of_broker = np.cumsum(turns) - turns
    turn_of_rank = np.empty(len(by_broker), np.int64)
    turn_of_rank[by_broker] = (
        np.cumsum(whole[by_broker]) - first_of_broker[broker_of_rank[by_broker]]
    )
    by_broker = by_broker[whole[by_broker]]

    # A sample is a gain if the bundle's last sample was of another broker, or if the same broker
    # has omitted the bundle since.
    owner, turn = broker_of_rank.take(rank), turn_of_rank.take(rank)
    again = np.flatnonzero(~is_first(row))  # samples of bundles that an earlier report named, too
    at = slice(None) if len(row) == len(before) and not len(again) else row
    owner_before = before[at].astype(owner.dtype)
    owner_before[again] = owner[again - 1]
    gains = owner != owner_before
    if turns.max() > 1:
        turn_before = np.zeros_like(turn)
        turn_before[again] = turn[again - 1]
        gains |= turn > turn_before + 1
    gained = np.flatnonzero(gains)
    since = columns.writable("owner_since_ms")
    since[row[gained]] = append_of_rank[rank[gained]]  # the last assignment stays
    columns.writable("reported_ms")[at] = append_of_rank.take(rank)
    after, last_turn = before.copy(), np.zeros(len(before), np.int64)
    after[at], last_turn[at] = owner, turn

    # A broker loses a bundle that one of its later whole reports omits.
    lost = np.flatnonzero(np.append(turns, -1).take(after) > last_turn)
    loser = after[lost]
    since[lost] = append_of_rank[by_broker[first_of_broker[loser] + last_turn[lost]]]
    after[lost] = -1
    values["owner"] = after
    values["gained"] = after != before


def _average(
    columns: Columns,
    rows: Ints,
    samples: pa.Table,
    places: Ints,
    config: FoldConfig,
) -> None:
    """Fold samples into the averages of their bundles.

    `rows`: the bundle of each sample, sorted. `places`: the row of each sample in `samples`. Wave k
    has each bundle's k-th sample, so that a bundle takes its samples one after another.
    """
    if not len(rows):
        return
    first = is_first(rows)
    wave = None if first.all() else place_in_group(first)
    sampled = {field.name: samples[field.name].to_numpy() for field in STATS_SCHEMA}
    for k in range(1 if wave is None else int(wave.max()) + 1):
        chosen = slice(None) if wave is None else wave == k
        picked = places[chosen]
        at = slice(None) if len(picked) == len(columns.name) else rows[chosen]
        others = None  # rows of bundles without a sample, if whole columns are computed
        if not isinstance(at, slice) and 2 * len(picked) >= len(columns.name):
            others = np.flatnonzero(np.bincount(at, minlength=len(columns.name)) == 0)
            everywhere = np.zeros(len(columns.name), places.dtype)
            everywhere[at] = picked
            picked, at = everywhere, slice(None)
        # One block of memory for all columns: large enough for large pages.
        block = iter(np.empty((len(sampled) + 2 * len(RATE_COLUMNS), len(picked))))
        # The latest figures.
        taken = {
            name: column.take(picked, out=next(block).view(column.dtype), mode="clip")
            for name, column in sampled.items()
        }
        for name, column in taken.items():
            columns.put(name, at, column, others)
        # The two averages.
        for span, most in (("short", config.short_samples), ("long", config.long_samples)):
            n = _count_samples(columns, f"{span}_samples", at, most, others)
            before = n - 1.0
            for name in RATE_COLUMNS:
                average = columns.values[f"{span}_{name}"][at]
                sample, into = taken[f"latest_{name}"], next(block)
                folded = fold_samples(n, before, average, sample, into)
                columns.put(f"{span}_{name}", at, folded, others)


def _count_samples(
    columns: Columns, name: str, at: Ints | slice, most: int, kept: Ints | None
) -> Floats | np.float64:
    """Count one more sample, up to `most`, and return the counts as floats.

    Returns one number if all counts are `most`, as arithmetic with it is cheaper. `kept`: as for
    `Columns.put`.
    """
    before = columns.values[name][at]
    if bool((before == most).all()):
        return np.float64(most)
    count = np.minimum(before + np.int32(1), np.int32(most))
    counts = count.astype(np.float64)
    columns.put(name, at, count, kept)
    return counts


def _count_for_all(
    columns: Columns, brokers: pa.Table, broker_of_rank: Ints, config: FoldConfig
) -> Ints:
    """Count every broker's last report as a sample (mode `reference`).

    The last reports of brokers without one in this batch are folded here. Returns the ranks of the
    other brokers' last reports.
    """
    last = np.full(len(brokers), -1)
    last[broker_of_rank] = np.arange(len(broker_of_rank))
    left = brokers["left"].to_numpy(zero_copy_only=False)
    _resample(columns, (last < 0) & ~left, config)
    reported: Ints = last[last >= 0]
    return reported


def _resample(columns: Columns, silent: NDArray[np.bool_], config: FoldConfig) -> None:
    """Fold the last reports of `silent` brokers once more: those without one in this batch."""
    values = columns.values
    rows = np.flatnonzero(np.append(silent, False)[values["owner"]] & (values["short_samples"] > 0))
    last = pa.table({field.name: values[field.name][rows] for field in STATS_SCHEMA})
    _average(columns, rows, last, np.arange(len(rows)), config)
