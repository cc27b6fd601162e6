"""The verdict on job and clusters, and `lbctl status`, which tells it from what is there without
the job."""

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.cli.shared.drain_watch import DrainWatch
from lb_stream.contracts.base import canonical_json
from lb_stream.contracts.tables import BATCHES, LEADERS, REFUSALS, ROUNDS
from lb_stream.core.model.memory import Suspension
from lb_stream.io.leadership.leader import this_host
from lb_stream.io.local.processes import started_ms
from lb_stream.query.health import (
    EXIT_CODES,
    ClusterFacts,
    DemoEnd,
    Facts,
    explain_staleness,
    judge,
)
from lb_stream.query.profiles import ProfileFacts, SettingChange
from lb_stream.query.rollouts import RolloutFacts
from lb_stream.store import Store
from tests.support.job_facts import JOB, NOW
from tests.support.lbctl_runner import Result, lbctl
from tests.support.recorded_tables import Recorder, record
from tests.support.table_rows import fill, with_operator_state
from tests.support.wordings import check_wording

EU = ClusterFacts("eu-1", NOW - 5_000, 42, brokers=3)
WELL = Facts(NOW, JOB, (EU,), disk_free=50 << 30, disk_size=100 << 30)


def with_job(**changes: Any) -> Facts:
    return replace(WELL, job=replace(JOB, **changes))


def with_cluster(**changes: Any) -> Facts:
    return replace(WELL, clusters=(replace(EU, **changes),))


def test_what_is_well_is_healthy_and_nothing_is_stale() -> None:
    assert (judge(WELL).state, judge(WELL).findings, explain_staleness(WELL)) == (
        "healthy",
        (),
        None,
    )
    check_wording(judge(WELL).sentence)


def test_figures_are_stale_until_a_job_that_has_just_started_finishes_a_batch() -> None:
    before = replace(EU, last_round_ms=NOW - 120_000)
    job = replace(JOB, since_ms=NOW - 10_000, last_batch_ms=NOW - 120_000)
    started = replace(WELL, job=job, clusters=(before,))
    assert judge(started).state == "healthy"
    check_wording(explain_staleness(started))
    assert explain_staleness(replace(started, job=replace(job, last_batch_ms=NOW))) is None


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (with_job(epoch=None), "down", "no job of the pipeline lb has been started"),
        (
            with_job(running=False, evidence="its process 77 on this machine has ended"),
            "down",
            "the job is not running (its process 77",
        ),
        (
            replace(WELL, kafka="127.0.0.1:1: Connection refused"),
            "down",
            "Kafka doesn't answer (127.0.0.1:1: Connection refused)",
        ),
        (
            with_job(running=None, last_batch_ms=NOW - 1_260_000),
            "down",
            "has finished no batch for 21 min: see its log on h1",
        ),
        (with_job(running=None), "degraded", "is not known here"),
        (with_job(last_batch_ms=NOW - 300_000), "degraded", "and has finished no batch for 5 min"),
        (with_job(lag_records=20_000), "degraded", "20000 records wait"),
        (replace(WELL, clusters=()), "degraded", "no broker has reported yet"),
        (
            with_cluster(error="Traceback\nKeyError: 'x'"),
            "degraded",
            "eu-1's last round failed (KeyError: 'x')",
        ),
        (
            with_cluster(suspended_by="everything_silent", silent=("a", "b")),
            "degraded",
            "eu-1 is SUSPENDED (everything_silent): 2 (a, b)",
        ),
        (
            with_cluster(retry_ms=NOW + 120_000, error="x"),
            "degraded",
            "SUSPENDED (its last rounds failed, next try in 2 min)",
        ),
        (with_cluster(silent=("a",)), "degraded", "eu-1: 1 (a) of 3 brokers silent"),
        (replace(WELL, disk_free=1 << 20), "degraded", "0.0 GiB are free"),
        (
            replace(WELL, searches_poison_record=True),
            "degraded",
            "one batch has ended the job repeatedly: wait",
        ),
        (replace(WELL, skipped_records=("lb-load-reports/0@7",)), "healthy", "without trouble"),
        (with_cluster(paused=True), "healthy", "without trouble"),
        (with_cluster(mode="observe", drained=("a",), gone=("b",)), "healthy", "without trouble"),
    ],
)
def test_every_trouble_has_its_state_and_says_what_to_do(
    facts: Facts, state: str, words: str
) -> None:
    found = judge(facts)
    assert (found.state, words in found.sentence) == (state, True), found.sentence
    assert all(finding.advice for finding in found.findings)
    assert all(
        (finding.event is None) == (finding.state == "healthy") for finding in found.findings
    ), "people are told of all that isn't well"


