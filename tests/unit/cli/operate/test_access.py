"""`lbctl access`: who may do what, and which line says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording

KEY = "3f1c22a09b7d4e10"
FILE = f"""
[[grants]]
to = ["alice", "group:on-call"]
role = "operator"
clusters = ["eu-*"]

[[grants]]
to = ["bob", "key:{KEY}"]
verbs = ["drain"]
brokers = ["broker-1*"]
"""


def access(folder: Path, *arguments: str, text: str = FILE) -> Result:
    (folder / "rights.toml").write_text(text)
    return lbctl("access", *arguments, "--set", "security.rights=rights.toml", cwd=folder)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("drain broker-3.eu:8080 --cluster eu-1 --as alice", 2),
        ("drain http://broker-3.eu:8080 --cluster eu-1 --as alice", 2),
        ("move shop/orders broker-3.eu:8080 --cluster eu-1 --as eve --group on-call", 2),
        ("pause --cluster eu-1 --as alice", 2),
        ("pause --cluster us-1 --as alice", None),
        ("settings --cluster eu-1 --as alice", None),
        ("drain broker-12.eu:8080 --cluster us-1 --as bob", 7),
        (f"drain broker-12.eu:8080 --cluster us-1 --as eve --key {KEY}", 7),
        ("drain broker-2.eu:8080 --cluster us-1 --as bob", None),
        ("drain --cluster us-1 --as bob", None),
        ("move shop/orders --cluster us-1 --as bob", None),
    ],
)
def test_the_answer_names_the_line_that_says_yes(
    tmp_path: Path, words: str, line: int | None
) -> None:
    answer = access(tmp_path, "can-i", *words.split(), "--json")
    assert answer.code == (1 if line is None else 0), answer.err
    place = answer.objects[0]["place"]
    assert place == (None if line is None else f"rights.toml, line {line}")
    assert answer.objects[0]["allowed"] is (line is not None)


def test_a_no_shows_the_grants_that_are_on_something_else(tmp_path: Path) -> None:
    yes = access(tmp_path, "can-i", "drain", "broker-1:1", "--cluster", "eu-1", "--as", "bob")
    no = access(tmp_path, "can-i", "drain", "broker-2:1", "--cluster", "eu-1", "--as", "bob")
    check_wording(yes.out)
    check_wording(no.out + no.err)
    assert "line 7" in yes.out and "line 7" in no.err


def test_the_list_is_limited_to_a_user_and_a_cluster(tmp_path: Path) -> None:
    def lines(*more: str) -> list[int]:
        rows = access(tmp_path, "list", *more, "--json").objects
        return [int(row["place"].rpartition(" ")[2]) for row in rows]

    assert lines() == [2, 7]
    assert lines("--as", "alice") == lines("--group", "on-call") == [2]
    assert lines("--cluster", "us-1") == lines("--key", KEY) == [7]
    assert lines("--as", "alice", "--cluster", "us-1") == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("can-i drian broker-1 --cluster eu-1 --as bob", FILE),
        ("can-i drain broker-1 broker-2 --cluster eu-1 --as bob", FILE),
        ("can-i drain broker-1 --as bob", FILE),
        ("list", '[[grants]]\nto = ["a"]\nverbs = ["drian"]'),
    ],
)
def test_wrong_words_and_files_are_exit_code_2(tmp_path: Path, words: str, text: str) -> None:
    answer = access(tmp_path, *words.split(), text=text)
    assert (answer.code, answer.out) == (2, "")
    check_wording(answer.err)


def test_without_a_file_there_is_nothing_to_show(tmp_path: Path) -> None:
    answer = lbctl("access", "list", cwd=tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert "security.rights" in answer.err
