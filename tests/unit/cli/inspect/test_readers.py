"""Every command that reads shows its answer in every form that the answer can have."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from lb_stream.core.model.rollout import BrokerProgress
from tests.support.lbctl_commands import COMMANDS, options
from tests.support.lbctl_runner import Result, lbctl
from tests.support.plan_tables import SMALL, write
from tests.support.wordings import check_wording
from tests.unit.console.site import BROKER, NOW, add_rollout, fleet

_RIGHTS = "--set security.rights=rights.toml"
ROWS: dict[str, str] = {
    f"access list {_RIGHTS}": "place",
    "access verbs": "verb",
    "audit": "command_id",
    "audit anchor": "cluster",
    "audit verify": "cluster",
    "brokers": "broker",
    "brokers list": "broker",
    "clusters list": "cluster",
    "commands": "id",
    "config overrides": "setting",
    "config settable": "setting",
    "context list": "context",
    "cost": "whose",
    "decisions": "decision_id",
    "kafka status": "bootstrap_servers",
    "keys list": "key",
    "keys show 56475aa75463474c": "key",
    "leader": "host",
    "lookup shop/cold/orders": "owner",
    "namespaces bundles shop/hot": "bundle",
    "namespaces list": "name",
    "namespaces merge-advice": "bundle",
    "notify now": "name",
    "proposals": "proposal_id",
    "rollout history": "rollout",
    "scalable list shop/hot --admin-url http://127.0.0.1:1": "topic",
    "scenario families": "family",
    "shadow": "policy",
    "sql": "bundle",
    "status": "state",
    "tables list": "table",
    "tenants list": "name",
    "top bundles": "bundle",
    "topics list": "topic",
}
"""Readers whose answer is rows, with their arguments → the column with a row's name or id."""
OBJECTS = (
    f"access can-i pause --cluster eu-1 --as alice {_RIGHTS}",
    "compare --with-log leader.log",
    "config explain",
    "config show",
    "explain last",
    "plan",
    "rollout plan",
    "rollout status",
    "scalable show topic://shop/hot/clicks --admin-url http://127.0.0.1:1",
)
"""Readers whose answer is one object."""
ELSEWHERE = {
    "rollout plan",
    "topics list",
    *(command for command in (*ROWS, *OBJECTS) if "scalable" in command),
}
"""Readers of servers, or of much history: the tests of these look at their answers."""
ACTS = """
    agent namespaces, agent own-balancing, agent pulsar, assess, backtest, balance, console,
    demo, context delete, context set, context use, jars fetch, kafka start, kafka stop, leader hand-over,
    keys new, keys revoke, keys rotate, lookup-server, monitor, notify test, notify watch, replay, report, reports send, rollout back,
    rollout run, run, scalable merge, scalable split, scenario check, scenario from-reports,
    scenario from-tables, scenario new, scenario show, sim, simulate, tables maintain,
    tables rebuild, tables take-over, topics check, topics create, undo, what-if
"""
"""Commands that change something, run something, judge, or write a page: no readers."""
SIGNER = "alice ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4\n"
QUERY = "select bundle, cluster, explain from decisions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("readers")
    fleet(made / "tables", more=2)
    add_rollout(made / "tables", {BROKER: BrokerProgress("draining", NOW)}, ())
    (made / "leader.log").write_text("2026-11-21T08:24:21,333+0000 [main] INFO x - began\n")
    write(made / "plan", SMALL)
    (made / "lb.toml").write_text("")
    (made / "signers").write_text(SIGNER)
    (made / "rights.toml").write_text('[[grants]]\nto = ["alice"]\nrole = "operator"\n')
    assert lbctl("context", "set", "eu-1", "--config", "lb.toml", cwd=made).code == 0
    return made


def ask(folder: Path, command: str, *more: str) -> Result:
    words = [*command.split(), *([QUERY] if command == "sql" else [])]
    tables = folder / "plan" if command == "plan" else folder / "tables"
    of_tables = ["--set", f"stream.tables={tables}"]
    known = options(named(command))
    given = [*words, *(of_tables if "--set" in known else []), *more]
    return lbctl(*given, cwd=folder)


