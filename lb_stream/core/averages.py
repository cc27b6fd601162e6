"""The short- and long-term averages of bundles, and the fold of one micro-batch's reports into a shard.

Source: spec/averages.md §1; what is a new sample and which report is an old one: docs/architecture.md "Rulings".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.blocks import BROKER_SCHEMA, BUNDLE_SCHEMA, EVENT_SCHEMA, FOUR, REPORT_FIELDS, STATS_SCHEMA, Batch, Shard
from lb_stream.core.names import SYSTEM_PATTERN

DEFAULT_FOUR = (50_000.0, 50_000.0, 50.0, 50.0)
"""What a bundle's averages are before its first sample, in the order of FOUR: 50 000 bytes/s and 50 msg/s each way."""

CLOCK_CORRECTED_MS = 3_600_000
"""A report whose lastUpdate lies this far or farther behind the broker's previous one is no old report: its clock was set back."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoldConfig:
    """Sizes of the two averages (samples), how long an unnamed bundle and a silent broker are remembered (ms), what is sampled.

    `per_report`: a new report is one sample of each bundle that it names. `reference`: a batch with any new report is one sample of
    each bundle in every broker's last report, as each update of the reference's leader is.
    """

    short_samples: int = 10
    long_samples: int = 1000
    bundle_retention_ms: int = 300_000
    broker_retention_ms: int = 86_400_000
    sample_mode: Literal["per_report", "reference"] = "per_report"


def fold_samples(n: Floats | np.float64, before: Floats | np.float64, average: Floats, sample: Floats) -> Floats:
    """One step of the average: ((n-1)·v + s) / n, in that order of operations. `n`: samples, this one included, capped; `before`: n-1."""
    result: Floats = before * average
    result += sample
    result /= n
    return result


def fold(shard: Shard, batch: Batch, now_ms: int, config: FoldConfig) -> tuple[Shard, pa.Table]:
    """Fold one micro-batch into a shard.

    Reports count in the order of their append time, partition and offset, one by one; the order of the rows given is irrelevant.
    Returns the shard after the batch and the events of reports that were refused as old (EVENT_SCHEMA). A table of the shard that the batch
    doesn't change is returned itself: without reports only signs of life and the passing of time can change anything.
    """
    if not len(batch.reports):
        lives = pc.any(pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE))).as_py()
        brokers = _fold_brokers(shard.brokers, batch)[0] if lives or pc.any(shard.brokers["sampled"]).as_py() else shard.brokers
        news = pc.any(shard.bundles["gained"]).as_py() or pc.any(shard.bundles["appeared"]).as_py()
        none = np.zeros(len(shard.bundles), np.bool_)
        bundles = _replaced(shard.bundles, {"gained": none, "appeared": none}) if news else shard.bundles
        return _forget(_follow_acks(Shard(brokers, bundles), batch), now_ms, config), EVENT_SCHEMA.empty_table()
    brokers, row_of, taken = _fold_brokers(shard.brokers, batch)
    bundles = _fold_bundles(shard.bundles, brokers, row_of, batch, taken, config)
    return _forget(_follow_acks(Shard(brokers, bundles), batch), now_ms, config), taken.refused


def add_bundles(shard: Shard, names: Iterable[str], now_ms: int) -> Shard:
    """The shard with bundles that no report has named yet: unowned, with default averages. Those it knows stay as they are.

    Like every unowned bundle, they are forgotten when no report names them for the retention time.
    """
    known = shard.bundles["name"].combine_chunks()
    wanted = pc.unique(pa.array(list(names), pa.string()))
    new = wanted.filter(pc.invert(pc.is_in(wanted, value_set=known)))
    columns = _Columns.of(shard.bundles, new)
    columns.writable("owner_since_ms")[len(known) :] = now_ms
    columns.values |= dict.fromkeys(_NEWS, np.zeros(len(columns.name), np.bool_))
    table = columns.table()
    return Shard(shard.brokers, table.take(pc.sort_indices(table["name"])))


SIGNS_OF_LIFE = ("heartbeat", "ack", "goodbye")


# What decides about a report; the rest of it is only carried along, as columns.
_DECISIVE = ("name", "topic", "partition", "offset", "append_ms", "digest", "start_timestamp_ms", "last_update_ms", "no_load")
_CARRIED = [field.name for field in REPORT_FIELDS]


def _in_order(partition: Ints, offset: Ints, append_ms: Ints) -> Ints:
    """The order in which records count: that of their append times, then of partition and offset.

    Within a partition it is the order of the offsets: should the clock that stamps the records run backwards, it stands still here.
    """
    by_offset = np.lexsort((offset, partition))
    times = append_ms[by_offset]
    for part in np.split(times, np.flatnonzero(np.diff(partition[by_offset])) + 1):
        np.maximum.accumulate(part, out=part)
    order: Ints = by_offset[np.argsort(times, kind="stable")]
    return order


@dataclass(frozen=True, slots=True)
class _Taken:
    """What came of a batch's reports: rows of its reports in the order in which they count, and the refused ones as events."""

    accepted: Ints
    fresh: Ints  # accepted ones that are new samples
    loads: Ints  # accepted ones that say what their broker carries
    refused: pa.Table
    broker: Ints  # of each accepted one


