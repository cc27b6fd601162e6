"""Contexts: files of settings that commands use when they name none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.lbctl_runner import Result, lbctl
from tests.support.wordings import check_wording


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with two contexts, of which b is in use."""
    for name, interval in (("a", 11_000), ("b", 22_000)):
        (tmp_path / f"{name}.toml").write_text(f"[balancer]\nshedding_interval_ms = {interval}\n")
        assert lbctl("context", "set", name, "--config", f"{name}.toml", cwd=tmp_path).code == 0
    return tmp_path


def interval_ms(cwd: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """The interval of shedding passes, of `config show`."""
    result = lbctl(*arguments, "config", "show", cwd=cwd, env=env)
    assert result.code == 0, result.err
    (line,) = [line for line in result.out.splitlines() if line.startswith("shedding_interval_ms")]
    return line.partition("=")[2].split("#")[0].strip()


def test_the_last_context_that_was_set_is_used_from_any_folder(two: Path) -> None:
    (two / "below").mkdir()
    contexts = {"LB_CONTEXTS": str(two / ".contexts.json")}
    assert interval_ms(two / "below", env=contexts) == "22000"


def test_use_the_option_and_the_variable_choose_another_context(two: Path) -> None:
    assert interval_ms(two, "--context", "a") == "11000"
    assert interval_ms(two, env={"LB_CONTEXT": "a"}) == "11000"
    assert lbctl("context", "use", "a", cwd=two).code == 0
    assert interval_ms(two) == "11000"


def test_a_file_that_is_named_replaces_the_context(two: Path) -> None:
    (two / "c.toml").write_text("[balancer]\nshedding_interval_ms = 33000\n")
    result = lbctl("config", "show", "--config", "c.toml", cwd=two)
    assert "33000" in result.out
    assert "22000" not in result.out


def test_a_list_says_which_context_is_in_use_and_a_deleted_one_is_none(two: Path) -> None:
    rows = lbctl("context", "list", "--json", cwd=two).objects
    assert [(row["context"], row["in_use"]) for row in rows] == [("a", False), ("b", True)]
    assert rows[0]["config"] == str(two / "a.toml")
    assert lbctl("context", "delete", "b", cwd=two).code == 0
    rows = lbctl("context", "list", "--json", cwd=two).objects
    assert [(row["context"], row["in_use"]) for row in rows] == [("a", False)]
    assert interval_ms(two) not in ("11000", "22000")


def test_no_context_can_be_chosen_for_a_command_and_for_good(two: Path) -> None:
    default = interval_ms(two, "--context", "none")
    assert default not in ("11000", "22000")
    assert interval_ms(two, env={"LB_CONTEXT": "none"}) == default
    assert lbctl("context", "use", "none", "--json", cwd=two).objects == [{"current": None}]
    assert interval_ms(two) == default
    assert len(lbctl("context", "list", "--json", cwd=two).objects) == 2


@pytest.mark.parametrize("command", [("sim",), ("reports", "send", "reports.jsonl")])
def test_what_is_made_up_goes_to_a_context_only_if_it_is_named(
    tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(bootstrap: str) -> str:
        asked.append(bootstrap)
        return "refused"

    monkeypatch.setattr("lb_stream.io.kafka.reachable.describe_unreachable", refuse)
    (tmp_path / "real.toml").write_text('[kafka]\nbootstrap_servers = "kafka-1:9092"\n')
    (tmp_path / "reports.jsonl").write_text("")
    assert lbctl("context", "set", "real", "--config", "real.toml", cwd=tmp_path).code == 0
    assert lbctl(*command, cwd=tmp_path).code == 1
    assert lbctl("--context", "real", *command, cwd=tmp_path).code == 1
    assert [address == "kafka-1:9092" for address in asked] == [False, True]


def test_a_start_says_which_context_it_takes_unless_it_is_named(two: Path) -> None:
    print_it = ("balance", "--print")
    assert "context, b" in lbctl(*print_it, cwd=two).err
    assert "context, b" not in lbctl("--context", "b", *print_it, cwd=two).err
    assert "context, b" not in lbctl(*print_it, "--config", "a.toml", cwd=two).err


def test_without_a_home_that_can_be_read_there_is_no_context(tmp_path: Path) -> None:
    """As in a container whose user is another one than HOME's."""
    nowhere = {"LB_CONTEXTS": "", "XDG_CONFIG_HOME": f"{os.devnull}/config"}
    assert interval_ms(tmp_path, env=nowhere) == interval_ms(tmp_path)
    assert lbctl("context", "list", "--json", cwd=tmp_path, env=nowhere).objects == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("context", "use", "c"),
        ("--context", "c", "config", "show"),
        ("context", "set", "c"),
        ("context", "set", "none", "--config", "a.toml"),
    ],
)
def test_a_context_that_is_unknown_or_empty_is_an_error(
    two: Path, arguments: tuple[str, ...]
) -> None:
    _check_refused(lbctl(*arguments, cwd=two), two)


def test_a_missing_file_and_a_broken_list_are_errors(tmp_path: Path) -> None:
    _check_refused(lbctl("context", "set", "c", "--config", "no.toml", cwd=tmp_path), tmp_path)
    (tmp_path / ".contexts.json").write_text("{}")
    _check_refused(lbctl("config", "show", cwd=tmp_path), tmp_path)


def _check_refused(result: Result, folder: Path) -> None:
    assert result.code == 2
    check_wording(result.err.replace(str(folder), "FOLDER"))
