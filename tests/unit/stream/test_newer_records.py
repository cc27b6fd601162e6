"""Records of newer agents and jobs: what is not known here is ignored, except in commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.decisions import Decision, Ownership, read_decision
from lb_stream.core.model.memory import Memory, Pending
from tests.support.decoding import KNOWN, decoded, record, rejections, report
from tests.support.newer_records import FUTURE, with_unknown_fields

EXAMPLES = Path(__file__).parents[3] / "schemas" / "examples"
REPORTS = ("modular-report", "simple-report", "broker-load", "top-bundles")
AGENT_RECORDS = ("heartbeat", "ack", "ask", "goodbye")


def example(name: str) -> dict[str, Any]:
    return json.loads((EXAMPLES / f"{name}.json").read_text())


def decode_one(name: str, value: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of one record of the reports topic; a report's digest is of its bytes."""
    kind = name if name in AGENT_RECORDS else None
    block = decoded([record(b"eu/b1:8080", json.dumps(value).encode(), 5, kind)], KNOWN)["eu", 0]
    for row in block["reports"]:
        del row["digest"]
    return block


@pytest.mark.parametrize("name", [*REPORTS, *AGENT_RECORDS])
def test_unknown_fields_of_a_newer_agents_record_change_nothing(name: str) -> None:
    newer = with_unknown_fields(example(name))
    assert json.dumps(newer).count(FUTURE) >= 1
    block = decode_one(name, newer)
    assert rejections(block) == [] and any(block.values())
    assert block == decode_one(name, example(name))


def test_a_record_of_an_unknown_kind_is_rejected_and_harms_no_other() -> None:
    records = [record(b"eu/b1", b"{}", 3, kind="weather"), record(b"eu/b1", report(), 4)]
    block = decoded(records, KNOWN)["eu", 0]
    ((offset, field, value, _),) = rejections(block)
    assert (offset, field) == (3, "kind") and "weather" in value
    assert len(block["reports"]) == 1


def test_an_unknown_field_of_a_command_is_refused_as_it_may_be_essential() -> None:
    command = example("command")
    for fields, refused in ((command, []), (command | {FUTURE: 1}, [FUTURE])):
        value = json.dumps(fields).encode()
        block = decoded([record(b"eu", value, 3, topic="commands")], KNOWN)["eu", 0]
        assert [field for _, field, _, _ in rejections(block)] == refused


@pytest.mark.parametrize(("name", "model"), [("decision", Decision), ("ownership", Ownership)])
def test_an_agent_ignores_unknown_fields_of_a_newer_jobs_record(
    name: str, model: type[Decision | Ownership]
) -> None:
    newer = json.dumps(with_unknown_fields(example(name)))
    assert model.model_validate_json(newer) == model.model_validate(example(name))
    if model is Decision:
        assert read_decision(newer) == read_decision(json.dumps(example(name)))


def test_the_memory_of_a_newer_version_is_read_without_what_is_not_known() -> None:
    pending = Pending("eu:1:0", "unload", "a/b/0x0_0x1", "b1", "b2", 1, 2, 3)
    memory = Memory(epoch=7, pending=(pending,))
    newer = json.loads(memory.to_json())
    newer[FUTURE] = {"x": [1]}
    newer["pending"][0][FUTURE] = 1
    assert Memory.from_json(json.dumps(newer)) == memory