def _fold_brokers(known: pa.Table, batch: Batch) -> tuple[pa.Table, Ints, _Taken]:
    """Take reports, heartbeats, acknowledgements and goodbyes into the broker table.

    Returns it, where each known broker's row is in it (with -1 at the end, for nobody), and what came of the reports.
    """
    lives = batch.events.filter(pc.is_in(batch.events["kind"], value_set=pa.array(SIGNS_OF_LIFE)))
    reports, kinds = len(batch.reports), lives["kind"]
    before = known["name"].combine_chunks()
    names = pa.concat_arrays([*batch.reports["name"].chunks, *lives["broker"].chunks])
    row = pc.index_in(names, value_set=before)
    new_names = pc.unique(names.filter(pc.is_null(row)))
    if len(new_names):
        row = pc.coalesce(row, pc.add(pc.index_in(names, value_set=new_names), pa.scalar(len(before), pa.int32())))
    broker = row.to_numpy().astype(np.int64)  # of each record
    at = {name: np.concatenate([batch.reports[name].to_numpy(), lives[name].to_numpy()]) for name in ("partition", "offset", "append_ms")}
    order = _in_order(at["partition"], at["offset"], at["append_ms"])
    taken = _take_reports(known, batch.reports, order[order < reports], broker)

    count = len(before) + len(new_names)
    reported = np.append(np.arange(len(before)), np.full(len(new_names), -1))  # row of the known brokers and then of the reports
    reported[broker[taken.loads]] = len(before) + taken.loads  # the last one stays
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    begins = np.append(np.full(len(before), -1), np.full(len(new_names), len(order)))  # a new one's life begins with its first report
    np.minimum.at(begins, broker[taken.loads], place[taken.loads])
    lived = order[place[order] >= begins[broker[order]]]

    def padded(name: str) -> NDArray[Any]:
        column = known[name].fill_null(-1) if name == "partition" else known[name]
        values = column.to_numpy(zero_copy_only=False)
        return np.concatenate([values, np.zeros(len(new_names), values.dtype)])

    seen_ms, reported_ms, partition, heartbeats, left = map(padded, ("seen_ms", "reported_ms", "partition", "heartbeats", "left"))
    np.maximum.at(seen_ms, broker[lived], at["append_ms"][lived])
    partition[broker[lived]] = at["partition"][lived]
    reported_ms[broker[taken.loads]] = at["append_ms"][taken.loads]
    beats, goodbyes, decisive = (np.zeros(len(names), np.bool_) for _ in range(3))
    beats[reports:], goodbyes[reports:] = (pc.equal(kinds, kind).to_numpy(zero_copy_only=False) for kind in ("heartbeat", "goodbye"))
    decisive[reports:] = decisive[taken.loads] = True  # a report is no goodbye, and neither is another sign of life
    heartbeats[broker[lived[beats[lived]]]] = True
    last = lived[decisive[lived]]
    left[broker[last]] = goodbyes[last]
    sampled = np.zeros(count, np.bool_)
    sampled[broker[taken.fresh]] = True
    columns = {
        "name": pa.concat_arrays([before, new_names]),
        "seen_ms": seen_ms,
        "reported_ms": reported_ms,
        "heartbeats": heartbeats,
        "left": left,
        "partition": pa.array(partition, mask=partition < 0),
        "sampled": sampled,
    }
    order = np.flatnonzero(reported >= 0)  # without those that have reported nothing yet
    if len(new_names):
        order = order[pc.sort_indices(columns["name"].take(pa.array(order))).to_numpy()]
        columns = {name: pa.array(column).take(pa.array(order)) for name, column in columns.items()}
    row_of = np.full(count + 1, -1)
    row_of[order] = np.arange(len(order))
    taken = replace(taken, broker=row_of[broker[taken.accepted]])
    return _broker_table(known, batch.reports, columns, reported[order]), np.append(row_of[: len(before)], -1), taken


