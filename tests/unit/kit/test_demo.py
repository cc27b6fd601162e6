"""The demo's parts that need neither Kafka nor Spark: when it is over, how it shows itself, how it
ends what it has started."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from lb_stream.cli.shared.contexts import use_context
from lb_stream.contracts.decisions import Decision, example_decision
from lb_stream.contracts.tables import OUTCOMES, ROUNDS
from lb_stream.io.local import processes
from lb_stream.io.local.java import JavaUnfit
from lb_stream.io.local.signals import StopRequest
from lb_stream.job.process import end_leftover, end_session
from lb_stream.kit.demo.run import DemoPlan, DemoRun, Interrupted, queries
from lb_stream.kit.demo.view import PlainView, comparison, live_screen
from lb_stream.kit.demo.watch import (
    CALM_ROUNDS,
    BrokerFigures,
    DemoState,
    NewRows,
    throughput_imbalance,
)
from lb_stream.sim import SimBroker, build_cluster
from tests.support.wordings import check_wording


class Stage:
    """A watch whose clock and tables the test moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.folder, self.seq, self.log_seq = 100.0, folder, 0, 0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.watch = DemoState(folder, "demo", calm_s=10.0, started=100.0)

    def report(self, workload: str = "steady") -> None:
        cluster = build_cluster(workload_name=workload)
        for name in cluster.brokers:
            self.watch.on_report(name, SimBroker(cluster, name, clock=lambda: 1).report())

    def rounds(self, count: int = 1, cluster: str = "demo", error: str | None = None) -> None:
        for _ in range(count):
            self.seq += cluster == "demo"
            self.log_seq += 1
            self._append(
                ROUNDS,
                {"cluster": cluster, "log_seq": self.log_seq, "seq": self.seq, "error": error},
            )
        self.watch.refresh()

    def decide(self, number: int, **changes: object) -> Decision:
        decision = example_decision(
            decision_id=f"demo:{self.seq}:{number}", cluster="demo", seq=self.seq, **changes
        )
        self.watch.on_decision(decision, None, None)
        return decision

    def end(self, decision: Decision, outcome: str = "confirmed") -> None:
        self._append(
            OUTCOMES, {"decision_id": decision.decision_id, "outcome": outcome, "took_ms": 1200}
        )
        self.watch.refresh()

    def _append(self, spec: object, row: dict[str, object]) -> None:
        schema = spec.schema
        filled = {field.name: row.get(field.name) for field in schema}
        write_deltalake(
            self.folder / spec.name, pa.Table.from_pylist([filled], schema), mode="append"
        )


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_a_cluster_is_not_calm_before_its_first_round(stage: Stage) -> None:
    stage.report()
    stage.now += 60
    stage.watch.refresh()
    assert not stage.watch.calm() and stage.watch.rounds == 0


def test_it_is_calm_when_nothing_is_open_and_some_rounds_and_seconds_have_passed(
    stage: Stage,
) -> None:
    stage.rounds()
    decision = stage.decide(0)
    stage.rounds(CALM_ROUNDS)
    stage.now += 30
    assert not stage.watch.calm(), "the decision is open"
    stage.end(decision)
    assert (
        stage.watch.calm()
        and stage.watch.rounds == CALM_ROUNDS + 1
        and stage.watch.confirmed() == 1
    )


def test_seconds_alone_are_not_enough_and_neither_are_rounds(stage: Stage) -> None:
    stage.rounds(2)
    stage.end(stage.decide(0))
    stage.now += 30
    assert not stage.watch.calm(), "no round has looked since"
    stage.rounds(CALM_ROUNDS)
    assert stage.watch.calm()
    stage.end(stage.decide(1))
    stage.rounds(CALM_ROUNDS)
    assert not stage.watch.calm(), "the shedder has had no time to look again"


def test_a_cluster_that_needs_nothing_is_calm_too(stage: Stage) -> None:
    stage.rounds(CALM_ROUNDS + 1)
    stage.now += 11
    assert stage.watch.calm() and not stage.watch.calm(for_s=40)


