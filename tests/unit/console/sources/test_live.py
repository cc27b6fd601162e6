"""Records of the topics reach the pages that show them, and bad ones do no harm."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from lb_stream.console.app import encode_entry, render_entry
from lb_stream.console.rows import Entry
from lb_stream.console.sources.live import MAX_QUEUED, Hub, Listener, TopicFollower
from lb_stream.contracts.commands import CommandResult
from lb_stream.contracts.decisions import example_decision
from lb_stream.query.screens.lists import Row
from tests.unit.console.site import Tags

ANSWER = CommandResult(
    id="c-1", cluster="eu-1", kind="drain-broker", outcome="done", text="b-1:80 is empty", at_ms=7
)


def rows(*values: bytes) -> list[Row]:
    follower = TopicFollower({}, "decisions", "results", print)
    topics = [("results" if b'"outcome"' in value else "decisions", value) for value in values]
    return [
        row
        for topic, value in topics
        for row in follower._parse(
            topic, [SimpleNamespace(value=value, partition=0, offset=0, headers=[])]
        )
    ]


@pytest.mark.parametrize(
    ("cluster", "kinds", "text", "received"),
    [
        ("", "all", "", ["eu-1:42:0", "c-1"]),
        ("eu-1", "moves", "", ["eu-1:42:0"]),
        ("eu-1", "commands", "", ["c-1"]),
        ("eu-1", "all", "BROKER-7", ["eu-1:42:0"]),
        ("us-1", "all", "", []),
    ],
)
def test_an_entry_is_sent_to_the_pages_that_show_its_kind(
    cluster: str, kinds: str, text: str, received: list[str]
) -> None:
    async def receive() -> list[str]:
        hub, listener = (
            Hub(render_entry, encode_entry),
            Listener(cluster, kinds, text, asyncio.get_running_loop()),
        )
        assert hub.add(listener)
        for row in rows(example_decision().to_json().encode(), ANSWER.to_json().encode()):
            hub.publish(row)
        await asyncio.sleep(0)
        hub.remove(listener)
        hub.publish(rows(ANSWER.to_json().encode())[0])
        await asyncio.sleep(0)
        return [
            json.loads(listener.queue.get_nowait())["id"] for _ in range(listener.queue.qsize())
        ]

    assert asyncio.run(receive()) == received


def test_a_page_that_is_far_behind_misses_the_oldest_entries_and_blocks_no_other() -> None:
    async def receive() -> list[str]:
        loop = asyncio.get_running_loop()
        hub, listener = Hub(str, str), Listener("", "all", "", loop, as_html=False)
        hub.add(listener)
        for number in range(MAX_QUEUED + 5):
            hub.publish({"entry": "command", "id": number, "cluster": "eu-1", "kind": "x"})
        await asyncio.sleep(0)
        return [listener.queue.get_nowait() for _ in range(listener.queue.qsize())]

    received = asyncio.run(receive())
    assert [f"'id': {number}," in row for number, row in enumerate(received, 5)] == [
        True
    ] * MAX_QUEUED


def test_a_program_gets_an_entry_as_json_with_the_fields_of_the_feed() -> None:
    async def receive() -> str:
        loop = asyncio.get_running_loop()
        hub = Hub(render_entry, encode_entry)
        listener = Listener("eu-1", "all", "", loop, as_html=False)
        hub.add(listener)
        hub.publish(rows(ANSWER.to_json().encode())[0])
        await asyncio.sleep(0)
        return listener.queue.get_nowait()

    entry = json.loads(asyncio.run(receive()))
    assert entry.keys() == Entry.model_fields.keys()
    assert (entry["entry"], entry["outcome"], entry["text"]) == ("command", "done", ANSWER.text)


def test_a_record_that_is_no_decision_is_left_out_and_the_next_ones_are_published() -> None:
    found = rows(
        b"",
        b"{}",
        b"\xff\x00",
        b'{"decision_id": 3}',
        b"null",
        example_decision().to_json().encode(),
    )
    assert [row["id"] for row in found] == ["eu-1:42:0"]


def test_an_entry_of_the_stream_is_like_one_of_the_page_and_its_names_are_text() -> None:
    hostile = example_decision(bundle="<script>x</script>/n/0x0_0x1", source='"><b onclick=x>')
    (row,) = rows(hostile.to_json().encode())
    entry = Tags(render_entry(row))
    assert {name for name, _ in entry.tags} <= {"li", "span", "a", "time", "wbr"}
    assert "pending" in entry.text and "<script>x</script>" in entry.text
    assert entry.all("li")[0]["data-id"] == "eu-1 eu-1:42:0"


def test_the_assignment_of_a_move_updates_the_row_of_its_unload() -> None:
    unload = example_decision()
    later = {"kind": "assign", "rule": "released", "source": None, "destination": "b-2:80"}
    assign = example_decision(decision_id="eu-1:43:0", seq=43, **later)
    other = example_decision(decision_id="eu-1:44:0", seq=44, bundle="a/b/0x0_0x1", **later)
    found = rows(*(one.to_json().encode() for one in (unload, assign, other)))
    assert [(row["id"], len(row["phases"])) for row in found] == [
        ("eu-1:42:0", 1),
        ("eu-1:42:0", 2),
        ("eu-1:44:0", 0),
    ]
    (tag,) = Tags(render_entry(found[1])).all("li")
    assert tag["data-known"] == "eu-1:42:0 eu-1:43:0"
    assert found[1]["destination"] == "b-2:80"