def test_a_rollout_is_healthy_until_it_stands_still() -> None:
    rollout = RolloutFacts(
        "r", "User:ann", 3, 1, ("b:1 down since 12:00",), state="waits until b:1 is back"
    )
    well = judge(with_cluster(rollout=rollout, restarting=("b:1",)))
    assert (well.state, [finding.event for finding in well.findings]) == ("healthy", [None])
    state, advice = "stands still since 12:15:00: b:1 is down", "start b:1"
    held = replace(rollout, still_ms=NOW, state=state, advice=advice)
    still = judge(with_cluster(rollout=held))
    assert (still.state, still.findings[0].event) == ("degraded", "rollout_stands_still")
    check_wording("\n".join(found.findings[0].description for found in (well, still)))


def test_a_profile_that_is_to_change_is_healthy_and_people_are_told_of_it() -> None:
    profile = ProfileFacts(
        "pulsar-4.0",
        version="4.0.7",
        doubts=("brokers differ",),
        next="pulsar-5.0",
        next_version="5.0.1",
        next_ms=NOW + 60_000,
        changes=tuple(SettingChange(f"key_{at}", "1", "2") for at in range(6)),
    )
    found = judge(with_cluster(profile=profile))
    assert found.state == "healthy"
    assert [finding.event for finding in found.findings] == ["profile_change", None]
    assert all(words in found.findings[0].description for words in ("key_3: 1 → 2", "2 more"))
    assert "key_4" not in found.findings[0].description


def test_a_slow_broker_is_worth_knowing_but_no_trouble_of_the_balancer() -> None:
    text = "b3:8080: its cpu does 25% of the work of its kind's, by its usage"
    facts = with_cluster(unlike=(text,))
    assert judge(facts).state == "healthy"
    assert any(text in finding.description for finding in judge(facts).findings)


def test_what_was_stepped_over_is_worth_knowing() -> None:
    (found,) = judge(
        replace(WELL, skipped_records=tuple(f"lb-load-reports/0@{at}" for at in range(4)))
    ).findings
    assert found.description.endswith(
        "skipped: 4 (lb-load-reports/0@0, lb-load-reports/0@1, lb-load-reports/0@2 and 1 more)"
    )


def test_the_gravest_finding_is_the_verdict_and_the_others_are_counted() -> None:
    facts = replace(with_cluster(silent=("a",), paused=True), kafka="away")
    found = judge(facts)
    assert [finding.state for finding in found.findings] == ["down", "degraded", "healthy"]
    assert found.sentence.startswith("down: Kafka") and found.sentence.endswith("(and 1 more)")


def test_a_silent_job_without_ticks_is_not_late() -> None:
    assert judge(with_job(last_batch_ms=NOW - 3_600_000, ticks=False)).state == "healthy"


# --- from the tables ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """Tables of a few rounds."""
    return record(tmp_path_factory.mktemp("status") / "tables", 3)


def started(made: Recorder, pid: int, since_ms: int, host: str = "") -> None:
    """A start of the job, later than all before, and a batch now."""
    now_ms = int(time.time() * 1000)
    fill(
        made.root,
        LEADERS,
        [
            {
                "pipeline": "lb-stream",
                "epoch": now_ms,
                "host": host or this_host(),
                "pid": pid,
                "since_ms": since_ms,
            }
        ],
    )
    fill(
        made.root,
        BATCHES,
        [{"app": "a", "epoch": 1, "batch_id": now_ms, "started_ms": now_ms, "lag_records": 0}],
    )


def ask(made: Recorder, tmp_path: Path, *command: str) -> Result:
    return lbctl(
        *command,
        "--set",
        f"stream.tables={made.root}",
        "--set",
        "kafka.bootstrap_servers=127.0.0.1:1",
        cwd=tmp_path,
    )


def test_a_killed_job_is_seen_at_once_by_status_and_by_every_screen(
    run: Recorder, tmp_path: Path
) -> None:
    child = os.posix_spawn("/bin/true", ["/bin/true"], {})
    os.waitpid(child, 0)
    started(run, child, int(time.time() * 1000))
    result = ask(run, tmp_path, "status", "--json")
    (found,) = result.objects
    assert (result.code, found["state"], found["facts"]["job"]["running"]) == (
        EXIT_CODES["down"],
        "down",
        False,
    )
    for command in (("brokers",), ("clusters", "list"), ("leader",), ("decisions",), ("monitor",)):
        result = ask(run, tmp_path, *command)
        assert (
            f"NOT UP TO DATE: the job is not running (its process {child} on this machine has "
            "ended)" in result.err + result.out
        ), command