def test_an_expired_decision_is_over_but_not_confirmed(stage: Stage) -> None:
    stage.rounds()
    stage.end(stage.decide(0), "expired")
    assert not stage.watch.unconfirmed() and stage.watch.confirmed() == 0


def test_an_outcome_that_is_read_before_its_decision_is_not_lost(stage: Stage) -> None:
    stage.rounds()
    decision = example_decision(decision_id="demo:1:0", cluster="demo", seq=1)
    stage.end(decision)
    stage.decide(0)
    stage.watch.refresh()
    assert stage.watch.confirmed() == 1


def test_rounds_of_other_clusters_do_not_count_and_a_failed_round_is_remembered(
    stage: Stage,
) -> None:
    stage.rounds(3, cluster="other")
    assert stage.watch.rounds == 0
    stage.rounds(error="KeyError: x")
    stage.rounds()
    assert stage.watch.rounds == 2 and stage.watch.error == "KeyError: x"


def test_rounds_that_fail_one_after_another_are_counted_until_one_succeeds(stage: Stage) -> None:
    stage.rounds(3, error="KeyError: x")
    assert stage.watch.failed_in_a_row == 3
    stage.rounds(1)
    assert stage.watch.failed_in_a_row == 0


def test_what_an_earlier_demo_has_left_in_the_tables_is_skipped(stage: Stage) -> None:
    stage.rounds(3)
    again = DemoState(stage.folder, "demo", calm_s=10.0)
    again.skip_past()
    again.refresh()
    assert again.rounds == 0
    stage.rounds()
    again.refresh()
    assert again.rounds == 1


def test_before_is_what_was_reported_last_before_the_first_decision(stage: Stage) -> None:
    stage.report("hot_spot")
    stage.watch.refresh()
    stage.report("steady")
    stage.decide(0)
    stage.report("hot_spot")
    stage.watch.refresh()
    assert (
        throughput_imbalance(stage.watch.before)
        < 1.25
        < throughput_imbalance(stage.watch.figures())
    )


def test_rows_of_a_table_are_read_once_as_they_come(tmp_path: Path) -> None:
    rows = NewRows(tmp_path / "t", ["a"])
    assert rows.read() == []
    for number in range(3):
        write_deltalake(tmp_path / "t", pa.table({"a": [number], "b": ["x"]}), mode="append")
        assert rows.read() == [{"a": number}]
    assert rows.read() == []


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (40, 15), (160, 50)])
def test_the_live_screen_fits_whatever_the_terminal_is(
    stage: Stage, width: int, height: int
) -> None:
    stage.report("hot_spot")
    stage.rounds()
    first = stage.decide(0, source="broker-1:8080", destination="broker-2:8080")
    for number in range(1, 40):
        stage.decide(number, kind="assign", source=None, destination="broker-2:8080")
    stage.end(first, "expired")
    text = io.StringIO()
    console = Console(file=text, width=width, height=height, force_terminal=True, color_system=None)
    console.print(live_screen(stage.watch, "balancing", width, height))
    lines = text.getvalue().splitlines()
    assert len(lines) <= height and max(map(len, lines)) <= width
    assert any("broker-6" in line for line in lines) and "max/mean 2." in text.getvalue()


def test_a_decision_shows_in_80_columns_how_it_stands(stage: Stage) -> None:
    stage.report()
    stage.rounds()
    bundle = "shop/app-07/0x00000000_0x40000000"
    done = stage.decide(0, bundle=bundle, source="broker-1:8080", destination="broker-2:8080")
    stage.end(done)
    stage.decide(1, kind="assign", bundle=bundle, source=None, destination="broker-2:8080")
    text = io.StringIO()
    Console(file=text, width=80, height=24).print(live_screen(stage.watch, "balancing", 80, 24))
    assert (
        "   0.0 s ✓ unload app-07/0x00000000_0x40000000  broker-1 → broker-2  1.2 s\n"
        in text.getvalue()
    )
    assert "   0.0 s … assign app-07/0x00000000_0x40000000  → broker-2\n" in text.getvalue()


