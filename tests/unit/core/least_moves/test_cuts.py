"""Where a bundle is cut."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.core.least_moves.cuts import (
    MoveEstimate,
    boundaries_of,
    cut_evenly,
    cut_for_rooms,
    find_cuts,
    sizes_of,
)

sizes_of_topics = st.lists(st.integers(1, 50), min_size=2, max_size=9).map(
    lambda sizes: np.array(sizes, np.float64)
)


@given(sizes_of_topics, st.integers(2, 4))
def test_no_cut_into_so_many_pieces_has_a_smaller_largest_piece(
    sizes: np.ndarray, pieces: int
) -> None:
    cut = cut_evenly(sizes, pieces)
    assert len(cut) < pieces
    every = (
        other
        for count in range(1, min(pieces, len(sizes)))
        for other in combinations(range(1, len(sizes)), count)
    )
    least = min(float(sizes_of(other, sizes).max()) for other in every)
    assert float(sizes_of(cut, sizes).max()) <= least * (1 + 1e-6)


@given(
    sizes_of_topics,
    st.floats(0, 100),
    st.lists(st.floats(-1, 60), max_size=5).map(np.array),
    st.integers(2, 8),
)
def test_every_cut_has_pieces_with_topics_and_no_more_than_are_allowed(
    sizes: np.ndarray, kept: float, rooms: np.ndarray, most: int
) -> None:
    for cut in find_cuts(sizes, kept, rooms, most):
        assert 1 <= len(cut) < most and list(cut) == sorted(set(cut))
        assert cut[0] > 0 and cut[-1] < len(sizes)
        assert sizes_of(cut, sizes).sum() == sizes.sum()


@given(st.sets(st.integers(0, 2**32 - 1), min_size=2, max_size=20))
def test_a_boundary_leaves_the_hashes_on_their_sides_of_the_cut(hashes: set[int]) -> None:
    ordered = np.array(sorted(hashes))
    for place in range(1, len(ordered)):
        (boundary,) = boundaries_of((place,), ordered)
        assert (ordered[:place] < boundary).all() and (ordered[place:] >= boundary).all()


def test_pieces_fill_rooms_until_the_broker_may_keep_the_rest() -> None:
    sizes = np.full(10, 1.0)
    assert cut_for_rooms(sizes, 4.0, np.array([3.0, 3.0, 3.0]), 8) == (3, 6)
    assert cut_for_rooms(sizes, 4.0, np.array([3.0, 3.0, 3.0]), 2) == (3,)
    assert cut_for_rooms(sizes, 4.0, np.array([0.5]), 8) == ()


def test_moves_are_few_where_pieces_find_room_and_more_where_it_must_be_made() -> None:
    freed = [np.array([]), np.array([2.0, 3.0, 3.5]), np.array([1.0, 2.0])]
    estimate = MoveEstimate(0, np.array([4.0, 3.0, 2.0]), freed)
    assert estimate.moves(np.array([4.0, 3.0, 2.0])) == 2
    assert estimate.moves(np.array([4.0, 5.0])) == 2, "the piece of 4 finds room after one move"
    assert estimate.moves(np.array([4.0, 9.0])) == np.inf