def test_a_running_job_has_no_banner_and_another_process_with_its_number_is_not_it(
    run: Recorder, tmp_path: Path
) -> None:
    began_ms = started_ms(os.getpid())
    assert began_ms is not None
    started(run, os.getpid(), int(time.time() * 1000))
    assert "NOT UP TO DATE" not in ask(run, tmp_path, "brokers").err
    (found,) = ask(run, tmp_path, "status", "--json").objects
    assert (found["facts"]["job"]["running"], found["facts"]["kafka"]) == (
        True,
        "127.0.0.1:1: Connection refused",
    )
    later = int(time.time() * 1000) + 1
    fill(
        run.root,
        LEADERS,
        [
            {
                "pipeline": "lb-stream",
                "epoch": later,
                "host": this_host(),
                "pid": os.getpid(),
                "since_ms": later,
            }
        ],
    )
    assert "NOT UP TO DATE" not in ask(run, tmp_path, "brokers").err


def test_a_job_without_a_limit_on_what_it_reads_is_late_when_more_waits_than_by_default(
    run: Recorder, tmp_path: Path
) -> None:
    started(run, os.getpid(), int(time.time() * 1000))
    (found,) = ask(
        run, tmp_path, "status", "--json", "--set", "stream.max_offsets_per_trigger=0"
    ).objects
    assert found["facts"]["lag_limit"] == 5_000


def test_a_person_reads_the_verdict_first(run: Recorder, tmp_path: Path) -> None:
    started(run, os.getpid(), int(time.time() * 1000))
    result = ask(run, tmp_path, "status")
    assert result.code == 2
    assert result.out.startswith("down: Kafka doesn't answer (127.0.0.1:1: Connection refused)")
    assert " up: process " in result.out and "demo" in result.out


def test_brokers_are_said_to_be_draining_drained_or_limited(tmp_path: Path) -> None:
    made = record(
        tmp_path / "tables",
        5,
        settings={"max_moves_in_flight_per_broker": 1, "max_moves_per_minute": 1},
    )
    with_operator_state(made, drained=("broker-2:8080", "broker-9:8080"))
    states = {
        row["broker"]: row["state"] for row in ask(made, tmp_path, "brokers", "--json").objects
    }
    assert states == {f"broker-{number}:8080": "" for number in range(1, 7)} | {
        "broker-2:8080": "draining",
        "broker-1:8080": "limited",
    }
    assert "yes, draining" in ask(made, tmp_path, "brokers").out
    lines = ask(made, tmp_path, "monitor").out.splitlines()
    assert [
        any(f"broker-{number} {word}" in line for line in lines)
        for number, word in ((2, "draining"), (1, "limited"))
    ] == [True, True]
    assert EU.state_of("a") == "" and replace(EU, drained=("a",)).state_of("a") == "drained"


def test_status_warns_of_isolation_policies_that_match_no_live_broker(tmp_path: Path) -> None:
    made = record(tmp_path / "tables", 3)
    rest = {"namespaces": ["shop/.*"], "secondary": [], "min_available": 1}
    given = {
        "none": rest | {"name": "none", "primary": ["nobody:8080"]},
        "some": rest
        | {"name": "some", "primary": ["broker-1:8080", "broker-1"], "secondary": ["b"]},
    }
    with_operator_state(made, isolation=given)
    said = ask(made, tmp_path, "status").out
    assert "isolation policies that match no live broker: 1 (none)" in said
    assert "warning: no live broker matches 1 (some: secondary 'b')" in said
    bundle = ask(made, tmp_path, "sql", "--json", "select bundle from bundle_averages limit 1")
    why = ask(made, tmp_path, "explain", "--why-not", bundle.objects[0]["bundle"]).out
    assert "which match none of 6 live brokers" in " ".join(why.split())


def test_where_no_broker_lives_isolation_policies_are_no_news(tmp_path: Path) -> None:
    made = record(tmp_path / "tables", 3)
    given = {
        "name": "p",
        "namespaces": ["shop/.*"],
        "primary": ["a"],
        "secondary": [],
        "min_available": 1,
    }
    began_ms = made.rounds[-1].now_ms
    names = tuple(f"broker-{number}:8080" for number in range(1, 7))
    suspended = Suspension("everything_silent", began_ms, began_ms, brokers=names)
    with_operator_state(made, isolation={"p": given}, suspension=suspended)
    said = ask(made, tmp_path, "status").out
    assert "SUSPENDED" in said and "isolation" not in said


