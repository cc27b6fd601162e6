"""Commands whose sender lacks a right: refused where they are decoded, and in the round."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.access.rights import parse_rights
from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import SecuritySettings, Settings
from lb_stream.core.commands.responder import CommandResponder, Received
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.settings.rights import RightsFile, has_unproven_names
from lb_stream.store import Store
from lb_stream.stream import decode as decode_module
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.shards.directory import (
    ShardMap,
    delete_directories,
    read_access_file,
    write_access_file,
)
from tests.support.decoding import decoded, record, rejections

GRANT = """
[[grants]]
to = ["alice"]
verbs = ["drain", "pin"]
clusters = ["eu"]
brokers = ["b-1", "b-2"]
"""
CONFIG = DecodeConfig(
    default_cluster="home",
    commands_topic="commands",
    known={"eu": ShardMap(), "us": ShardMap()},
    rights=parse_rights(GRANT),
)


def payloads(key: bytes, *commands: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Cluster → the payloads of the commands that it gets."""
    rows = [
        record(key, json.dumps({"id": f"c{at}", **command}).encode(), at, topic="commands")
        for at, command in enumerate(commands)
    ]
    return {
        cluster: [
            json.loads(event["payload"]) for event in block["events"] if event["kind"] == "command"
        ]
        for (cluster, _), block in decoded(rows, CONFIG).items()
    }


def drain(by: str, broker: str = "b-1:8080") -> dict[str, Any]:
    return {"kind": "drain-broker", "by": by, "broker": broker}


def test_a_command_counts_where_its_sender_has_the_right() -> None:
    taken, refused, pause = payloads(
        b"eu", drain("alice"), drain("alice", "b-3:8080"), {"kind": "pause-cluster", "by": "alice"}
    )["eu"]
    assert (taken["rejected"], taken["right"]) == (None, "drain b-1:8080")
    assert refused == {
        "record": {"id": "c1", "kind": "drain-broker", "by": "alice"},
        "rejected": {
            "field": "by",
            "value": "alice",
            "expected": refused["rejected"]["expected"],
            "rule": "not_allowed",
        },
        "key_id": None,
        "right": "drain b-3:8080",
    }
    assert "drain b-3:8080 in eu" in refused["rejected"]["expected"]
    assert (pause["rejected"]["rule"], pause["right"]) == ("not_allowed", "pause")


def test_a_command_to_all_clusters_counts_in_those_where_its_sender_has_the_right() -> None:
    found = payloads(b"", drain("alice"))
    assert {cluster: rows[0]["rejected"] is None for cluster, rows in found.items()} == {
        "eu": True,
        "us": False,
    }


def test_commands_to_all_clusters_are_rejected_where_they_would_be_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stolen key needs no right to send them, and each is a command of every cluster."""
    monkeypatch.setattr(decode_module, "MAX_FANNED_OUT", 5)
    found = payloads(b"", *(drain("mallory") for _ in range(4)))
    rules = [
        [(row["record"]["id"], row["rejected"].get("rule")) for row in found[cluster]]
        for cluster in ("eu", "us")
    ]
    assert rules[1] == [("c0", "not_allowed"), ("c1", "not_allowed")]
    assert rules[0] == [*rules[1], ("c2", None), ("c3", None)]
    assert found["eu"][2]["rejected"]["field"] == "key"
    named = payloads(b"us", *(drain("mallory") for _ in range(9)))
    assert len(named["us"]) == 9


def test_a_refused_command_is_no_rejected_record_and_one_to_no_cluster_is_answered() -> None:
    row = record(b"eu", json.dumps(drain("bob") | {"id": "x"}).encode(), 0, topic="commands")
    assert rejections(decoded([row], CONFIG)["eu", 0]) == []
    (answered,) = payloads(b"nowhere", drain("alice"))["eu"]
    assert answered["rejected"]["rule"] == "not_allowed"


def test_a_round_refuses_it_and_remembers_nothing_of_it() -> None:
    content = payloads(b"eu", drain("bob"))["eu"][0]
    received = Received(1_000, **content)
    responder = CommandResponder(OperatorState())
    assert list(responder.new([received, Received(**received.to_dict())])) == []
    assert [(answer.outcome, answer.rule, answer.repeated) for answer in responder.answers] == [
        ("refused", "not_allowed", False)
    ] * 2
    assert responder.operator_state == OperatorState()


def test_without_a_file_of_rights_everyone_may_send_all() -> None:
    row = record(b"us", json.dumps(drain("bob") | {"id": "x"}).encode(), 0, topic="commands")
    (event,) = decoded([row], replace(CONFIG, rights=None))["us", 0]["events"]
    assert json.loads(event["payload"])["rejected"] is None


# --- the file ---


def test_a_batch_keeps_the_first_file_that_it_got_until_the_batch_is_old(tmp_path: Path) -> None:
    checkpoint = Store.at(tmp_path)
    for batch in (1, 2):
        write_access_file(checkpoint, batch, "rights", GRANT)
        write_access_file(checkpoint, batch, "signers", "")
        write_access_file(checkpoint, batch, "rights", "")
    assert read_access_file(checkpoint, 1, "rights") == GRANT
    delete_directories(checkpoint, 2)
    with pytest.raises(FileNotFoundError):
        read_access_file(checkpoint, 1, "rights")
    assert read_access_file(checkpoint, 2, "rights") == GRANT


def test_a_changed_file_counts_and_one_that_cannot_be_read_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rights.toml"
    path.write_text(GRANT)
    file = RightsFile(SecuritySettings(rights=str(path)))
    for number, text in enumerate(("", "[[grants]]", GRANT)):
        path.write_text(text)
        os.utime(path, ns=(number, number))
        assert file.rights() is file.rights()
        assert (file.text(), len(file.rights().grants)) == (("", 0) if number < 2 else (GRANT, 1))
    path.unlink()
    assert len(file.rights().grants) == 1
    assert len(caplog.messages) == 2 and all("still count" in line for line in caplog.messages)
    with pytest.raises(SettingError) as error:
        RightsFile(SecuritySettings(rights=str(path)))
    assert error.value.key == "security.rights"


@pytest.mark.parametrize(
    ("rights", "commands", "server", "expected"),
    [
        ("rights.toml", "open", "kafka:9092", True),
        ("rights.toml", "warn", "127.0.0.1:9092,kafka:9092", True),
        ("rights.toml", "signed", "kafka:9092", False),
        ("rights.toml", "open", "localhost:9092", False),
        ("", "open", "kafka:9092", False),
    ],
)
def test_rights_in_unproven_names_are_known_where_other_machines_reach_kafka(
    rights: str, commands: str, server: str, expected: bool
) -> None:
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": server},
            "security": {"rights": rights, "commands": commands},
        }
    )
    assert has_unproven_names(settings) is expected
