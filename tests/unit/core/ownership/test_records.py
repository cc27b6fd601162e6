"""Which version a bundle's next record has, and whether it is forced."""

from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import FoldConfig, fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory, Pending, UnservedBundle
from lb_stream.core.ownership.records import OwnershipRecords, RecordedOwner
from tests.support.build import Report, batch_of

NAME = "t/n/0x00000000_0xffffffff"


def records(memory: Memory, dry_run: bool = False) -> OwnershipRecords:
    """Of a cluster whose only bundle is at `a`."""
    shard, _ = fold(
        Shard.empty(), batch_of([Report("a", 1_000, {NAME: BundleStats()})]), 1_000, FoldConfig()
    )
    return OwnershipRecords.build(view_of("c", [shard], 1_000, {"cpu": 1.0}), memory, dry_run)


def test_versions_grow_by_one_and_what_the_states_let_through_is_not_forced() -> None:
    releasing = Pending("c:1:0", "unload", NAME, "a", "b", 900, 9_000, 5)
    book = records(Memory(published_to=None, versions={NAME: 5}, pending=(releasing,)))
    book.write(NAME, 0, RecordedOwner("Assigning", None, "a", "b", 1_000, "c:2:0"))
    book.write(NAME, 0, RecordedOwner.owned("b", 1_001, source="a", decision_id="c:2:0"))
    assert [(one.state, one.version, one.force) for one in book.published] == [
        ("Assigning", 6, False),
        ("Owned", 7, False),
    ]
    assert book.versions == {NAME: 7}


def test_what_the_states_do_not_let_through_is_forced() -> None:
    pending = Pending("c:1:0", "unload", NAME, "a", "b", 900, 9_000, 2)
    book = records(Memory(published_to=None, versions={NAME: 2}, pending=(pending,)))
    book.write(NAME, 0, RecordedOwner.owned("a", 1_000))
    assert [(one.state, one.version, one.force) for one in book.published] == [("Owned", 3, True)]


def test_of_a_forgotten_bundle_nothing_stays_but_an_empty_record() -> None:
    book = records(
        Memory(
            published_to=None, versions={NAME: 7}, unserved={NAME: UnservedBundle("Free", 10, "a")}
        )
    )
    book.delete(NAME)
    assert [(one.state, one.version) for one in book.published] == [("Init", 7)]
    assert (book.versions, book.unserved, book.units) == ({}, {}, {})


def test_a_dry_run_tells_nothing_and_remembers_what_it_has_not_told() -> None:
    book = records(Memory(published_to=None), dry_run=True)
    book.write(NAME, 0, RecordedOwner.unserved("Free", "a", 1_000))
    assert (book.published, book.unpublished) == ([], {NAME})
