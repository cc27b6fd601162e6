"""Samples of bundles, taken into the bundle table: short and long averages, who owns what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.averages.brokers import TakenReports
from lb_stream.core.averages.samples import DEFAULT_FOUR, Floats, FoldConfig, Ints, fold_samples
from lb_stream.core.model.blocks import BUNDLE_SCHEMA, FOUR, STATS_SCHEMA, Batch, one_array
from lb_stream.core.model.names import SYSTEM_PATTERN

NEWS = ("gained", "appeared")
"""Columns that say what this very batch has brought: nobody asks for those of the batch before."""


@dataclass(slots=True)
class Columns:
    """The bundle columns of a shard as arrays, new bundles appended at the end, without its news.

    A column may share the shard's memory: see `writable`.
    """

    name: pa.Array
    values: dict[str, NDArray]  # type: ignore[type-arg]

    @staticmethod
    def of(bundles: pa.Table, new_names: pa.Array) -> Columns:
        added = len(new_names)
        values = {field.name: bundles[field.name].to_numpy() for field in BUNDLE_SCHEMA if field.name not in ("name", *NEWS)}
        if not added:
            return Columns(one_array(bundles["name"]), values)
        values = {name: np.concatenate([old, np.zeros(added, old.dtype)]) for name, old in values.items()}
        values["owner"][len(bundles) :] = -1
        values["system"][len(bundles) :] = pc.match_substring_regex(new_names, SYSTEM_PATTERN).to_numpy(zero_copy_only=False)
        for span in ("short", "long"):
            for column, default in zip(FOUR, DEFAULT_FOUR, strict=True):
                values[f"{span}_{column}"][len(bundles) :] = default
        return Columns(pa.concat_arrays([*bundles["name"].chunks, new_names]), values)

    def writable(self, name: str) -> NDArray:  # type: ignore[type-arg]
        """One column that may be changed in place: a copy, if it is the shard's own."""
        if not self.values[name].flags.writeable:
            self.values[name] = self.values[name].copy()
        return self.values[name]

    def put(self, name: str, at: Ints | slice, column: NDArray) -> None:  # type: ignore[type-arg]
        """Set the rows `at`; a slice is all of them, and then the column itself is taken: nothing is copied."""
        if isinstance(at, slice):
            self.values[name] = column
        else:
            self.writable(name)[at] = column

    def table(self) -> pa.Table:
        columns = [self.name if field.name == "name" else pa.array(self.values[field.name], field.type) for field in BUNDLE_SCHEMA]
        return pa.table(columns, schema=BUNDLE_SCHEMA)


def fold_bundles(bundles: pa.Table, brokers: pa.Table, row_of: Ints, batch: Batch, taken: TakenReports, config: FoldConfig) -> pa.Table:
    """Take the samples of accepted reports into the bundle table: averages from new samples, ownership from all."""
    reports = batch.reports
    rank = np.full(len(reports) + 1, -1, np.int64)  # report row → place in the order, -1: refused
    rank[taken.accepted] = np.arange(len(taken.accepted))
    samples, rank_of = _in_rank_order(batch.samples, rank)
    broker_of_rank = taken.broker
    owner = row_of.astype(np.int32).take(bundles["owner"].to_numpy())
    place = _place_in_group(_is_first(rank_of))
    row, new_names = _look_up(one_array(samples["name"]), place, rank_of, broker_of_rank, bundles, owner)
    columns = Columns.of(bundles, new_names)
    values = columns.values
    values["owner"] = np.concatenate([owner, np.full(len(new_names), -1, np.int32)])
    values["gained"] = np.zeros(len(values["owner"]), np.bool_)
    values["appeared"] = np.arange(len(values["owner"])) >= len(bundles)
    if len(taken.accepted):
        columns.writable("place")[row] = place  # the last one stays
        by_bundle = _by_bundle(row, len(columns.name))
        row = row[by_bundle]
        append_of_rank = reports["append_ms"].to_numpy()[taken.accepted]
        whole = ~reports["some_bundles"].fill_null(False).to_numpy().astype(np.bool_)[taken.accepted]
        _own(columns, row, rank_of[by_bundle], broker_of_rank, append_of_rank, whole)
        is_counted = np.zeros(len(rank), np.bool_)  # by rank
        is_counted[rank[taken.fresh]] = True
        if config.sample_mode == "reference":
            last = np.full(len(brokers), -1)  # each broker's last report in this batch
            last[broker_of_rank] = np.arange(len(broker_of_rank))
            is_counted[:] = False
            if len(taken.fresh):
                is_counted[last[last >= 0]] = True
                _resample(columns, (last < 0) & ~brokers["left"].to_numpy(zero_copy_only=False), config)
        if not (is_counted[:-1].all() and pc.all(samples["has_stats"]).as_py()):
            kept = (is_counted[rank_of] & samples["has_stats"].to_numpy(zero_copy_only=False))[by_bundle]
            row, by_bundle = row[kept], by_bundle[kept]
        _average(columns, row, samples, by_bundle, config)
    table = columns.table()
    return table.take(pc.sort_indices(table["name"])) if len(new_names) else table


