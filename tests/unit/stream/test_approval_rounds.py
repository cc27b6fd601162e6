"""A cluster that waits for approval as the deciding stage runs it: the log keeps what waits, tables
follow, replay repeats all of it."""

import json
from pathlib import Path
from typing import Any

from lb_stream.backtest.open_loop import run_open_loop
from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.tables import DECISIONS, PROPOSALS, ROUNDS
from lb_stream.io.tables.replay import RoundFilter, load_round_starts, replay
from lb_stream.sim.simulation import Policy
from tests.support.build import Event
from tests.support.round_stage import Stage
from tests.support.written_tables import rows_of


def stage_of(folder: Path) -> Stage:
    stage = Stage(folder, shadows={})
    stage.settings = stage.settings.model_copy(
        update={"balancer": stage.settings.balancer | {"mode": "approve"}}
    )
    return stage


def order(stage: Stage, kind: str, **fields: Any) -> None:
    """Have a command come with the next batch."""
    at_ms = 1_000_000 + 60_000 * (stage.batch + 1)
    record = COMMANDS[kind](id=f"{kind}-{at_ms}", by="User:ann", **fields).model_dump(mode="json")
    stage.events.append(
        Event("command", "", at_ms, payload=json.dumps({"record": record, "rejected": None}))
    )


def waiting(stage: Stage) -> list[str]:
    return [
        proposal["proposal_id"]
        for proposal in json.loads(stage.job.log.memories["eu"]).get("proposals", ())
    ]


def test_what_waits_outlives_the_end_of_a_job_and_every_round_is_repeated_from_the_log(
    tmp_path: Path,
) -> None:
    stage = stage_of(tmp_path / "cut")
    stage.run(2)
    ids = waiting(stage)
    assert len(ids) >= 2 and not len(rows_of(stage.job, DECISIONS))
    stage.restart()
    order(stage, "approve-proposals", proposals=ids[:1])
    order(stage, "reject-proposals", proposals=ids[1:2], why="not now", for_ms=3_600_000)
    stage.run(2)
    assert not {*ids[:2]} & {*waiting(stage)}
    count, replayed = replay(stage.settings.stream, RoundFilter())
    assert ([round_.result for round_ in replayed], count) == (["equal"] * 4, 4)
    rows = {
        row["proposal_id"]: row
        for row in rows_of(stage.job, PROPOSALS).to_pylist()
        if row["state"] != "waiting"
    }
    (decided,) = [row for row in rows_of(stage.job, DECISIONS).to_pylist() if row["proposal_id"]]
    assert (decided["proposal_id"], decided["approved_by"]) == (ids[0], "User:ann")
    assert (rows[ids[0]]["state"], rows[ids[0]]["decision_id"]) == (
        "approved",
        decided["decision_id"],
    )
    assert (rows[ids[1]]["state"], rows[ids[1]]["why"], rows[ids[1]]["by"]) == (
        "rejected",
        "not now",
        "User:ann",
    )
    assert set(rows_of(stage.job, ROUNDS)["proposals"].to_pylist()) > {"[]"}


def test_another_look_at_its_rounds_asks_nobody(tmp_path: Path) -> None:
    stage = stage_of(tmp_path / "asked")
    stage.run(3)
    (row,) = run_open_loop(
        load_round_starts(stage.settings.stream, RoundFilter())[1], [Policy("same", {})]
    )
    assert (row["error"], row["moves"] > 0) == (None, True)
