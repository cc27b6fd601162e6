"""The fold of many small shards in one pass.

It costs little more than the fold of one shard with as many bundles. The tables of all shards are
concatenated as if they were one cluster's. Names get the shard's number as a prefix, and partitions
an offset, so that they differ between shards. No row affects another shard's rows, so the result is
that of separate folds.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lb_stream.contracts.base import canonical_json
from lb_stream.core.averages.brokers import SIGNS_OF_LIFE, has_signs_of_life
from lb_stream.core.averages.fold import fold
from lb_stream.core.model.blocks import BUNDLE_SCHEMA, NO_EVENTS, Batch, Shard, one_array
from lb_stream.core.model.names import are_system_bundles
from lb_stream.core.model.rates import FoldConfig
from lb_stream.core.model.releases import Release
from lb_stream.core.model.view import Ints, SortedNames

Folded = tuple[Shard, pa.Table]
_MARK = 8
"""Digits of a mark, which is a shard's number before names: of equal length, so that marks sort."""
_LIVES = pa.array(SIGNS_OF_LIFE)


def fold_together(
    shards: Sequence[Shard], batches: Sequence[Batch], now_ms: int, config: FoldConfig
) -> list[Folded]:
    """Return the result of `fold` for each shard and its batch.

    All shards are of different clusters. A shard is folded separately if its batch has no report or
    sign of life, or has a refused report. In mode `reference` all are, as a new report counts for
    the whole cluster.
    """
    # The shards that can be folded together.
    found: list[Folded | None] = [None] * len(shards)
    joint: list[int] = []
    if config.sample_mode != "reference":
        joint = [at for at, batch in enumerate(batches) if has_signs_of_life(batch)]
    if len(joint) > 1:
        members = _JoinedShards.join([shards[at] for at in joint], [batches[at] for at in joint])
        folded, refused = fold(members.shard(), members.batch(), now_ms, config)
        alone = {int(name[:_MARK]) for name in pc.unique(refused["broker"]).to_pylist()}
        for number, shard in enumerate(members.apart(folded, config.release)):
            if number not in alone:
                found[joint[number]] = shard, NO_EVENTS
    # The others, separately.
    return [
        folded_shard or fold(shard, batch, now_ms, config)
        for folded_shard, shard, batch in zip(found, shards, batches, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _JoinedShards:
    """Shards that are folded as one."""

    shards: Sequence[Shard]
    batches: Sequence[Batch]
    brokers: Ints  # where each shard's brokers begin, and the number of all at the end
    partitions: int  # more than any partition's number

    @staticmethod
    def join(shards: Sequence[Shard], batches: Sequence[Batch]) -> _JoinedShards:
        """Return shards and their batches to be folded as one."""
        begins = np.array([0, *accumulate(len(shard.brokers) for shard in shards)], np.int64)
        tables = [shard.brokers for shard in shards] + [
            table for batch in batches for table in (batch.reports, batch.events)
        ]
        chunks = [chunk for table in tables for chunk in table["partition"].chunks]
        most = pc.max(pa.chunked_array(chunks, pa.int32())).as_py()
        return _JoinedShards(shards, batches, begins, (most or 0) + 1)

    def shard(self) -> Shard:
        """Return all shards as one."""
        brokers = self._marked([shard.brokers for shard in self.shards])
        bundles = self._marked([shard.bundles for shard in self.shards])
        owner = bundles["owner"].to_numpy()
        begins = np.repeat(self.brokers[:-1], [len(shard.bundles) for shard in self.shards])
        return Shard(
            brokers,
            _replace_column(
                bundles,
                "owner",
                pa.array(np.where(owner < 0, owner, owner + begins).astype(np.int32)),
            ),
        )

    def batch(self) -> Batch:
        """Return all batches as one: their reports, samples and signs of life."""
        reports = self._marked([batch.reports for batch in self.batches])
        samples = self._marked([batch.samples for batch in self.batches])
        before = np.cumsum([0, *(len(batch.reports) for batch in self.batches)])[:-1]
        begins = np.repeat(before, [len(batch.samples) for batch in self.batches])
        samples = _replace_column(
            samples, "report", pa.array((samples["report"].to_numpy() + begins).astype(np.int32))
        )
        return Batch(reports, samples, self._lives())

    def apart(self, folded: Shard, release: Release) -> list[Shard]:
        """Return each shard's own part of the shard that was folded as one."""
        of_broker, of_bundle = self._bounds(folded.brokers), self._bounds(folded.bundles)
        brokers = self._own_brokers(folded.brokers, of_broker)
        bundles = _with_own_owners(folded.bundles, of_broker, of_bundle)
        appeared = bundles["appeared"].to_numpy(zero_copy_only=False)
        found = []
        for number, shard in enumerate(self.shards):
            begin, end = of_bundle[number : number + 2].tolist()
            own = bundles.slice(begin, end - begin)
            new = np.flatnonzero(appeared[begin:end])
            if len(new) or len(own) != len(shard.bundles):
                own = _with_own_names(own, new, release)
            else:
                own = own.set_column(0, BUNDLE_SCHEMA.field(0), shard.bundles["name"])
                if not len(self.batches[number].reports) and own.equals(shard.bundles):
                    own = shard.bundles  # the table itself, as it has not changed
            first, last = of_broker[number : number + 2].tolist()
            found.append(Shard(brokers.slice(first, last - first), own))
        return found

    def _bounds(self, table: pa.Table) -> Ints:
        """Return where each shard's rows begin in a table sorted by name, and its length."""
        names = SortedNames.from_array(one_array(table["name"]))
        begins = [bisect_left(names, _mark(number).encode()) for number in range(len(self.shards))]
        return np.array([*begins, len(names)], np.int64)

    def _own_brokers(self, brokers: pa.Table, bounds: Ints) -> pa.Table:
        """Return the brokers with their own names and partitions."""
        added = np.repeat(np.arange(len(self.shards)) * self.partitions, np.diff(bounds))
        marked = brokers["partition"].fill_null(-1).to_numpy()
        partition = np.where(marked < 0, marked, marked - added).astype(np.int32)
        brokers = _replace_column(brokers, "partition", pa.array(partition, mask=partition < 0))
        return _replace_column(brokers, "name", _unmarked(brokers["name"]))

    def _marked(self, tables: Sequence[pa.Table], name: str = "name") -> pa.Table:
        """Return the tables one after another, with names and partitions that differ by shard."""
        joined = pa.concat_tables(tables).combine_chunks()
        lengths = [len(table) for table in tables]
        marks = pa.array([_mark(number) for number in range(len(tables))]).take(
            pa.array(np.repeat(np.arange(len(tables)), lengths))
        )
        joined = _replace_column(
            joined, name, pc.binary_join_element_wise(marks, one_array(joined[name]), "")
        )
        if "partition" in joined.column_names:
            added = np.repeat(np.arange(len(tables)) * self.partitions, lengths)
            joined = _replace_column(
                joined, "partition", pc.add(joined["partition"], pa.array(added, pa.int32()))
            )
        return joined

    def _lives(self) -> pa.Table:
        """Return the signs of life of all batches."""
        own = [
            batch.events.filter(pc.is_in(batch.events["kind"], value_set=_LIVES))
            if len(batch.events)
            else batch.events
            for batch in self.batches
        ]
        lives = self._marked(own, "broker")
        acks = pc.equal(lives["kind"], "ack")
        if not pc.any(acks).as_py():
            return lives
        rows = zip(
            lives["kind"].to_pylist(),
            lives["broker"].to_pylist(),
            lives["payload"].to_pylist(),
            strict=True,
        )
        payloads = [
            _marked_ack(payload, broker[:_MARK]) if kind == "ack" else payload
            for kind, broker, payload in rows
        ]
        return _replace_column(lives, "payload", pa.array(payloads, pa.string()))


def _mark(number: int) -> str:
    """Return the mark of a shard: its number with leading zeros."""
    return f"{number:0{_MARK}d}"


def _unmarked(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return names without their marks."""
    return pc.utf8_slice_codeunits(names, _MARK)


def _marked_ack(payload: str, mark: str) -> str:
    """Return an acknowledgement with a mark before its bundle's name."""
    ack = json.loads(payload)
    return canonical_json(ack | {"bundle": mark + ack["bundle"]}) if ack.get("bundle") else payload


def _replace_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return a table with the column of this name replaced."""
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), column)


def _with_own_owners(bundles: pa.Table, of_broker: Ints, of_bundle: Ints) -> pa.Table:
    """Return the bundles with owners as rows of their own shard's brokers."""
    owner = bundles["owner"].to_numpy()
    begins = np.repeat(of_broker[:-1], np.diff(of_bundle))
    return _replace_column(
        bundles, "owner", pa.array(np.where(owner < 0, owner, owner - begins).astype(np.int32))
    )


def _with_own_names(bundles: pa.Table, new: Ints, release: Release) -> pa.Table:
    """Return one shard's bundles with their own names.

    `new`: rows of bundles that have appeared. Their names show whether they are system bundles.
    """
    names = _unmarked(bundles["name"])
    if len(new):
        system = bundles["system"].to_numpy(zero_copy_only=False)
        system[new] = are_system_bundles(names.take(pa.array(new)), release)
        bundles = _replace_column(bundles, "system", pa.array(system))
    return _replace_column(bundles, "name", names)
