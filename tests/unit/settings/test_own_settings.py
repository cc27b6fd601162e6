"""The job's own settings in the audit: what another start has changed is said once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lb_stream.core.commands.audited import TAKE_OVER, JobChange
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.model.memory import Memory, OwnSettings
from lb_stream.core.round.decide import Inbox, Round
from tests.support.command_rounds import GIVEN, TWO, view
from tests.support.commanded_round import decide_with

CHANGED = {**GIVEN, "dry_run": True, "broker_capacities": ["broker=a cpu_cores=2"]}


def run(memory: Memory, given: dict[str, Any], inbox: Inbox | None = None) -> Round:
    made = decide_with(view(**TWO), memory, inbox or Inbox(), given)
    assert Memory.from_json(made.memory.to_json()) == made.memory
    return made


def test_settings_of_its_own_that_the_last_job_did_not_have_are_said_once() -> None:
    first = run(Memory(epoch=1), GIVEN)
    assert not first.results and first.memory.own_settings == OwnSettings(1, GIVEN)
    again = run(replace(first.memory, epoch=2), GIVEN)
    assert not again.results and again.memory.own_settings == OwnSettings(2, GIVEN)
    second = run(replace(again.memory, epoch=3), CHANGED)
    (answer,) = second.results
    assert (answer.id, answer.kind, answer.by) == ("", "own-settings", "the job")
    assert answer.audited.objects == ("setting broker_capacities", "setting dry_run")
    texts = answer.audited.old_value, answer.audited.new_value
    assert [json.loads(text or "")["own_settings"] for text in texts] == [
        {"dry_run": False},
        {"broker_capacities": ["broker=a cpu_cores=2"], "dry_run": True},
    ]
    assert not run(second.memory, CHANGED).results
    assert not run(replace(second.memory, epoch=4), CHANGED).results


def test_a_take_over_is_answered_to_nobody() -> None:
    change = JobChange(TAKE_OVER, "host:7", "leads as a standby after host:6 (epoch 1)")
    (answer,) = run(Memory(epoch=2), GIVEN, Inbox(job_changes=(change,))).results
    assert answer == CommandAnswer.of_job(change, 1_000)
    assert not answer.id and answer.by == "host:7"