def test_many_brokers_are_cut_to_the_busiest(stage: Stage) -> None:
    cluster = build_cluster(40, 200)
    for name in cluster.brokers:
        stage.watch.on_report(name, SimBroker(cluster, name, clock=lambda: 1).report())
    text = io.StringIO()
    Console(file=text, width=80, height=24).print(live_screen(stage.watch, "balancing", 80, 24))
    assert (
        len(text.getvalue().splitlines()) <= 24
        and "broker-1 " in text.getvalue()
        and "and 26 more" in text.getvalue()
    )


def test_lines_tell_each_decision_once_and_its_end_once(stage: Stage) -> None:
    text = io.StringIO()
    view = PlainView(Console(file=text, width=80), stage.watch)
    stage.report("hot_spot")
    stage.rounds()
    view.update(stage.watch, "balancing")
    decision = stage.decide(0, source="broker-1:8080", destination="broker-2:8080")
    for _ in range(3):
        view.update(stage.watch, "balancing")
    stage.end(decision)
    for _ in range(3):
        view.update(stage.watch, "balancing")
    lines = text.getvalue().splitlines()
    assert [line.partition("s  ")[2] for line in lines[1:]] == [
        f"unload {decision.bundle} from broker-1 (for broker-2): above_average, 62% against 51%",
        f"confirmed after 1.2 s: unload {decision.bundle} from broker-1 (for broker-2)",
    ]
    assert "\x1b" not in text.getvalue()


def test_the_comparison_fits_80_columns_and_ends_with_the_unevenness() -> None:
    before = [
        BrokerFigures("a:8080", 10, 1e5, 300e6, 0.9),
        BrokerFigures("b:8080", 2, 1e3, 100e6, 0.1),
    ]
    after = [
        BrokerFigures("a:8080", 6, 1e5, 200e6, 0.5),
        BrokerFigures("b:8080", 6, 1e3, 200e6, 0.5),
    ]
    text = io.StringIO()
    Console(file=text, width=80).print(comparison(before, after))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and lines[-1].split() == ["max/mean", "1.50", "1.00"]
    assert [line.split() for line in lines if line.startswith("a ")] == [
        ["a", "10", "6", "300.0", "200.0", "90%", "50%"]
    ]


def test_the_commands_of_the_demo_use_no_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = tmp_path / "contexts.json"
    monkeypatch.setenv("LB_CONTEXTS", str(contexts))
    assert not any("--context" in query for query in queries())
    use_context("eu-1", tmp_path / "lb.toml", None)
    assert all("lbctl --context none sql " in query for query in queries())
    contexts.write_text("{}")
    assert all("lbctl --context none sql " in query for query in queries())


def test_the_queries_name_the_tables_when_others_are_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert all("--set" not in query for query in queries())
    (tmp_path / ".lb" / "tables").mkdir(parents=True)
    assert all(' --set stream.tables=.lb/demo/tables "' in query for query in queries())


PLAN = DemoPlan("ThresholdShedder", 6, 96, "hot_spot", 1, 400, 240.0, False, False, ())


class FakeJob:
    """A job that has ended."""

    def __init__(self, log: str) -> None:
        self.log, self.starts = log, 0

    def exit_code(self) -> int | None:
        return 1

    def log_tail(self, lines: int = 20) -> str:
        return self.log

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        pass


def demo_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoRun:
    monkeypatch.chdir(tmp_path)
    run = DemoRun(PLAN, StopRequest(), time.monotonic())
    monkeypatch.setattr(type(run.kafka), "pid", 1)
    return run


class FakeAgent:
    running, failure = True, None


@pytest.mark.parametrize(
    "text", ["UnknownTopicOrPartitionException: ...", "balance.py: no Kafka at 127.0.0.1:50111"]
)
def test_a_job_that_looked_for_kafka_or_its_topics_too_early_is_started_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    run, job = demo_run(tmp_path, monkeypatch), FakeJob(text)
    run._check(FakeAgent(), job)
    assert job.starts == 1
    with pytest.raises(Exception) as error:
        run._check(FakeAgent(), job)
    check_wording(error.value)
    assert job.starts == 1