def test_a_drain_tells_how_many_are_left_who_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = record(tmp_path / "tables", 3, settings={"max_moves_per_minute": 0})
    with_operator_state(made, drained=("broker-2:8080",))
    now_ms = made.rounds[-1].now_ms
    refused = {
        "cluster": "demo",
        "rule": "moves_per_minute",
        "broker": None,
        "count": 1,
        "subjects": [],
        "now_ms": now_ms,
        "log_seq": 9,
    }
    fill(made.root, REFUSALS, [refused])
    DrainWatch(Store.at(made.root), "demo", "broker-2:8080").look()
    told = capsys.readouterr().err
    assert re.match(
        r"broker-2:8080: (\d+) of \1 bundles left; shop/app-\d+/0x\w+: as many moves as allowed "
        r"began within the last minute",
        told,
    ), told
    DrainWatch(tmp_path / "nowhere", "demo", "broker-2:8080").look()
    assert capsys.readouterr().err == ""


def test_a_suspended_cluster_is_said_to_be_and_its_brokers_are_not_counted_as_alive(
    tmp_path: Path,
) -> None:
    made = record(tmp_path / "tables", 2)
    (row,) = ask(
        made, tmp_path, "sql", "SELECT * FROM rounds ORDER BY log_seq DESC LIMIT 1", "--json"
    ).objects
    brokers = [f"broker-{number}:8080" for number in range(1, 7)]
    refusal = {
        "rule": "everything_silent",
        "broker": None,
        "count": 6,
        "limit": 30_000,
        "least": 1,
        "greatest": 2,
        "unit": "ms",
    }
    fill(
        made.root,
        ROUNDS,
        [
            row
            | {
                "log_seq": row["log_seq"] + 1,
                "refusals": canonical_json([refusal | {"subjects": brokers}]),
            }
        ],
    )
    (found,) = ask(made, tmp_path, "clusters", "list", "--json").objects
    assert (found["state"], found["suspended_by"], found["brokers_alive"], found["brokers"]) == (
        "SUSPENDED",
        "everything_silent",
        0,
        6,
    )
    assert "SUSPENDED" in ask(made, tmp_path, "clusters", "list").out
    assert "SUSPENDED (everything_silent)" in ask(made, tmp_path, "monitor").out


def note_demo_end(made: Recorder, at_ms: int, how: str = "balanced") -> None:
    (made.root.parent / "ended.json").write_text(json.dumps({"at_ms": at_ms, "how": how}))


def test_a_demo_that_has_ended_is_no_trouble() -> None:
    ended = replace(
        with_job(running=False), kafka="refused", demo_end=DemoEnd("12:00:00", "balanced")
    )
    found = judge(ended)
    assert (found.state, EXIT_CODES[found.state], found.findings) == ("ended", 0, ())
    assert found.sentence.startswith(
        "ended: the demo ended at 12:00:00, balanced: `lbctl demo --keep`"
    )
    check_wording(explain_staleness(ended))


def test_a_demos_tables_say_that_it_has_ended_until_another_job_runs_on_them(
    tmp_path: Path,
) -> None:
    run = record(tmp_path / "demo" / "tables")
    child = os.posix_spawn("/bin/true", ["/bin/true"], {})
    os.waitpid(child, 0)
    now_ms = int(time.time() * 1000)
    started(run, child, now_ms - 1000)
    note_demo_end(run, now_ms)
    result = ask(run, tmp_path, "status")
    assert result.code == 0 and result.out.startswith("ended: the demo ended at ")
    assert not re.search("down|NOT RUNNING|Kafka doesn't answer", result.out), result.out
    for command in (("brokers",), ("decisions",), ("monitor",)):
        said = ask(run, tmp_path, *command)
        assert "NOT UP TO DATE" not in said.out + said.err
        assert "the demo ended at " in said.out + said.err, command
    started(run, os.getpid(), now_ms + 1)
    assert ask(run, tmp_path, "status").code == 2, "a job runs again, and its Kafka doesn't answer"
    later = os.posix_spawn("/bin/true", ["/bin/true"], {})
    os.waitpid(later, 0)
    started(run, later, now_ms + 2)
    assert "NOT UP TO DATE" in ask(run, tmp_path, "brokers").err, "another job has written since"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"at_ms": null, "how": "x"}'])
def test_a_note_of_an_end_that_can_not_be_read_is_none(
    run: Recorder, tmp_path: Path, content: str
) -> None:
    (run.root.parent / "ended.json").write_text(content)
    assert not ask(run, tmp_path, "status").out.startswith("ended")
    (run.root.parent / "ended.json").unlink()


def test_a_limit_that_traffic_contradicts_is_worth_knowing() -> None:
    found = judge(with_cluster(doubtful=("broker-3 uses more than it reports: 100 Mbit/s in",)))
    assert found.state == "healthy"
    (finding,) = found.findings
    assert "broker-3" in finding.description and "lbctl brokers capacity" in finding.advice
