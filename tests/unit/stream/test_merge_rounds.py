"""A merge through the deciding stage: what the log and the tables have of it, and that it is
decided again from them, bit for bit."""

import json
from pathlib import Path

from lb_stream.contracts.tables import DECISIONS, OWNERSHIP, ROUNDS
from lb_stream.io.tables.replay import RoundFilter, replay
from lb_stream.operations.merge import Merge
from lb_stream.stream.records import parse_agent_record
from tests.support.build import Event
from tests.support.hot_broker import BUNDLES, HOT
from tests.support.round_stage import Stage
from tests.support.written_tables import rows_of

LOW, HIGH, MERGED = BUNDLES[0], BUNDLES[1], "t/n/0x00000000_0x20000000"


def beats(stage: Stage, *heartbeats: str) -> None:
    """Heartbeats of the next batch, one after another: who can merge says so."""
    stage.events += [
        Event(
            "heartbeat",
            broker,
            1_000_000,
            offset=at,
            payload=parse_agent_record("heartbeat", b'{"merges": true}' if merges else b""),
        )
        for at, (broker, merges, _) in enumerate(text.partition(" merges") for text in heartbeats)
    ]


def order(stage: Stage, number: int) -> None:
    command = Merge(
        id=f"m{number}", namespace="t/n", bundles=[LOW.rpartition("/")[2], HIGH.rpartition("/")[2]]
    )
    payload = json.dumps({"record": command.model_dump(mode="json"), "rejected": None})
    stage.events.append(Event("command", "", 1_000_000, offset=number, payload=payload))


def test_a_merge_is_logged_shown_and_replayed_and_who_can_merge_is_logged_when_it_changes(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, shadows={})
    stage.settings.balancer["shedding_enabled"] = False
    beats(stage, "a", "b merges")
    order(stage, 1)
    refused = stage.run()
    assert json.loads(refused["results"])[0]["rule"] == "cannot_merge"
    for heartbeat in ("a merges", "a merges"):
        beats(stage, heartbeat, "b merges")
        stage.run()
    order(stage, 2)
    row = stage.run()
    (decision,) = json.loads(row["decisions"])
    assert (decision["kind"], decision["bundle"], decision["neighbour"], decision["children"]) == (
        "merge",
        LOW,
        HIGH,
        [MERGED],
    )
    stage.restart()
    stage.owned = HOT | {"a": [MERGED, *BUNDLES[2:6]]}
    (outcome,) = json.loads(stage.run()["outcomes"])
    assert (outcome["outcome"], outcome["detail"]) == ("confirmed", "the merged bundle is reported")

    logged = [
        json.loads(row["inputs"]).get("merging") for row in rows_of(stage.job, ROUNDS).to_pylist()
    ]
    assert logged == [{"b": True}, {"a": True}, None, None, None], "only what is new"
    assert {row["neighbour"] for row in rows_of(stage.job, DECISIONS).to_pylist()} == {HIGH}
    states = {
        row["bundle"]: (row["state"], row["version"])
        for row in rows_of(stage.job, OWNERSHIP).to_pylist()
    }
    assert (states[LOW], states[HIGH], states[MERGED]) == (
        ("Deleted", 3),
        ("Deleted", 3),
        ("Owned", 1),
    )
    assert [round_.result for round_ in replay(stage.settings.stream, RoundFilter())[1]] == [
        "equal"
    ] * 5