def _take_reports(known: pa.Table, reports: pa.Table, order: Ints, broker: Ints) -> _Taken:
    """Which reports count, which are new samples, which are refused. `order`: their rows; `broker`: row of each one's broker.

    Where a known broker's only report is concerned, as nearly always, that is a comparison of columns.
    """
    no_load = reports["no_load"].fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    broker = broker[: len(reports)]
    alone = (np.bincount(broker)[broker] == 1) & (broker < len(known)) & ~no_load if len(broker) else no_load
    rows = np.flatnonzero(alone)
    its = pa.array(broker[rows])
    accepted, fresh = alone.copy(), np.zeros(len(reports), np.bool_)
    gap = known["last_update_ms"].to_numpy()[broker[rows]] - reports["last_update_ms"].to_numpy()[rows]
    same_start = known["start_timestamp_ms"].to_numpy()[broker[rows]] == reports["start_timestamp_ms"].to_numpy()[rows]
    accepted[rows] = ~(same_start & (gap > 0) & (gap < CLOCK_CORRECTED_MS))
    same = pc.equal(known["digest"].take(its), reports["digest"].take(pa.array(rows))).fill_null(False)
    fresh[rows] = accepted[rows] & ~same.to_numpy().astype(np.bool_)
    expected = {at: _expected(int(known["last_update_ms"][int(broker[at])].as_py())) for at in rows[~accepted[rows]].tolist()}
    if len(rows) < len(reports):
        _take_one_by_one(known, reports, order[~alone[order]], broker, accepted, fresh, expected)
    refused = order[~accepted[order]]
    events = [_refusal(report, expected[at]) for at, report in zip(refused.tolist(), _rows(reports, refused), strict=True)]
    taken = order[accepted[order]]
    return _Taken(taken, order[fresh[order]], taken[~no_load[taken]], pa.Table.from_pylist(events, EVENT_SCHEMA), broker[taken])


def _take_one_by_one(
    known: pa.Table,
    reports: pa.Table,
    order: Ints,
    broker: Ints,
    accepted: NDArray[np.bool_],
    fresh: NDArray[np.bool_],
    expected: dict[int, str],
) -> None:
    """The same for the reports of new brokers and of those with several, where what one says depends on those before it."""
    mine = np.unique(broker[order])
    mine = mine[mine < len(known)]
    last = dict(zip(mine.tolist(), _rows(known, mine), strict=True))
    for at, report in zip(order.tolist(), _rows(reports, order), strict=True):
        before = last.get(int(broker[at]))
        if report["no_load"]:
            accepted[at] = fresh[at] = before is not None
            expected[at] = "a broker whose load data is known: its top bundles alone say too little"
            continue
        if before is not None and _is_old(before, report):
            expected[at] = _expected(before["last_update_ms"])
            continue
        accepted[at] = True
        fresh[at] = before is None or before["digest"] != report["digest"]
        last[int(broker[at])] = report


