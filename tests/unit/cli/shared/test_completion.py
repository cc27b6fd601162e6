"""What the shell offers for names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from lb_stream.cli.shared import completion
from lb_stream.contracts.tables import COMMANDS, PROPOSALS
from lb_stream.core.model.rollout import BrokerProgress
from tests.support.lbctl_runner import lbctl
from tests.support.table_rows import fill
from tests.unit.console.site import BROKER, BUNDLE, NOW, add_rollout, fleet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("completion")
    fleet(made / "tables", more=2)
    add_rollout(made / "tables", {BROKER: BrokerProgress("draining", NOW)}, ())
    rows = [
        {"cluster": "eu-1", "proposal_id": f"eu-1:{seq}:p0", "plan": f"eu-1:{seq}", "state": state}
        | {"proposed_ms": NOW + seq, "log_seq": seq}
        for seq, state in ((7, "waiting"), (8, "waiting"), (9, "rejected"))
    ]
    fill(made / "tables", PROPOSALS, rows)
    return made


def offered(folder: Path, *words: str, tables: str = "tables") -> list[str]:
    """Return what bash is offered for the last word, after the option that names the tables.

    bash gives words that it has split at colons and equals signs.
    """
    end = -2 if len(words) > 1 and words[-2].startswith("-") else -1  # behind an option's name
    given = ["--set", f"stream.tables={folder / tables}"]
    line = ["lbctl", *words[:end], *given, *words[end:]]
    split = [part for word in line for part in (re.split("([:=]+)", word) if word else [""])]
    split = [part for number, part in enumerate(split) if part or number == len(split) - 1]
    if len(split) > 1 and split[-1] == "" and line[-1]:  # bash's current word is the separator
        split.pop()
    shell = {
        "_LBCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(split),
        "COMP_CWORD": str(len(split) - 1),
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


@pytest.mark.parametrize(
    ("words", "expected"),
    (
        (("explain", "eu"), ["eu-1:1:0"]),
        (("explain", "eu-1:"), ["1:0"]),
        (("explain", "eu-1:1:"), ["0"]),
        (("explain", "--round", "eu-1:2"), ["2"]),
        (("undo", ""), ["eu-1:1:0", "c"]),
        (("commands", "--id", ""), ["c"]),
        (("approve", "eu-1:8"), ["8:p0"]),
        (("reject", "eu-1:9"), []),
        (("approve", "--plan", "eu-1:"), ["8", "7"]),
        (("rollout", "history", "--rollout", "roll"), ["roll-2", "roll-1"]),
        (("rollout", "abort", "--rollout", "roll-1"), ["roll-1"]),
        (("namespaces", "bundles", "shop/h"), ["shop/hot"]),
        (("namespaces", "unload", "shop/hot", "-b", "0x"), [BUNDLE.rpartition("/")[2]]),
        (("brokers", "drain", BROKER[:-1]), [BROKER.rpartition(":")[2]]),
        (("brokers", "--cluster=eu"), ["eu-1"]),
    ),
    ids=" ".join,
)
def test_ids_come_from_the_tables_and_bash_gets_what_follows_its_last_colon(
    folder: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    assert offered(folder, *words) == expected


def test_only_the_newest_ids_are_offered(tmp_path: Path) -> None:
    rows = [{"cluster": "eu-1", "id": f"id-{number:03}", "at_ms": number} for number in range(60)]
    fill(tmp_path / "tables", COMMANDS, rows)
    found = offered(tmp_path, "commands", "--id", "id")
    assert found == [f"id-{number:03}" for number in range(59, 59 - completion.MAX_IDS, -1)]


def test_completion_imports_no_engine_but_duckdb(folder: Path) -> None:
    code = (
        "import sys\nfrom lb_stream.cli.main import main\n"
        "from lb_stream.cli.shared import completion\ncompletion.LIMIT_S = 60.0\n"
        "try: main()\nexcept SystemExit: pass\n"
        "names = ('pyspark', 'pandas', 'kafka', 'rich', 'lb_stream.core.placement')\n"
        "print([name for name in names if name in sys.modules], file=sys.stderr)"
    )
    tables = folder / "tables"
    shell = {
        "_LBCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": f"lbctl explain --set stream.tables={tables} eu",
        "COMP_CWORD": "4",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **shell, "LB_CONTEXTS": str(folder / ".contexts.json")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr.strip()) == (["eu-1:1:0"], "[]")


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
