"""What the shell offers for names."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from lb_stream.cli.shared import completion
from tests.support.lbctl_runner import lbctl
from tests.unit.console.site import BROKER, BUNDLE, fleet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("completion")
    fleet(made / "tables", more=2)
    return made


def offered(folder: Path, *words: str, tables: str = "tables") -> list[str]:
    """Return what bash is offered for the last word, after the option that names the tables."""
    command, *more = words
    line = ["lbctl", command, *more[:-1], "--set", f"stream.tables={folder / tables}", more[-1]]
    if more[-2].startswith("-"):  # the word is this option's value
        line = ["lbctl", command, "--set", f"stream.tables={folder / tables}", *more]
    shell = {
        "_LBCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    result = lbctl(cwd=folder, env=shell)
    assert (result.code, result.err) == (0, "")
    return result.out.split()


def test_clusters_come_from_the_tables(folder: Path) -> None:
    assert offered(folder, "brokers", "--cluster", "eu") == ["eu-1"]
    assert offered(folder, "brokers", "--cluster", "us") == []


def test_brokers_and_bundles_come_from_the_tables(folder: Path) -> None:
    assert BROKER in offered(folder, "explain", "--broker", "b-")
    assert offered(folder, "explain", "--bundle", "shop/hot") == [BUNDLE]
    assert BUNDLE in offered(folder, "explain", "--why-not", "shop/")


def test_commands_for_operators_are_offered_brokers(folder: Path) -> None:
    assert BROKER in offered(folder, "brokers", "drain", "b-")


def test_only_those_of_the_given_cluster_are_offered(folder: Path) -> None:
    assert offered(folder, "explain", "--cluster", "us-1", "--broker", "b-") == []


def test_without_tables_nothing_is_offered_and_nothing_is_said(folder: Path) -> None:
    assert offered(folder, "explain", "--broker", "b-", tables="absent") == []


def test_contexts_come_from_the_users_file(folder: Path) -> None:
    settings = folder / "settings.toml"
    settings.write_text("")
    assert lbctl("context", "set", "eu-1", "--config", str(settings), cwd=folder).code == 0
    shell = {
        "_LBCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": "lbctl context use e",
        "COMP_CWORD": "3",
    }
    assert lbctl(cwd=folder, env=shell).out.split() == ["eu-1"]


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "LIMIT_S", 0.01)
    end = Event()

    def wait() -> list[str]:
        end.wait()
        return ["eu-1"]

    assert completion._offer(wait, "eu") == []
    end.set()


def test_names_that_a_terminal_obeys_are_not_offered() -> None:
    assert completion._offer(lambda: ["eu-1", "eu\x1b[2J"], "eu") == ["eu-1"]