def _is_old(before: dict[str, Any], report: dict[str, Any]) -> bool:
    gap: int = before["last_update_ms"] - report["last_update_ms"]
    return before["start_timestamp_ms"] == report["start_timestamp_ms"] and 0 < gap < CLOCK_CORRECTED_MS


def _rows(table: pa.Table, rows: Ints) -> list[dict[str, Any]]:
    """What decides about a report, as objects."""
    names = [name for name in _DECISIVE if name in table.column_names]
    return table.select(names).take(pa.array(rows, pa.int64())).to_pylist() if len(rows) else []


def _broker_table(known: pa.Table, reports: pa.Table, lives: dict[str, Any], reported: Ints) -> pa.Table:
    """Brokers as given, with what they reported from that row of the known ones and then of the reports."""
    carried = pa.concat_tables([known.select(_CARRIED), reports.select(_CARRIED)]).take(pa.array(reported))
    columns = {name: carried[name] if name in _CARRIED else lives[name] for name in BROKER_SCHEMA.names}
    return pa.table(columns, schema=BROKER_SCHEMA).combine_chunks()


def _expected(last_update_ms: int) -> str:
    return f">= {last_update_ms}, the broker's last report"


def _refusal(report: dict[str, Any], expected: str) -> dict[str, Any]:
    given = ("key", report["name"]) if report["no_load"] else ("lastUpdate", str(report["last_update_ms"]))
    payload = {"field": given[0], "value": given[1], "expected": expected}
    position = {name: report[name] for name in ("topic", "partition", "offset", "append_ms")}
    return {"kind": "rejected", "broker": report["name"], "payload": json.dumps(payload)} | position


def _renumber(before: pa.ChunkedArray, after: pa.ChunkedArray) -> NDArray[np.int32]:
    """Old broker row → new broker row, with one entry more at the end so that -1 (nobody) stays -1."""
    rows = pc.index_in(before, value_set=after.combine_chunks()).fill_null(-1)
    return np.append(rows.to_numpy().astype(np.int32), np.int32(-1))


_NEWS = ("gained", "appeared")
"""Columns that say what this very batch has brought: nobody asks for those of the batch before."""


@dataclass(slots=True)
class _Columns:
    """The bundle columns of a shard as arrays, new bundles appended at the end, without its news.

    A column may share the shard's memory: see `writable`.
    """

    name: pa.Array
    values: dict[str, NDArray]  # type: ignore[type-arg]

    @staticmethod
    def of(bundles: pa.Table, new_names: pa.Array) -> _Columns:
        added = len(new_names)
        values = {field.name: bundles[field.name].to_numpy() for field in BUNDLE_SCHEMA if field.name not in ("name", *_NEWS)}
        if not added:
            return _Columns(bundles["name"].combine_chunks(), values)
        values = {name: np.concatenate([old, np.zeros(added, old.dtype)]) for name, old in values.items()}
        values["owner"][len(bundles) :] = -1
        values["system"][len(bundles) :] = pc.match_substring_regex(new_names, SYSTEM_PATTERN).to_numpy(zero_copy_only=False)
        for span in ("short", "long"):
            for column, default in zip(FOUR, DEFAULT_FOUR, strict=True):
                values[f"{span}_{column}"][len(bundles) :] = default
        return _Columns(pa.concat_arrays([*bundles["name"].chunks, new_names]), values)

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