def named(command: str) -> tuple[str, ...]:
    """The command's own path, of a line with its arguments."""
    words = command.split()
    return next(path for n in (2, 1) if (path := tuple(words[:n])) in COMMANDS)


def test_every_command_reads_and_has_all_forms_or_acts() -> None:
    acts = {tuple(name.split()) for name in " ".join(ACTS.split()).split(", ")}
    sends = {path for path in COMMANDS if "--no-wait" in options(path)}
    reads = set(map(named, (*ROWS, *OBJECTS)))
    assert not reads & acts
    assert {path for path in COMMANDS if "--output" in options(path)} == reads
    assert {path for path in COMMANDS if "--json" in options(path)} - acts - sends == reads


@pytest.mark.parametrize("command", sorted(ROWS.keys() - ELSEWHERE))
def test_rows_are_the_same_in_every_form(folder: Path, command: str) -> None:
    table, as_json, old, as_yaml, as_csv, names = (
        ask(folder, command, *form)
        for form in ([], ["-o", "json"], ["--json"], ["-o", "yaml"], ["-o", "csv"], ["-o", "name"])
    )
    assert {answer.code for answer in (as_json, old, as_yaml, as_csv, names)} == {table.code}
    rows = as_json.objects
    assert without_clock(old.objects) == without_clock(rows)
    assert without_clock(yaml.safe_load(as_yaml.out)) == without_clock(rows)
    read = list(csv.DictReader(io.StringIO(as_csv.out)))
    assert [list(cells) for cells in read] == [list(row) for row in rows]
    column = ROWS[command]
    expected = [str(row[column]) for row in rows if row[column] is not None]
    assert names.out.splitlines() == expected
    assert table.out != as_json.out or not rows


@pytest.mark.parametrize("command", [command for command in OBJECTS if command not in ELSEWHERE])
def test_an_object_is_the_same_as_json_and_as_yaml_and_no_rows(folder: Path, command: str) -> None:
    (found,) = ask(folder, command, "-o", "json").objects
    assert without_clock(ask(folder, command, "--json").objects) == without_clock([found])
    read = yaml.safe_load(ask(folder, command, "-o", "yaml").out)
    assert without_clock([read]) == without_clock([found])
    for form in ("csv", "name"):
        refused = ask(folder, command, "-o", form)
        assert (refused.code, refused.out) == (2, "")
    check_wording(refused.err.splitlines()[-1])


def without_clock(rows: list[Any]) -> list[Any]:
    """Rows without figures that change while they are read again."""
    return [without(row) for row in rows]


def without(value: Any) -> Any:
    if isinstance(value, dict):
        changing = ("disk_free", "now_ms", "seconds")
        return {key: without(item) for key, item in value.items() if key not in changing}
    return [without(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("command", ("namespaces list", "tenants list"))
def test_lists_are_sorted_cut_and_filtered(folder: Path, command: str) -> None:
    by_name = [row["name"] for row in ask(folder, command, "--json").objects]
    assert by_name == sorted(by_name) and by_name
    traffic = [
        row["bytes_per_s"] for row in ask(folder, command, "--sort", "traffic", "--json").objects
    ]
    assert traffic == sorted(traffic, reverse=True)
    assert ask(folder, command, "--limit", "1", "-o", "name").out.splitlines() == by_name[:1]
    assert ask(folder, command, "--containing", by_name[-1].upper(), "-o", "name").out == (
        f"{by_name[-1]}\n"
    )
    none = ask(folder, command, "--containing", "nowhere")
    assert (none.code, none.out) == (0, "")
    check_wording(none.err.splitlines()[-1])


def test_namespaces_of_one_tenant_share_its_traffic(folder: Path) -> None:
    rows = ask(folder, "namespaces list", "--tenant", "shop", "--json").objects
    assert {row["tenant"] for row in rows} == {"shop"}
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert ask(folder, "namespaces list", "--tenant", "bank", "-o", "name").out == ""


def test_tables_are_listed_whether_they_are_written_yet_or_not(folder: Path) -> None:
    rows = {row["table"]: row for row in ask(folder, "tables list", "--json").objects}
    assert rows["decisions"]["rows"] == 1 and rows["decisions"]["size_bytes"] > 0
    assert rows["backtests"]["rows"] is None and rows["backtests"]["description"]
