"""`lbctl`'s commands to the running balancer: what they send, how they wait, what they print; and
what the tables say of it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.agent.pulsar import scalable
from lb_stream.agent.pulsar.scalable import ScalableTopic, Segment
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.commands import COMMANDS as MODELS
from lb_stream.contracts.tables import (
    BROKER_LOADS,
    BUNDLE_AVERAGES,
    COMMANDS,
    LEADERS,
    MERGE_ADVICE,
    OWNERSHIP,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.topics import SegmentName, topic_hash
from lb_stream.query import status_facts
from tests.support.lbctl_runner import Result, lbctl
from tests.support.scripted_kafka import Broker
from tests.support.table_rows import fill
from tests.support.wordings import check_wording

# --- what is sent ---


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("namespaces unload t/n", "unload", {"namespace": "t/n"}),
        (
            "namespaces unload t/n -b 0x00000000_0x80000000 -d b:1",
            "unload",
            {"bundle": "0x00000000_0x80000000", "destination": "b:1"},
        ),
        (
            "namespaces split t/n -b LARGEST -san topic_count_equally_divide -u",
            "split",
            {"bundle": "LARGEST", "unload": True},
        ),
        ("namespaces split -bt HOT t/n", "split", {"bundle_type": "HOT", "unload": False}),
        (
            "namespaces split t/n --topic t/n/x -san specified_positions_divide -sb 0x10,32",
            "split",
            {"boundaries": [16, 32]},
        ),
        (
            "namespaces create t/n --bundles 3",
            "create-namespace",
            {"namespace": "t/n", "bundles": 3},
        ),
        ("namespaces delete t/n", "delete-namespace", {"namespace": "t/n"}),
        ("namespaces set-policies t/n -g pay", "set-policies", {"anti_affinity": {"t/n": "pay"}}),
        (
            "namespaces set-policies --failure-domain b:1=east --failure-domain c:1=",
            "set-policies",
            {"failure_domains": {"b:1": "east", "c:1": None}},
        ),
        (
            "namespaces set-policies --isolation p --namespaces t/.* --primary a.* --secondary b "
            "--min-available 2",
            "set-policies",
            {
                "isolation": [
                    {
                        "name": "p",
                        "namespaces": ["t/.*"],
                        "primary": ["a.*"],
                        "secondary": ["b"],
                        "min_available": 2,
                    }
                ]
            },
        ),
        (
            "namespaces set-policies --remove-isolation p",
            "set-policies",
            {"remove_isolation": ["p"]},
        ),
        ("brokers drain b:1", "drain-broker", {"broker": "b:1"}),
        ("brokers undrain b:1", "undrain-broker", {"broker": "b:1"}),
        (
            "clusters limit eu-1 --in-flight 5 --dwell 1.5",
            "set-config",
            {"values": {"max_moves_in_flight": 5, "min_dwell_ms": 1500}},
        ),
        ("clusters mode eu-1 approve", "set-config", {"values": {"mode": "approve"}}),
        ("clusters enable eu-1", "dry-run", {"on": False}),
        ("clusters disable eu-1", "dry-run", {"on": True}),
        ("clusters pause eu-1", "pause-cluster", {}),
        ("clusters pause --all-clusters", "pause-cluster", {}),
        ("clusters declare-dead eu-1", "declare-dead", {}),
        ("clusters forget eu-1", "forget-cluster", {}),
        ("clusters declare-dead eu-1 --broker b:1", "declare-dead", {"broker": "b:1"}),
        ("clusters resume eu-1", "resume-cluster", {}),
        ("clusters disable", "dry-run", {"on": True}),
        ("clusters enable --all-clusters", "dry-run", {"on": False}),
        (
            "namespaces merge t/n -b 0x00000000_0x80000000 -b 0x80000000_0xffffffff",
            "merge",
            {"bundles": ["0x00000000_0x80000000", "0x80000000_0xffffffff"]},
        ),
        (
            "namespaces pin t/n -b 0x0_0x1 --for 2h",
            "pin-bundles",
            {"bundles": ["t/n/0x0_0x1"], "for_ms": 7_200_000},
        ),
        ("namespaces merge t/n --advised 5", "merge", {"namespace": "t/n", "advised": 5}),
        ("namespaces merge t/n --advised 5", "merge", {"namespace": "t/n", "advised": 5}),
        (
            "namespaces pin t/n -b 0x0_0x1",
            "pin-bundles",
            {"bundles": ["t/n/0x0_0x1"], "for_ms": 3_600_000},
        ),
        ("namespaces split t/n -b HOT", "split", {"bundle": "HOT", "unload": False}),
        ("config set k v", "set-config", {"values": {"k": "v"}}),
        ("config set k v k2 w", "set-config", {"values": {"k": "v", "k2": "w"}}),
        ("config unset k", "delete-config", {"key": "k"}),
    ],
)
def test_each_command_is_one_record(
    call: Callable[..., Result], kafka: Broker, line: str, kind: str, fields: dict[str, Any]
) -> None:
    result = call(*line.split())
    assert (result.code, result.out) == (0, "done: it is done\n"), result.err
    ((key, command),) = kafka.sent
    assert key == ("" if "--all-clusters" in line else "eu-1" if "eu-1" in line else "default")
    assert command["kind"] == kind
    assert _contains(command, fields), command
    assert MODELS[command["kind"]].model_validate(command).id == command["id"]


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(name in whole and _contains(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(_contains, whole, part))
    return bool(whole == part)


def test_namespaces_are_imported_from_what_an_agent_printed(
    call: Callable[..., Result], kafka: Broker, tmp_path: Path
) -> None:
    content = {
        "namespaces": [
            {"name": "t/n", "boundaries": [0, 16, 0xFFFFFFFF], "anti_affinity_group": None}
        ],
        "failure_domains": {"b:1": "x"},
    }
    (tmp_path / "namespaces.json").write_text(json.dumps(content))
    assert call("namespaces", "import", "namespaces.json", "--cluster", "eu-1").code == 0
    assert kafka.sent[0][1]["content"]["namespaces"] == content["namespaces"]


PROJECT = Path(__file__).parents[4]
ROOMS = ("core/commands", "operations", "core/round")
PAGE = PROJECT / "docs" / "commands.md"
DOCUMENTED = re.findall(r"^lbctl (.+)$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    [line for line in DOCUMENTED if not line.startswith(("commands ", "plan ", "undo "))],
)
def test_every_line_of_the_documentation_is_a_command_that_is_sent(
    call: Callable[..., Result], kafka: Broker, line: str
) -> None:
    assert call(*line.split()).code == 0
    assert [key for key, _ in kafka.sent] == ["eu-1"]


def test_every_rule_that_refuses_a_command_is_documented() -> None:
    folders = [PROJECT / "lb_stream" / room for room in ROOMS]
    sources = "".join(file.read_text() for folder in folders for file in folder.glob("*.py"))
    found = re.findall(r'refused\(\s*"([a-z_]+)"|"refused",[^"]*"[^"]*",\s*"([a-z_]+)"', sources)
    rules = {rule for pair in found for rule in pair if rule} - {
        "drained",
        "namespace_deleted",
        "split_command",
        "unload_command",
    }
    page = PAGE.read_text()
    assert len(rules) > 12
    assert [rule for rule in sorted(rules) if f"`{rule}`" not in page] == []


def test_who_sends_is_the_kafka_principal_where_there_is_one(
    call: Callable[..., Result], kafka: Broker
) -> None:
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "x",
    }
    call(
        "clusters",
        "disable",
        *(
            part
            for name, value in given.items()
            for part in ("--set", f"kafka.options.{name}={value}")
        ),
    )
    call("clusters", "disable")
    assert kafka.sent[0][1]["by"] == "User:ann"
    assert "@" in kafka.sent[1][1]["by"]


@pytest.mark.parametrize(
    "line",
    [
        "namespaces unload t/n -d b:1",
        "namespaces unload t",
        "namespaces split t/n",
        "namespaces split t/n -b HOT -bt HOT",
        "namespaces split t/n -bt WARM",
        "namespaces split t/n -b HOT -sb half",
        "namespaces merge t/n",
        "namespaces merge t/n -b 0x00000000_0x80000000",
        "namespaces merge t/n -b 0x00000000_0x80000000 -b 0x80000000_0xffffffff --advised 1",
        "namespaces merge t/n --advised 101",
        "namespaces create t/n --bundles 0",
        "namespaces set-policies",
        "namespaces set-policies t/n",
        "namespaces set-policies --primary a",
        "namespaces set-policies --failure-domain east",
        "namespaces import missing.json",
        "clusters limit eu-1",
        "config set k",
        "clusters disable eu-1 --all-clusters",
        "clusters pause eu-1 --all-clusters",
        "namespaces create t/n --set namespace_default_bundles=none",
    ],
)
def test_wrong_usage_sends_nothing(call: Callable[..., Result], kafka: Broker, line: str) -> None:
    result = call(*line.split())
    assert (result.code, result.out, kafka.sent) == (2, "", [])
    assert result.err


# --- how it waits ---


def test_it_waits_until_what_was_accepted_has_come_about(call: Callable[..., Result]) -> None:
    result = call(
        "namespaces", "unload", "t/n", answers=[("default", "accepted"), [], ("default", "done")]
    )
    assert (result.code, result.out, result.err) == (
        0,
        "done: it is done\n",
        "accepted: it is accepted\n",
    )


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_what_is_not_done_is_exit_code_1_and_says_why(
    call: Callable[..., Result], outcome: str
) -> None:
    result = call("brokers", "drain", "b:1", answers=[("default", outcome)])
    rule = " (drained)" if outcome == "refused" else ""
    assert (result.code, result.out) == (1, f"{outcome}{rule}: it is {outcome}\n")
    (machine,) = call("brokers", "drain", "b:1", "--json", answers=[("default", outcome)]).objects
    assert (machine["outcome"], machine["cluster"], machine["text"]) == (
        outcome,
        "default",
        f"it is {outcome}",
    )


def test_no_answer_in_time_is_exit_code_1(call: Callable[..., Result]) -> None:
    silent = call("clusters", "disable", "--timeout", "0.1", answers=[])
    assert (silent.code, silent.out) == (1, "")
    assert silent.err.startswith("lbctl: no result after 0.1 s: is the job running (lbctl status)")
    slow = call(
        "namespaces",
        "unload",
        "t/n",
        "--timeout",
        "0.1",
        "--id",
        "mine",
        answers=[("default", "accepted")],
    )
    assert (slow.code, slow.out) == (1, "")
    assert (
        slow.err.splitlines()[-1]
        == "lbctl: default: not done after 0.1 s; it goes on: lbctl commands --id mine"
    )


def test_to_a_dead_job_nothing_is_sent_and_it_is_said_at_once(
    call: Callable[..., Result], kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = "its process 7 on this machine has ended"
    monkeypatch.setattr("lb_stream.io.leadership.liveness.describe_absence", lambda *_: ended)
    result = call("brokers", "drain", "b:1", answers=[])
    assert (result.code, result.out, kafka.sent) == (1, "", [])
    check_wording(result.err)
    sent = call("brokers", "drain", "b:1", "--no-wait", "--id", "mine", answers=[])
    assert (sent.code, sent.out, len(kafka.sent)) == (0, "sent: mine\n", 1)
    check_wording(sent.err)


def test_without_waiting_the_id_is_printed(call: Callable[..., Result], kafka: Broker) -> None:
    assert (
        call("clusters", "disable", "--no-wait", "--id", "mine", answers=[]).out == "sent: mine\n"
    )
    assert (
        call("clusters", "disable", "--no-wait", "--id", "mine", "--json", answers=[]).objects[0][
            "outcome"
        ]
        == "sent"
    )
    assert [command["id"] for _, command in kafka.sent] == ["mine", "mine"]


def test_every_clusters_answer_is_waited_for(call: Callable[..., Result]) -> None:
    result = call(
        "clusters", "enable", "--all-clusters", answers=[[("us-1", "done"), ("eu-1", "refused")]]
    )
    assert (result.code, result.out) == (
        1,
        "eu-1: refused (drained): it is refused\nus-1: done: it is done\n",
    )


# --- what the tables say ---

TOPIC = "persistent://t/n/topic"
ORDERS = OperatorState(
    settings={"loadManagerClassName": "extensible"}, drained=("b-1:80",), namespaces={"t/new": 2}
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """eu-1 has been commanded: it drains a broker; us-1 is only watched."""
    folder = tmp_path_factory.mktemp("tables")
    memory = replace(Memory(), seq=2, operator_state=ORDERS)
    inputs = canonical_json({"settings": {"dry_run": False}})
    rounds = [
        {
            "cluster": "eu-1",
            "seq": 1,
            "log_seq": 1,
            "memory": Memory(seq=1).to_json(),
            "inputs": inputs,
        },
        {
            "cluster": "eu-1",
            "seq": 2,
            "log_seq": 3,
            "now_ms": 5,
            "memory": memory.to_json(),
            "inputs": inputs,
        },
        {
            "cluster": "us-1",
            "seq": 1,
            "log_seq": 3,
            "now_ms": 5,
            "memory": Memory(seq=1).to_json(),
            "inputs": canonical_json({"settings": {}}),
        },
        {"cluster": "tyop", "seq": 0, "log_seq": 2, "memory": Memory().to_json(), "inputs": inputs},
    ]
    fill(folder, ROUNDS, rounds)
    fill(
        folder,
        BROKER_LOADS,
        [
            {
                "cluster": "eu-1",
                "broker": f"b-{number}:80",
                "alive": number < 2,
                "bundles": 2,
                "log_seq": 1,
            }
            for number in range(3)
        ],
    )
    parent, middle = "t/n/0x00000000_0xffffffff", 0x80000000
    child = (
        "t/n/0x00000000_0x80000000" if topic_hash(TOPIC) < middle else "t/n/0x80000000_0xffffffff"
    )
    owned = {"cluster": "eu-1", "state": "Owned", "owner": "b-0:80", "version": 2}
    fill(
        folder,
        OWNERSHIP,
        [owned | {"bundle": child}, owned | {"bundle": parent, "state": "Deleted", "owner": None}],
    )
    averages = [
        ("eu-1", child, "b-0:80", 3),
        ("eu-1", parent, None, 9),
        ("us-1", parent, "u-0:80", 4),
    ]
    fill(
        folder,
        BUNDLE_AVERAGES,
        [
            {"cluster": c, "bundle": b, "owner": o, "topics": n, "part": "00"}
            for c, b, o, n in averages
        ],
    )
    fill(
        folder,
        LEADERS,
        [
            {
                "pipeline": "lb",
                "epoch": epoch,
                "host": f"h{epoch}",
                "pid": 7,
                "since_ms": 1000 + epoch,
            }
            for epoch in (1, 2)
        ],
    )
    advice = {
        "cluster": "eu-1",
        "owner": "b-0:80",
        "since_ms": 5,
        "topics_ratio": 0.25,
        "rate_ratio": 0.0,
        "bandwidth_ratio": 0.499,
    }
    pairs = [
        ("t/a", "0x00000000_0x40000000", "0x40000000_0x80000000"),
        ("t/b", "0x80000000_0xc0000000", "0xc0000000_0xffffffff"),
    ]
    fill(
        folder,
        MERGE_ADVICE,
        [
            advice | {"namespace": n, "bundle": f"{n}/{a}", "neighbour": f"{n}/{b}"}
            for n, a, b in pairs
        ],
    )
    answer = {
        "id": "c1",
        "cluster": "eu-1",
        "kind": "unload",
        "by": "User:ann",
        "at_ms": 5,
        "arguments": '{"namespace": "t/n"}',
    }
    fill(folder, COMMANDS, [answer | {"outcome": "accepted", "text": "on its way", "log_seq": 1}])
    fill(folder, COMMANDS, [answer | {"outcome": "failed", "text": "it expired", "log_seq": 2}])
    return folder


@pytest.fixture
def ask(tables: Path, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    yield lambda *arguments: lbctl(*arguments, "--set", f"stream.tables={tables}", cwd=tmp_path)


def test_leader_is_the_job_that_was_started_last(ask: Callable[..., Result]) -> None:
    (row,) = ask("leader", "--json").objects
    assert (row["epoch"], row["host"], row["pid"], row["since_ms"]) == (2, "h2", 7, 1002)
    assert ask("leader").out.startswith("h2 (process 7) led lb, epoch 2, since "), (
        "no batch since 1970: it leads no more"
    )


def test_lookup_finds_the_bundle_of_a_topic_and_its_owner_in_each_cluster(
    ask: Callable[..., Result],
) -> None:
    rows = ask("lookup", "t/n/topic", "--json").objects
    assert [(row["cluster"], row["owner"], row["state"]) for row in rows] == [
        ("eu-1", "b-0:80", "Owned"),
        ("us-1", "u-0:80", "Owned"),
    ]
    assert {row["topic"] for row in rows} == {TOPIC}
    assert rows[0]["bundle"].count("80000000") == 1, "the child, not the parent that was split"
    assert ask("lookup", TOPIC, "--cluster", "us-1").out.startswith(
        "us-1: u-0:80 has t/n/0x00000000_0xffffffff (Owned, hash 0x"
    )
    assert ask("lookup", "t/other/topic").code == 1
    assert ask("lookup", "t/n").code == 2


def test_lookup_of_a_scalable_topic_finds_each_of_its_segments(
    ask: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [SegmentName("topic://t/n/s", 0x8000 * at, 0x8000 * at + 0x7FFF, at) for at in (0, 1)]
    segments = tuple(Segment(name, name.full, True, (), ()) for name in names)
    monkeypatch.setattr(
        scalable, "read_segments", lambda admin, topic: ScalableTopic(topic, 0, 2, segments)
    )
    refused = ask("lookup", "topic://t/n/s")
    assert (refused.code, refused.out) == (2, "")
    check_wording(refused.err)
    given = ("lookup", "topic://t/n/s", "--cluster", "eu-1", "--admin-url", "http://broker-1:8080")
    rows = ask(*given, "--json").objects
    assert [(row["topic"], row["hash"]) for row in rows] == [
        (name.full, topic_hash(name.full)) for name in names
    ]
    assert all(row["bundle"].startswith("t/n/0x") and row["owner"] for row in rows)
    assert f"with {names[1].full} (" in ask(*given).out
    one = ask("lookup", names[1].full, "--cluster", "eu-1", "--json").objects
    assert one == [rows[1]], "a segment is looked up without Pulsar"


def test_clusters_list_says_who_is_watched_and_who_is_live(ask: Callable[..., Result]) -> None:
    rows = {row["cluster"]: row for row in ask("clusters", "list", "--json").objects}
    assert sorted(rows) == ["eu-1", "us-1"], "a cluster without a round is none"
    assert (rows["eu-1"]["dry_run"], rows["us-1"]["dry_run"]) == (False, True)
    assert (rows["eu-1"]["load_manager"], rows["eu-1"]["drained"]) == ("extensible", ["b-1:80"])
    assert (rows["eu-1"]["brokers_alive"], rows["eu-1"]["brokers"], rows["eu-1"]["bundles"]) == (
        2,
        3,
        6,
    )
    assert "live" in ask("clusters", "list").out


def test_get_all_dynamic_config_is_what_commands_have_set(ask: Callable[..., Result]) -> None:
    row = {"cluster": "eu-1", "setting": "loadManagerClassName", "value": "extensible"}
    assert ask("config", "overrides", "--json").objects == [row]
    assert ask("config", "overrides", "--cluster", "eu-1").out.split()[-3:] == [
        "eu-1",
        "loadManagerClassName",
        '"extensible"',
    ]
    none = ask("config", "overrides", "--cluster", "us-1")
    assert (none.code, none.out) == (0, "")
    check_wording(none.err.splitlines()[-1])


def test_a_command_needs_its_cluster_where_there_are_several(
    kafka: Broker, ask: Callable[..., Result]
) -> None:
    result = ask("clusters", "list", "--json")
    assert result.code == 0
    which = ask("brokers", "drain", "b-0:80")
    assert (which.code, which.err, kafka.sent) == (
        2,
        "lbctl: --cluster: expected one of eu-1, us-1\n",
        [],
    )


def test_list_dynamic_config_names_keys_that_set_config_takes(ask: Callable[..., Result]) -> None:
    names = ask("config", "settable", "-o", "name").out.split()
    assert {"loadManagerClassName", "loadBalancerSheddingEnabled", "max_moves_in_flight"} <= set(
        names
    )
    assert "loadBalancerEnabled" not in names
    meanings = {
        row["setting"]: row["meaning"] for row in ask("config", "settable", "--json").objects
    }
    check_wording(meanings["loadBalancerSheddingEnabled"])


def test_namespaces_bundles_shows_what_reports_and_records_say_and_new_ones(
    ask: Callable[..., Result],
) -> None:
    rows = ask("namespaces", "bundles", "t/n", "--cluster", "eu-1", "--json").objects
    assert [(row["owner"], row["topics"], row["state"]) for row in rows if row["owner"]] == [
        ("b-0:80", 3, "Owned")
    ]
    new = ask("namespaces", "bundles", "t/new", "--cluster", "eu-1", "--json").objects
    assert [row["bundle"] for row in new] == [
        "t/new/0x00000000_0x80000000",
        "t/new/0x80000000_0xffffffff",
    ]
    assert ask("namespaces", "bundles", "t/none", "--cluster", "eu-1").code == 1


def test_merge_advice_shows_two_bundles_their_owner_and_what_of_each_limit_they_come_to(
    ask: Callable[..., Result],
) -> None:
    rows = ask("namespaces", "merge-advice", "--json").objects
    assert [(row["cluster"], row["namespace"], row["owner"]) for row in rows] == [
        ("eu-1", "t/a", "b-0:80"),
        ("eu-1", "t/b", "b-0:80"),
    ]
    assert (rows[0]["topics_ratio"], rows[0]["sessions_ratio"], rows[0]["since_ms"]) == (
        0.25,
        None,
        5,
    )
    said = " ".join(ask("namespaces", "merge-advice", "t/a").out.split())
    assert "eu-1, pairs of bundles that could be one: 1." in said and "t/b" not in said
    assert "t/a/0x00000000_0x40000000 25.0 % - 0.0 % 49.9 %" in said
    assert "t/a/0x40000000_0x80000000 b-0:80" in said


def test_without_merge_advice_it_is_said_whether_anybody_looks_for_any(
    ask: Callable[..., Result], tmp_path: Path
) -> None:
    off = ask("namespaces", "merge-advice", "--cluster", "us-1")
    assert (off.code, off.out) == (0, "")
    assert off.err.splitlines()[-1].startswith(
        "merge advice is off: lbctl config set merge_advice_enabled true"
    )
    inputs = canonical_json({"settings": {"merge_advice_enabled": True}})
    fill(
        tmp_path / "on",
        ROUNDS,
        [
            {
                "cluster": "eu-1",
                "seq": 1,
                "log_seq": 1,
                "memory": Memory(seq=1).to_json(),
                "inputs": inputs,
            }
        ],
    )
    none = lbctl(
        "namespaces", "merge-advice", "--set", f"stream.tables={tmp_path / 'on'}", cwd=tmp_path
    )
    check_wording(none.err.splitlines()[-1])
    assert ask("namespaces", "merge-advice", "--cluster", "nowhere").code == 2


def test_commands_shows_what_came_of_each(ask: Callable[..., Result]) -> None:
    (row,) = ask("commands", "--json").objects
    assert (row["outcome"], row["text"], row["by"], row["arguments"]) == (
        "failed",
        "it expired",
        "User:ann",
        {"namespace": "t/n"},
    )
    assert "it expired" in ask("commands", "--id", "c1").out
    assert re.search(r"^c1 ", ask("commands").out, re.MULTILINE), "undo and --id want it"
    assert ask("commands", "--id", "c2").out == ""


def test_a_commands_id_stays_in_one_piece_on_eighty_columns(
    ask: Callable[..., Result], tmp_path: Path
) -> None:
    name = "0b5f7d0e-1c2d-4e3f-8a9b-0c1d2e3f4a5b"
    row = {"cluster": "eu-1", "id": name, "kind": "unload", "by": "a" * 30, "at_ms": 5}
    row |= {"outcome": "done", "text": "it is done " * 9, "arguments": "{}", "log_seq": 9}
    fill(tmp_path / "own", COMMANDS, [row])
    fill(tmp_path / "own", ROUNDS, [{"cluster": "eu-1", "seq": 1, "log_seq": 1, "now_ms": 5}])
    out = lbctl("commands", "--set", f"stream.tables={tmp_path / 'own'}", cwd=tmp_path).out
    assert name in out and max(map(len, out.splitlines())) <= 80


def test_a_command_that_nobody_has_answered_is_named_and_exit_code_1(
    ask: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 20_784 * 86_400_000 + 5  # the wording names the figures' age
    monkeypatch.setattr(status_facts, "_now_ms", lambda: now_ms)
    unknown = ask("commands", "--id", "c9", "--cluster", "us-1")
    assert (unknown.code, unknown.out) == (1, "")
    check_wording(unknown.err)
    assert ask("commands", "--id", "c9", "--json").code == 1
    none = ask("commands", "--cluster", "us-1")
    assert (none.code, none.err.splitlines()[-1]) == (0, "no command has been answered yet by us-1")


def test_the_memory_of_the_orders_reads_back() -> None:
    assert Memory.from_json(Memory(operator_state=ORDERS).to_json()).operator_state == ORDERS


def test_to_forget_a_cluster_that_is_not_known_names_those_that_are(
    ask: Callable[..., Result], kafka: Broker
) -> None:
    result = ask("clusters", "forget", "eu-l")
    assert (result.code, result.out, kafka.sent) == (2, "", [])
    check_wording(result.err)
