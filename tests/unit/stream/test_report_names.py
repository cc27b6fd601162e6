"""What a process has found out about a broker's names is used again, and never wrongly."""

import pyarrow as pa
import pytest

from lb_stream.stream.report_names import NamesCache, ReportNames
from lb_stream.stream.shards.slicing import name_hashes


def names(*places: int) -> pa.Array:
    return pa.array([f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in places], pa.string())


def test_equal_names_are_neither_checked_nor_hashed_again() -> None:
    known = ReportNames.check(names(1, 2, 3))
    assert ReportNames.check(names(1, 2, 3), known) is known


@pytest.mark.parametrize("places", [(3, 1, 2), (1, 2), (1, 9, 2, 3), (7, 8), ()])
@pytest.mark.parametrize("hashed", [True, False])
def test_other_names_have_their_own_hashes(places: tuple[int, ...], hashed: bool) -> None:
    known = ReportNames.check(names(1, 2, 3))
    if hashed:
        assert known.hashes.tolist() == name_hashes(names(1, 2, 3)).tolist()
    found = ReportNames.check(names(*places), known)
    assert found.names.equals(names(*places))
    assert found.malformed is None
    assert found.hashes.tolist() == name_hashes(names(*places)).tolist()
    assert known.hashes.tolist() == name_hashes(names(1, 2, 3)).tolist()


@pytest.mark.parametrize("known", [None, ReportNames.check(names(1, 2))])
def test_the_first_malformed_name_is_found_among_known_and_new_ones(
    known: ReportNames | None,
) -> None:
    wrong = pa.concat_arrays([names(2, 5), pa.array(["t/n/all", "t/n"]), names(1)])
    assert ReportNames.check(wrong, known).malformed == 2


def test_nothing_is_taken_from_names_of_which_one_is_malformed() -> None:
    wrong = ReportNames.check(pa.array(["t/n/all"]))
    assert wrong.malformed == 0
    again = ReportNames.check(pa.array(["t/n/all"]), wrong)
    assert again is not wrong
    assert again.malformed == 0


def test_of_too_many_names_those_used_longest_ago_go() -> None:
    cache: NamesCache[str, list[int]] = NamesCache(most=5)
    cache.put("a", [1, 2])
    cache.put("b", [1, 2, 3])
    assert cache.get("a") == [1, 2]
    cache.put("c", [1])
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ([1, 2], None, [1])
    cache.put("c", [1, 2, 3, 4, 5, 6])  # one list may be larger
    assert (cache.get("a"), cache.get("c")) == (None, [1, 2, 3, 4, 5, 6])
