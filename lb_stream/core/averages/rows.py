"""Find the row of the bundle table that each sample belongs to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lb_stream.core.model.blocks import one_array
from lb_stream.core.model.view import Ints


def renumber_owners(owner: NDArray[np.int32], row_of: Ints) -> NDArray[np.int32]:
    """Return owners as rows of the new broker table; the same array if no row has changed.

    `row_of`: old broker row → new one, with -1 at the end, for unassigned bundles.
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
    """Match the samples with the last batch's, if no bundle changes its owner.

    In nearly every batch each report names the bundles that its broker owns, in the order of its
    last report. Then no name is hashed: comparing names takes a tenth of that time. All reports
    must be whole. `names`, `rank`: of each sample, those of a report together. Returns the rows of
    all samples' bundles, sorted, and the sample of each; None: a report differs.
    """
    # Each broker's report: where its samples begin, and how many it has. Row 0: no broker.
    whose = np.add(owner, 1, dtype=np.intp)
    begins = np.flatnonzero(is_first(rank))
    begin = np.zeros(len(broker_of_rank), np.int64)  # of each report; any number without samples
    begin[rank[begins]] = begins
    first = np.full(brokers + 1, -1)
    named = np.zeros(brokers + 1, np.int64)
    first[broker_of_rank + 1] = begin
    named[broker_of_rank + 1] = np.bincount(rank, minlength=len(broker_of_rank))
    reports = first >= 0
    owned = np.bincount(whose, minlength=brokers + 1)
    if np.count_nonzero(reports) < len(broker_of_rank) or bool((owned != named)[reports].any()):
        return None  # a broker has reported twice, or names more or fewer bundles than it owns
    # The bundles of these brokers, and where their names must stand among the samples.
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


def grouped_by_report(samples: pa.Table, rank: Ints) -> tuple[pa.Table, Ints]:
    """Return the samples of accepted reports, those of a report together, and the rank of each.

    `rank`: report row → rank; -1: refused. The samples are not copied if they are so already, as
    decoding tasks leave them; else they are sorted by rank.
    """
    report = samples["report"].to_numpy()
    rank_of = rank.take(report)
    if bool((report[1:] >= report[:-1]).all()) and rank_of.min(initial=0) >= 0:
        return samples, rank_of
    rows = np.argsort(rank_of, kind="stable")
    rows = rows[np.searchsorted(rank_of[rows], 0) :]
    return samples.take(pa.array(rows)), rank_of[rows]


def sorted_by_bundle(row: Ints, rank: Ints, bundles: int) -> Ints:
    """Return the order that sorts samples by the row of their bundle, and those of one by rank."""
    sample_of = np.full(bundles, -1)
    sample_of[row] = np.arange(len(row))
    order: Ints = sample_of[sample_of >= 0]
    if len(order) == len(row):  # no bundle has two samples
        return order
    return np.lexsort((rank, row))


def is_first(group: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return where runs of equal values begin."""
    first = np.ones(len(group), np.bool_)
    np.not_equal(group[1:], group[:-1], out=first[1:])
    return first


def place_in_group(first: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return 0, 1, 2 … within each run; `first`: where the runs begin."""
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
    """Return the row of each sample's bundle, and new names, whose rows follow the known ones.

    A broker mostly lists its bundles in the order of its last report. So the bundle at the same
    `place` of that report is tried first, as comparing names takes a tenth of the time of hashing
    them. Samples with another name are looked up among all names.
    """
    # The row at each place of all brokers' last reports, in one list. Group 0: no broker.
    known = one_array(bundles["name"])
    nowhere = len(known)
    before = bundles["place"].to_numpy()
    group = np.add(owner, 1, dtype=np.intp)
    owned = np.bincount(group, minlength=broker_of_rank.max(initial=-1) + 2)  # by each broker
    first = np.cumsum(owned) - owned  # where a broker's places begin in the list
    row_at = np.full(nowhere + 1, -1, np.int64)
    row_at[_replace_where_not(nowhere, first.take(group) + before, before < owned.take(group))] = (
        np.arange(nowhere)
    )
    row_at[nowhere] = -1
    # The bundle at each sample's place, if it has the sample's name.
    row = row_at.take(
        _replace_where_not(
            nowhere,
            first[broker_of_rank + 1].take(rank) + place,
            place < owned[broker_of_rank + 1].take(rank),
        )
    )
    unknown = row < 0
    as_before = pc.equal(known.take(pa.array(row, mask=unknown if unknown.any() else None)), names)
    if as_before.true_count == len(names):
        return row, names.slice(0, 0)
    # The others, by name.
    others = np.flatnonzero(~as_before.fill_null(False).to_numpy(zero_copy_only=False))
    other_names = names.take(pa.array(others))
    # Where a bundle came or went, those behind it have another place: mostly all others are among
    # the bundles that no sample has matched.
    is_left = np.ones(nowhere, np.bool_)
    is_left[np.delete(row, others)] = False
    left = np.flatnonzero(is_left)
    found = pc.index_in(other_names, value_set=known.take(pa.array(left)))
    if not found.null_count:
        row[others] = left.take(found.to_numpy())
        return row, names.slice(0, 0)
    found = pc.index_in(other_names, value_set=known)
    new_names = pc.unique(other_names.filter(pc.is_null(found)))
    added = pc.add(pc.index_in(other_names, value_set=new_names), pa.scalar(len(known), pa.int32()))
    row[others] = pc.coalesce(found, added).to_numpy()
    return row, new_names


def _replace_where_not(other: int, values: Ints, kept: NDArray[np.bool_]) -> Ints:
    """Return the values with `other` where `kept` is False, without a copy if it never is."""
    return values if kept.all() else np.where(kept, values, other)