def _fold_bundles(
    bundles: pa.Table, brokers: pa.Table, row_of: Ints, batch: Batch, taken: _Taken, config: FoldConfig
) -> pa.Table:
    """Take the samples of accepted reports into the bundle table: averages from new samples, ownership from all."""
    reports = batch.reports
    rank = np.full(len(reports) + 1, -1, np.int64)  # report row → place in the order, -1: refused
    rank[taken.accepted] = np.arange(len(taken.accepted))
    samples, rank_of = _in_rank_order(batch.samples, rank)
    broker_of_rank = taken.broker
    owner = row_of.astype(np.int32).take(bundles["owner"].to_numpy())
    place = _place_in_group(_is_first(rank_of))
    row, new_names = _look_up(samples["name"].combine_chunks(), place, rank_of, broker_of_rank, bundles, owner)
    columns = _Columns.of(bundles, new_names)
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
    """The samples of accepted reports in the order of these, and the rank of each one's report; uncopied when that is how they come."""
    rank_of = rank[samples["report"].to_numpy()]
    if not len(rank_of) or (rank_of[0] >= 0 and bool((rank_of[1:] >= rank_of[:-1]).all())):
        return samples, rank_of
    rows = np.argsort(rank_of, kind="stable")
    rows = rows[np.searchsorted(rank_of[rows], 0) :]
    return samples.take(pa.array(rows)), rank_of[rows]


def _by_bundle(row: Ints, bundles: int) -> Ints:
    """The order of the samples by their bundle's row, several of a bundle as they come."""
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
    known = bundles["name"].combine_chunks()
    nowhere = len(known)
    before, group = bundles["place"].to_numpy(), np.add(owner, 1, dtype=np.intp)  # nobody's come first
    owned = np.bincount(group, minlength=broker_of_rank.max(initial=-1) + 2)  # how many each broker has
    first = np.cumsum(owned) - owned  # of a broker's places in one list of all brokers' places
    row_at = np.full(nowhere + 1, -1, np.int64)
    row_at[np.where(before < owned.take(group), first.take(group) + before, nowhere)] = np.arange(nowhere)
    row_at[nowhere] = -1
    tried_at = first[broker_of_rank + 1].take(rank) + place
    row = row_at.take(np.where(place < owned[broker_of_rank + 1].take(rank), tried_at, nowhere))
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