def test_a_job_that_died_of_something_else_ends_the_demo_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, job = demo_run(tmp_path, monkeypatch), FakeJob("java.lang.OutOfMemoryError")
    with pytest.raises(Exception) as error:
        run._check(FakeAgent(), job)
    check_wording(error.value)
    assert job.starts == 0


def test_a_balancer_whose_rounds_all_fail_ends_the_demo_with_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, job = demo_run(tmp_path, monkeypatch), FakeJob("")
    monkeypatch.setattr(job, "exit_code", lambda: None)
    run.watch.error, run.watch.failed_in_a_row = "KeyError: x", 9
    run._check(FakeAgent(), job)
    run.watch.failed_in_a_row = 10
    with pytest.raises(Exception, match=r"rounds of the balancer failed.*\n\nKeyError: x"):
        run._check(FakeAgent(), job)


def test_the_users_settings_go_over_the_demos_but_not_over_its_folders() -> None:
    given = ("balancer.shedding_strategy=X", "stream.tables=/elsewhere")
    plan = DemoPlan("AvgShedder", 6, 96, "hot_spot", 1, 400, 240.0, False, False, given)
    given = plan.overrides("127.0.0.1:9")
    assert given.index("balancer.shedding_strategy=X") > given.index(
        "balancer.shedding_strategy=AvgShedder"
    )
    assert [one for one in given if one.startswith("stream.tables")][-1].endswith(".lb/demo/tables")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_stop_is_noted_and_the_handlers_come_back(number: signal.Signals) -> None:
    def of_before(*_: object) -> None: ...

    outside = signal.signal(number, of_before)  # under nohup, SIGHUP is none
    try:
        with StopRequest() as stop:
            assert not stop
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            assert stop and stop.number == number
        assert signal.getsignal(number) is of_before
    finally:
        signal.signal(number, outside)


def test_a_noted_request_interrupts_the_demo_at_its_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = demo_run(tmp_path, monkeypatch)
    run.stop.number = signal.SIGTERM
    with pytest.raises(Interrupted):
        run._pause(PlainView(Console(file=io.StringIO()), run.watch), "balancing")


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = "import os, signal, time; os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN); "
sleeper += "print('up', flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", sleeper])
print(child.pid, flush=True)
time.sleep(60)
"""


def stubborn_session() -> tuple[subprocess.Popen[str], int]:
    """A process that ignores SIGTERM, with a child in a group of its own that does too: (process,
    the child's id)."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    lines = {process.stdout.readline().strip(), process.stdout.readline().strip()}
    return process, int((lines - {"up"}).pop())


def test_everything_that_the_job_has_started_ends_with_it_even_what_ignores_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lb_stream.job.process.GRACE_S", 0.2)
    monkeypatch.setattr("lb_stream.job.process.SECOND_GRACE_S", 0.2)
    process, child = stubborn_session()
    end_session(process.pid, process.poll)
    assert process.wait(5) == -signal.SIGKILL and processes.start_mark(child) is None


def test_a_leftover_job_is_ended_by_its_note_and_a_stale_note_touches_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lb_stream.job.process.GRACE_S", 0.2)
    monkeypatch.setattr("lb_stream.job.process.SECOND_GRACE_S", 0.2)
    state = tmp_path / "job.json"
    assert not end_leftover(state)
    process, child = stubborn_session()
    state.write_text(json.dumps({"pid": process.pid, "started": "another boot:1"}))
    assert not end_leftover(state) and process.poll() is None
    state.write_text(json.dumps({"pid": process.pid, "started": processes.start_mark(process.pid)}))
    assert end_leftover(state) and not state.exists()
    assert process.wait(5) == -signal.SIGKILL and processes.start_mark(child) is None


def test_without_java_the_last_demos_tables_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = demo_run(tmp_path, monkeypatch)
    kept = tmp_path / ".lb" / "demo" / "tables" / "rounds"
    kept.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaUnfit):
        run.run()
    assert kept.exists()
