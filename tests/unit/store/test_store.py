"""What a store promises, wherever it is: on a folder of this machine, on a server that answers as
S3."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from lb_stream.store import Store
from tests.support.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(params=["local", "s3"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "local":
        return Store.at(tmp_path / "kept")
    server = request.getfixturevalue("server")
    return Store.at(f"s3://bucket/{tmp_path.name}", server.options)


def names(kept: Store, folder: str = "") -> list[str]:
    return sorted(entry.name for entry in kept.list(folder))


def test_what_is_put_whole_is_read_whole_by_range_and_by_size(kept: Store) -> None:
    kept.put("a/b.txt", b"0123456789")
    kept.put("a/b.txt", b"abcdefgh")
    assert (
        kept.get("a/b.txt").to_pybytes() == b"abcdefgh" and kept.read_text("a/b.txt") == "abcdefgh"
    )
    assert kept.get_range("a/b.txt", 2, 3).to_pybytes() == b"cde"
    assert kept.get_range("a/b.txt", 6, 5).to_pybytes() == b"gh", "less where the file ends"
    assert kept.size("a/b.txt") == 8


def test_a_file_is_put_once_where_it_must_be_absent(kept: Store) -> None:
    assert kept.put_if_absent("one", b"first")
    assert not kept.put_if_absent("one", b"second")
    assert kept.read_text("one") == "first" and names(kept) == ["one"]


def test_of_many_that_put_the_same_file_at_once_one_succeeds(kept: Store) -> None:
    for name in ("first", "second", "third"):
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(kept.put_if_absent, [name] * 8, [b"%d" % who for who in range(8)]))
        assert won.count(True) == 1 and kept.read_text(name) == str(won.index(True))
    assert names(kept) == ["first", "second", "third"], "nothing is left of the others"


def test_a_draft_is_there_once_it_is_closed_and_takes_nobodys_name(kept: Store) -> None:
    draft = kept.begin("d/draft")
    draft.out.write(b"half")
    assert kept.read_text("d/draft") is None
    draft.out.write(b" and half")
    draft.close()
    assert kept.read_text("d/draft") == "half and half"
    again = kept.begin("d/draft", durable=False)
    again.out.write(b"other")
    again.close()
    assert kept.read_text("d/draft") == "half and half" and names(kept, "d") == ["draft"]


def test_a_list_has_the_files_of_a_folder_and_none_below(kept: Store) -> None:
    for name in ("a/1", "a/2", "a/b/3", "ab", "c"):
        kept.put(name, name.encode())
    assert (names(kept), names(kept, "a"), names(kept / "a"), names(kept, "none")) == (
        ["ab", "c"],
        ["1", "2"],
        ["1", "2"],
        [],
    )
    (entry,) = (one for one in kept.list() if one.name == "ab")
    assert entry.size == 2 and entry.changed_ms > 1_700_000_000_000


def test_a_folder_of_more_files_than_a_server_lists_at_once_is_listed_whole(
    server: S3Server,
) -> None:
    kept = Store.at("s3://bucket/many", server.options)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: kept.put(f"{number:04d}", b""), range(1_005)))
    assert names(kept) == [f"{number:04d}" for number in range(1_005)]


def test_what_is_not_there_is_said_and_may_be_deleted(kept: Store) -> None:
    for read in (kept.get, kept.open, lambda name: kept.get_range(name, 0, 1)):
        with pytest.raises(FileNotFoundError):
            _read(read, "none")
    assert (kept.read_text("none"), kept.size("none"), kept.stat("none")) == (None, None, None)
    kept.put("one", b"")
    for _ in range(2):
        kept.delete("one")
    assert kept.size("one") is None


def _read(read: Callable[[str], object], name: str) -> None:
    found = read(name)
    if not isinstance(found, pa.Buffer):
        found.read()


def test_a_file_can_be_read_here_and_there(kept: Store) -> None:
    table = pa.table({"a": list(range(1000))})
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    kept.put("table", out.getvalue())
    with kept.open("table") as source:
        assert pa.ipc.open_file(source).read_all() == table


def test_a_store_is_a_value_that_tasks_can_be_told(kept: Store) -> None:
    kept.put("one", b"1")
    copy = pickle.loads(pickle.dumps(kept / "deep"))
    assert (
        copy == kept / "deep"
        and copy.read_text("one") is None
        and pickle.loads(pickle.dumps(kept)) == kept
    )


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_request_that_fails_once_is_repeated_and_what_is_there_is_whole(
    server: S3Server, when: str
) -> None:
    kept = Store.at(f"s3://bucket/failing-{when}", server.options)
    server.fail_next("/whole", when)
    kept.put("whole", b"content")
    assert kept.read_text("whole") == "content"


def test_what_a_crash_leaves_of_a_file_is_under_another_name(tmp_path: Path) -> None:
    kept = Store.at(tmp_path)
    kept.put("000000000007-e1-0.arrow", b"whole")
    draft = kept.begin("000000000008-e1-0.arrow")
    draft.out.write(b"half")
    draft.out.flush()
    assert [name.startswith("000000000008-e1-0.arrow.") for name in names(kept)] == [False, True]
    assert kept.read_text("000000000008-e1-0.arrow") is None


def test_one_put_is_one_request_and_one_read_is_one(server: S3Server) -> None:
    kept = Store.at("s3://bucket/counted", server.options)
    asked = []
    for act in (
        lambda: kept.put_if_absent("a", b"x" * 20_000_000),
        lambda: kept.put("b", b"1"),
        lambda: kept.get("a"),
        lambda: kept.get_range("a", 5, 5),
        lambda: list(kept.list()),
        lambda: kept.delete("a"),
    ):
        server.requests()
        act()
        asked.append([request.kind for request in server.requests()])
    assert asked == [["PUT"], ["PUT"], ["GET"], ["GET"], ["LIST"], ["DELETE"]]


def test_trouble_with_a_server_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nosuch_option") as error:
        Store.at("s3://bucket/x", {"nosuch_option": "1"}).read_text("a")
    assert "\n" not in str(error.value)