def _own(
    columns: _Columns,
    row: Ints,
    rank: Ints,
    broker_of_rank: Ints,
    append_of_rank: Ints,
    whole: NDArray[np.bool_],
) -> None:
    """A report's broker owns what it names, until another broker names it or its own next whole report doesn't.

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
    after, last_turn = before.copy(), np.zeros(len(before), np.int64)
    after[at], last_turn[at] = owner, turn

    lost = np.flatnonzero(np.append(turns, -1).take(after) > last_turn)
    loser = after[lost]
    since[lost] = append_of_rank[by_broker[first_of_broker[loser] + last_turn[lost]]]
    after[lost] = -1
    values["owner"] = after
    values["gained"] = after != before


def _average(
    columns: _Columns,
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


def _resample(columns: _Columns, silent: NDArray[np.bool_], config: FoldConfig) -> None:
    """Fold the bundles of brokers without a report in this batch once more, as they stood in their last one."""
    values = columns.values
    rows = np.flatnonzero(np.append(silent, False)[values["owner"]] & (values["short_samples"] > 0))
    last = pa.table({field.name: values[field.name][rows] for field in STATS_SCHEMA})
    _average(columns, rows, last, np.arange(len(rows)), config)


def _follow_acks(shard: Shard, batch: Batch) -> Shard:
    """Who owns the bundles that acknowledgements name: with these they change hands before a report shows it.

    An acknowledgement counts until its broker's next report in the same batch, and only for bundles that are known.
    """
    acks = _naming_bundles(batch)
    if not acks:
        return shard
    rows = pc.index_in(pa.array([ack["bundle"] for ack in acks], pa.string()), value_set=shard.bundles["name"].combine_chunks()).to_pylist()
    number = {name: at for at, name in enumerate(shard.brokers["name"].to_pylist())}
    columns = {
        name: shard.bundles[name].to_numpy(zero_copy_only=False).copy() for name in ("owner", "owner_since_ms", "reported_ms", "gained")
    }
    for ack, row in zip(acks, rows, strict=True):
        broker = number.get(ack["broker"])
        if row is None or broker is None:
            continue
        owner, acquired = int(columns["owner"][row]), ack["outcome"] == "acquired"
        if acquired and owner not in (-1, broker) and columns["reported_ms"][row] > ack["append_ms"]:
            continue  # somebody else has named it since
        if owner != broker if acquired else owner == broker:
            columns["owner"][row] = broker if acquired else -1
            columns["owner_since_ms"][row] = ack["append_ms"]
            columns["gained"][row] = True
        if acquired:
            columns["reported_ms"][row] = max(columns["reported_ms"][row], ack["append_ms"])
    return Shard(shard.brokers, _replaced(shard.bundles, columns))


def _naming_bundles(batch: Batch) -> list[dict[str, Any]]:
    """The acknowledgements by which a bundle changes hands, in order; those that a later report of their broker follows are left out."""
    found = []
    for event in batch.events.filter(pc.equal(batch.events["kind"], "ack")).to_pylist():
        ack = json.loads(event["payload"])
        if ack.get("bundle") and ack.get("outcome") in ("released", "acquired"):
            found.append(event | {"bundle": ack["bundle"], "outcome": ack["outcome"]})
    if not found:
        return []
    whole = batch.reports.filter(pc.invert(batch.reports["some_bundles"].fill_null(False)))
    last: dict[tuple[str, int], int] = {}
    for report in whole.select(["name", "partition", "offset"]).to_pylist():
        place = report["name"], report["partition"]
        last[place] = max(last.get(place, -1), report["offset"])
    found.sort(key=lambda ack: (ack["append_ms"], ack["partition"], ack["offset"]))
    return [ack for ack in found if ack["offset"] > last.get((ack["broker"], ack["partition"]), -1)]


def _forget(shard: Shard, now_ms: int, config: FoldConfig) -> Shard:
    """Drop bundles that nobody has named, and brokers that have been silent, for their retention time.

    A broker stays much longer than it takes to declare it dead: that is decided with the whole cluster in sight. With it goes
    its ownership, from which its bundles' own time begins.
    """
    silent = now_ms - shard.brokers["seen_ms"].to_numpy() >= config.broker_retention_ms
    if silent.any():
        brokers = shard.brokers.filter(pa.array(~silent))
        before = shard.bundles["owner"].to_numpy()
        owner = _renumber(shard.brokers["name"], brokers["name"])[before]
        lost = (owner < 0) & (before >= 0)
        since = np.where(lost, now_ms, shard.bundles["owner_since_ms"].to_numpy())
        gained = lost | shard.bundles["gained"].to_numpy(zero_copy_only=False)
        shard = Shard(brokers, _replaced(shard.bundles, {"owner": owner, "owner_since_ms": since, "gained": gained}))
    gone = shard.bundles["owner"].to_numpy() < 0
    if config.bundle_retention_ms:  # a round must have seen that it is nobody's
        gone &= ~shard.bundles["gained"].to_numpy(zero_copy_only=False)
    expired = gone & (now_ms - shard.bundles["owner_since_ms"].to_numpy() >= config.bundle_retention_ms)
    return Shard(shard.brokers, shard.bundles.filter(pa.array(~expired))) if expired.any() else shard


def _replaced(bundles: pa.Table, columns: dict[str, NDArray]) -> pa.Table:  # type: ignore[type-arg]
    for name, values in columns.items():
        index = BUNDLE_SCHEMA.get_field_index(name)
        bundles = bundles.set_column(index, BUNDLE_SCHEMA.field(index), pa.array(values, BUNDLE_SCHEMA.field(index).type))
    return bundles