def _in_rank_order(samples: pa.Table, rank: Ints) -> tuple[pa.Table, Ints]:
    """The samples in the order of their accepted reports, and the rank of each sample's report. Not copied when they come in that order."""
    rank_of = rank[samples["report"].to_numpy()]
    if not len(rank_of) or (rank_of[0] >= 0 and bool((rank_of[1:] >= rank_of[:-1]).all())):
        return samples, rank_of
    rows = np.argsort(rank_of, kind="stable")
    rows = rows[np.searchsorted(rank_of[rows], 0) :]
    return samples.take(pa.array(rows)), rank_of[rows]


def _by_bundle(row: Ints, bundles: int) -> Ints:
    """The order that sorts samples by their bundle's row; samples of one bundle keep their order."""
    order = np.empty(bundles, np.int64)
    places = np.arange(len(row))
    order[row] = places
    if len(row) == bundles and bool((order.take(row) == places).all()):  # one sample of each bundle
        return order
    return np.sort((row << 32) | places) & 0xFFFFFFFF  # different keys: no stable sort is needed


def _is_first(group: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Where a run of equal values begins."""
    first = np.ones(len(group), np.bool_)
    np.not_equal(group[1:], group[:-1], out=first[1:])
    return first


def _place_in_group(first: NDArray[np.bool_]) -> NDArray[np.int32]:
    """0, 1, 2 … within each run, from where the runs begin."""
    starts = np.flatnonzero(first).astype(np.int32)
    lengths = np.diff(starts, append=np.int32(len(first)))
    return np.arange(len(first), dtype=np.int32) - np.repeat(starts, lengths)


def _look_up(
    names: pa.Array, place: NDArray[np.int32], rank: Ints, broker_of_rank: Ints, bundles: pa.Table, owner: NDArray[np.int32]
) -> tuple[Ints, pa.Array]:
    """The row of each sample's bundle, and the names not known so far: their rows follow the known ones.

    A broker lists its bundles mostly in the order of its last report. So the bundle that was in this `place` of its owner's
    report is tried first: comparing names costs a tenth of hashing them. What has another name is looked up among all.
    """
    known = one_array(bundles["name"])
    nowhere = len(known)
    before, group = bundles["place"].to_numpy(), np.add(owner, 1, dtype=np.intp)  # nobody's come first
    owned = np.bincount(group, minlength=broker_of_rank.max(initial=-1) + 2)  # how many each broker has
    first = np.cumsum(owned) - owned  # of a broker's places in one list of all brokers' places
    row_at = np.full(nowhere + 1, -1, np.int64)
    row_at[_or(nowhere, first.take(group) + before, before < owned.take(group))] = np.arange(nowhere)
    row_at[nowhere] = -1
    row = row_at.take(_or(nowhere, first[broker_of_rank + 1].take(rank) + place, place < owned[broker_of_rank + 1].take(rank)))
    unknown = row < 0
    as_before = pc.equal(known.take(pa.array(row, mask=unknown if unknown.any() else None)), names)
    if as_before.true_count == len(names):
        return row, names.slice(0, 0)
    others = np.flatnonzero(~as_before.fill_null(False).to_numpy(zero_copy_only=False))
    other_names = names.take(pa.array(others))
    found = pc.index_in(other_names, value_set=known)
    new_names = pc.unique(other_names.filter(pc.is_null(found)))
    added = pc.add(pc.index_in(other_names, value_set=new_names), pa.scalar(len(known), pa.int32()))
    row[others] = pc.coalesce(found, added).to_numpy()
    return row, new_names


def _or(other: int, values: Ints, kept: NDArray[np.bool_]) -> Ints:
    """The values, and where they aren't kept the other one: nearly always all are."""
    return values if kept.all() else np.where(kept, values, other)


def _own(
    columns: Columns,
    row: Ints,
    rank: Ints,
    broker_of_rank: Ints,
    append_of_rank: Ints,
    whole: NDArray[np.bool_],
) -> None:
    """Update owners: a broker owns what its report names, until another broker names it or its own next whole report doesn't.

    `row` and `rank` are the samples', sorted by row and then rank: a report's place in the order. A turn is the number of its
    broker's whole reports up to it; turn 0 is what the shard remembers.
    """
    values = columns.values
    before = values["owner"]
    by_broker = np.argsort(broker_of_rank, kind="stable")
    most = max(int(before.max(initial=0)), int(broker_of_rank.max(initial=0))) + 1
    turns = np.bincount(broker_of_rank[whole], minlength=most)  # of each broker in this batch
    first_of_broker = np.cumsum(turns) - turns
    turn_of_rank = np.empty(len(by_broker), np.int64)
    turn_of_rank[by_broker] = np.cumsum(whole[by_broker]) - first_of_broker[broker_of_rank[by_broker]]
    by_broker = by_broker[whole[by_broker]]

    owner, turn = broker_of_rank.take(rank), turn_of_rank.take(rank)
    again = np.flatnonzero(~_is_first(row))  # bundles that several reports name: what the one before said
    at = slice(None) if len(row) == len(before) and not len(again) else row
    owner_before = before[at].astype(owner.dtype)
    owner_before[again] = owner[again - 1]
    gains = owner != owner_before
    if turns.max() > 1:
        turn_before = np.zeros_like(turn)
        turn_before[again] = turn[again - 1]
        gains |= turn > turn_before + 1  # or its report in between did not name the bundle
    gained = np.flatnonzero(gains)
    since = columns.writable("owner_since_ms")
    since[row[gained]] = append_of_rank[rank[gained]]  # a bundle's last one stays
    columns.writable("reported_ms")[at] = append_of_rank.take(rank)
    if isinstance(at, slice) and whole.all() and turns.max() == 1 and not len(gained):  # each is named by the one report of its owner
        values["gained"] = np.zeros(len(before), np.bool_)
        return
    after, last_turn = before.copy(), np.zeros(len(before), np.int64)
    after[at], last_turn[at] = owner, turn

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
    """Fold samples into their rows: `rows` are sorted, `places` says where in `samples` the sample of each is.

    A bundle with several samples takes them one after another: wave k holds everybody's k-th.
    """
    if not len(rows):
        return
    first = _is_first(rows)
    wave = None if first.all() else _place_in_group(first)
    sampled = {field.name: samples[field.name].to_numpy() for field in STATS_SCHEMA}
    for k in range(1 if wave is None else int(wave.max()) + 1):
        chosen = slice(None) if wave is None else wave == k
        picked = places[chosen]
        at = slice(None) if len(picked) == len(columns.name) else rows[chosen]
        taken = {name: column.take(picked) for name, column in sampled.items()}
        for name, column in taken.items():
            columns.put(name, at, column)
        for span, most in (("short", config.short_samples), ("long", config.long_samples)):
            count = np.minimum(columns.values[f"{span}_samples"][at] + np.int32(1), np.int32(most))
            columns.put(f"{span}_samples", at, count)
            n = _number_or_column(count)
            before = n - 1.0
            for name in FOUR:
                average = columns.values[f"{span}_{name}"][at]
                columns.put(f"{span}_{name}", at, fold_samples(n, before, average, taken[f"latest_{name}"]))


def _number_or_column(count: NDArray[np.int32]) -> Floats | np.float64:
    """The counts as floats; one number when they are all alike, as averages that are full have it: arithmetic with it is cheaper."""
    return np.float64(count[0]) if bool((count == count[0]).all()) else count.astype(np.float64)


def _resample(columns: Columns, silent: NDArray[np.bool_], config: FoldConfig) -> None:
    """Fold the bundles of brokers without a report in this batch once more, with the figures of their last report."""
    values = columns.values
    rows = np.flatnonzero(np.append(silent, False)[values["owner"]] & (values["short_samples"] > 0))
    last = pa.table({field.name: values[field.name][rows] for field in STATS_SCHEMA})
    _average(columns, rows, last, np.arange(len(rows)), config)
