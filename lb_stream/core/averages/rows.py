"""Which row of the bundle table each sample belongs to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.blocks import one_array
from lb_stream.core.model.view import Ints


def renumber_owners(owner: NDArray[np.int32], row_of: Ints) -> NDArray[np.int32]:
    """Owners by their new rows.

    `row_of`: old broker row → new one, with -1 at the end, for nobody. The same array when all
    stay.
    """
    if bool((row_of[:-1] == np.arange(len(row_of) - 1)).all()):
        return owner
    return row_of.astype(np.int32).take(owner)


def match_last_batch(
    names: pa.Array,
    rank: Ints,
    broker_of_rank: Ints,
    bundles: pa.Table,
    owner: NDArray[np.int32],
    brokers: int,
) -> tuple[Ints, Ints] | None:
    """The rows of all samples' bundles, sorted, and the sample of each, if every report names what
    its broker owns, in the old order.

    Nearly every batch is so, and then nobody gains or loses anything; None otherwise. All reports
    must be whole. `names` and `rank`: of each sample, by rank. Comparing names costs a tenth of
    hashing them; numbers of bundles are compared before.
    """
    whose = np.add(owner, 1, dtype=np.intp)  # nobody's come first
    samples = np.bincount(rank, minlength=len(broker_of_rank))  # of each report
    first, named = (
        np.full(brokers + 1, -1),
        np.zeros(brokers + 1, np.int64),
    )  # of each broker, nobody before them
    first[broker_of_rank + 1], named[broker_of_rank + 1] = np.cumsum(samples) - samples, samples
    reports = first >= 0
    owned = np.bincount(whose, minlength=brokers + 1)
    if np.count_nonzero(reports) < len(broker_of_rank) or bool((owned != named)[reports].any()):
        return None  # a broker has reported twice, or doesn't name as many bundles as it owns
    known, place = one_array(bundles["name"]), bundles["place"].to_numpy()
    if len(names) == len(known):
        row = np.arange(len(known))
    else:
        row = np.flatnonzero(reports.take(whose))
        known, place, whose = known.take(pa.array(row)), place[row], whose[row]
    if bool((place >= named.take(whose)).any()):
        return None
    by_bundle = first.take(whose) + place
    return (row, by_bundle) if names.take(pa.array(by_bundle)).equals(known) else None


def in_rank_order(samples: pa.Table, rank: Ints) -> tuple[pa.Table, Ints]:
    """The samples in the order of their accepted reports, and the rank of each sample's report.

    Not copied when they come in that order.
    """
    rank_of = rank.take(samples["report"].to_numpy())
    if not len(rank_of) or (rank_of[0] >= 0 and bool((rank_of[1:] >= rank_of[:-1]).all())):
        return samples, rank_of
    rows = np.argsort(rank_of, kind="stable")
    rows = rows[np.searchsorted(rank_of[rows], 0) :]
    return samples.take(pa.array(rows)), rank_of[rows]


def sorted_by_bundle(row: Ints, bundles: int) -> Ints:
    """The order that sorts samples by their bundle's row; samples of one bundle keep their
    order."""
    order = np.empty(bundles, np.int64)
    places = np.arange(len(row))
    order[row] = places
    if len(row) == bundles and bool((order.take(row) == places).all()):  # one sample of each bundle
        return order
    return np.sort((row << 32) | places) & 0xFFFFFFFF  # different keys: no stable sort is needed


def is_first(group: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Where a run of equal values begins."""
    first = np.ones(len(group), np.bool_)
    np.not_equal(group[1:], group[:-1], out=first[1:])
    return first


def place_in_group(first: NDArray[np.bool_]) -> NDArray[np.int32]:
    """0, 1, 2 … within each run, from where the runs begin."""
    starts = np.flatnonzero(first).astype(np.int32)
    lengths = np.diff(starts, append=np.int32(len(first)))
    return np.arange(len(first), dtype=np.int32) - np.repeat(starts, lengths)


def find_bundle_rows(
    names: pa.Array,
    place: NDArray[np.int32],
    rank: Ints,
    broker_of_rank: Ints,
    bundles: pa.Table,
    owner: NDArray[np.int32],
) -> tuple[Ints, pa.Array]:
    """The row of each sample's bundle, and the names not known so far: their rows follow the known
    ones.

    A broker lists its bundles mostly in the order of its last report. So the bundle that was in
    this `place` of its owner's report is tried first: comparing names costs a tenth of hashing
    them. What has another name is looked up among all.
    """
    known = one_array(bundles["name"])
    nowhere = len(known)
    before, group = (
        bundles["place"].to_numpy(),
        np.add(owner, 1, dtype=np.intp),
    )  # nobody's come first
    owned = np.bincount(
        group, minlength=broker_of_rank.max(initial=-1) + 2
    )  # how many each broker has
    first = np.cumsum(owned) - owned  # of a broker's places in one list of all brokers' places
    row_at = np.full(nowhere + 1, -1, np.int64)
    row_at[_replace_unkept(nowhere, first.take(group) + before, before < owned.take(group))] = (
        np.arange(nowhere)
    )
    row_at[nowhere] = -1
    row = row_at.take(
        _replace_unkept(
            nowhere,
            first[broker_of_rank + 1].take(rank) + place,
            place < owned[broker_of_rank + 1].take(rank),
        )
    )
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


def _replace_unkept(other: int, values: Ints, kept: NDArray[np.bool_]) -> Ints:
    """The values, and where they aren't kept the other one: nearly always all are."""
    return values if kept.all() else np.where(kept, values, other)
