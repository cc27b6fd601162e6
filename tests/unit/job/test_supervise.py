"""A stream begins anew after what passes, and only then. No JVM, no Kafka needed."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import TopicAuthorizationFailedError
from pyspark.errors import StreamingQueryException

from lb_stream.contracts.settings import Settings, StreamSettings
from lb_stream.io.kafka.outbox import KafkaUnavailable, _wait_while_progressing
from lb_stream.io.kafka.poison_records import Replan
from lb_stream.io.leadership.clock import Clock
from lb_stream.io.leadership.membership import Member
from lb_stream.io.messages.errors import error_chain
from lb_stream.job import supervise
from lb_stream.job.damage import find_machine_fault
from lb_stream.job.failures import KAFKA_PAUSES, PAUSES, Pauses, TransientError, find_failure
from lb_stream.job.running import BatchFailed, Running, SharedCheckpoint, Stuck, WatchedBatches
from lb_stream.stream.ports import FatalError
from tests.support.wordings import check_wording


@dataclass
class Run:
    """One start of the stream: so many batches, then this end."""

    done: int
    end: Exception | None

    @property
    def batches(self) -> "Run":
        return self

    def wait(self, _stop: object = None) -> None:
        if self.end is not None:
            raise self.end


@dataclass
class World:
    """Starts one run after another; notes what happens."""

    runs: list[Run]
    calls: list[str] = field(default_factory=list)
    backlog: list[Any] = field(default_factory=list)
    excused: int = 0
    pauses: list[float] = field(default_factory=list)
    now: float = 0.0

    def pause(self, seconds: float, _stop: object) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def forgive_last_start(self, _settings: Settings) -> None:
        self.excused += 1

    def start(self, *arguments: Any) -> Any:
        self.calls.append("start")
        self.backlog.append(arguments[-1])
        run = self.runs.pop(0)
        backlog = f"as far as start {len(self.backlog)} came"
        run.balancer = SimpleNamespace(backlog=backlog)
        run.stop = lambda: self.calls.append("stop")
        return run


def run(monkeypatch: pytest.MonkeyPatch, *runs: Run, settings: Settings | None = None) -> World:
    """Let them run; what ends it all is raised."""
    world = World(list(runs))
    monkeypatch.setattr(supervise, "start", world.start)
    monkeypatch.setattr(supervise, "wait_for_kafka", lambda *_: world.calls.append("wait"))
    monkeypatch.setattr(supervise, "_wait", world.pause)
    monkeypatch.setattr(supervise, "forgive_last_start", world.forgive_last_start)
    monkeypatch.setattr("lb_stream.job.failures.time", SimpleNamespace(monotonic=lambda: world.now))
    try:
        given = settings or Settings()
        supervise.run(None, given, Member(given, leads=True))
    except Exception as error:
        world.calls.append(type(error).__name__)
    return world


AWAY = KafkaUnavailable("it is gone")


def test_it_begins_anew_once_kafka_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = run(monkeypatch, Run(7, AWAY), Run(0, AWAY), Run(2, None))
    assert world.calls == ["start", "stop", "wait"] * 2 + ["start", "stop"]


def test_a_batch_that_is_planned_again_is_no_absence_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = run(
        monkeypatch, Run(7, Replan("one")), Run(0, Replan("two")), Run(2, AWAY), Run(1, None)
    )
    assert world.calls == [
        "start",
        "stop",
        "start",
        "stop",
        "start",
        "stop",
        "wait",
        "start",
        "stop",
    ]
    assert world.backlog == [None, "as far as start 1 came", "as far as start 2 came", None]


@pytest.mark.parametrize("end", [FatalError("another job"), ValueError("a fault")])
def test_whatever_else_ends_it_ends_it(monkeypatch: pytest.MonkeyPatch, end: Exception) -> None:
    assert run(monkeypatch, Run(1, AWAY), Run(0, end)).calls == [
        "start",
        "stop",
        "wait",
        "start",
        "stop",
        type(end).__name__,
    ]


@pytest.mark.parametrize(
    ("newer", "ends", "starts"),
    [(False, 1, 1), (True, 1, 2), (True, 2, 2)],
    ids=["the older job", "the newer job", "twice: no race"],
)
def test_of_two_jobs_at_one_checkpoint_the_newer_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, newer: bool, ends: int, starts: int
) -> None:
    monkeypatch.setattr(supervise, "is_leader", lambda *_: newer)
    world = run(monkeypatch, *[Run(1, SharedCheckpoint("/c")) for _ in range(ends)], Run(1, None))
    assert world.calls.count("start") == starts
    assert (world.calls[-1] == "SharedCheckpoint") is (ends == starts)


def test_a_missing_right_ends_it_at_once_and_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody answers the question which rights are missing.
    asked = "lb_stream.io.kafka.rights.name_missing_rights"
    monkeypatch.setattr(asked, lambda *given: given[-1])
    assert run(monkeypatch, Run(3, TopicAuthorizationFailedError("x"))).calls == [
        "start",
        "stop",
        "AccessDenied",
    ]


DIED = TransientError("Python workers have ended", by_a_record=True)
LATE = TransientError("executors were lost")


@pytest.mark.parametrize("leads", [True, False])
def test_a_leader_that_had_no_kafka_does_not_shut_out_whoever_leads_meanwhile(
    monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    monkeypatch.setattr(supervise, "is_leader", lambda *_: leads)
    monkeypatch.setattr(Clock, "epoch", 3, raising=False)
    monkeypatch.setattr(Clock, "__init__", lambda *_: None)
    world = run(monkeypatch, Run(7, AWAY), Run(1, None))
    assert world.calls == ["start", "stop", "wait", *(["start", "stop"] if leads else ["Fenced"])]


@pytest.mark.parametrize(
    ("end", "pauses"),
    [(AWAY, KAFKA_PAUSES), (DIED, PAUSES), (LATE, PAUSES)],
    ids=["Kafka", "workers", "executors"],
)
def test_it_waits_longer_each_time_and_gives_up_when_it_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch, end: Exception, pauses: Pauses
) -> None:
    world = run(monkeypatch, *[Run(0, end) for _ in range(1_000)])
    first_s, longest_s = pauses
    grown = [first_s * 2**number for number in range(5)]
    assert world.pauses[:6] == [*grown, longest_s] and set(world.pauses[5:]) == {longest_s}
    limit_s = StreamSettings().batch_timeout_ms / 1000
    assert limit_s - longest_s <= sum(world.pauses) <= limit_s
    assert world.calls[-1] == type(end).__name__


def test_without_a_limit_it_goes_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    for_ever = Settings(stream=StreamSettings(batch_timeout_ms=0))
    world = run(monkeypatch, *[Run(0, LATE) for _ in range(1_000)], Run(1, None), settings=for_ever)
    assert world.calls.count("start") == 1_001


def test_a_finished_batch_makes_the_pauses_short_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = run(
        monkeypatch,
        Run(0, LATE),
        Run(0, LATE),
        Run(0, LATE),
        Run(1, LATE),
        Run(0, LATE),
        Run(2, None),
    )
    assert world.pauses == [1, 2, 4, 1, 2]
    assert world.calls == ["start", "stop", "wait"] * 5 + ["start", "stop"]


@pytest.mark.parametrize(
    ("end", "excused"),
    [(DIED, 0), (LATE, 1), (AWAY, 1), (FatalError("x"), 1), (ValueError("x"), 0)],
)
def test_only_what_no_record_can_have_done_excuses_the_records(
    monkeypatch: pytest.MonkeyPatch, end: Exception, excused: int
) -> None:
    assert run(monkeypatch, Run(0, end), Run(1, None)).excused == excused


def test_a_fault_of_the_machine_behind_an_error_is_what_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        run(monkeypatch, Run(3, RuntimeError("No space left on device"))).calls[-1]
        == "DiskUnusable"
    )
    assert run(monkeypatch, Run(3, RuntimeError("a fault of ours"))).calls[-1] == "RuntimeError"


@pytest.mark.parametrize(("planned", "shared"), [(0, True), (None, False)])
def test_state_that_came_while_the_first_batch_was_planned_is_another_jobs(
    monkeypatch: pytest.MonkeyPatch, planned: int | None, shared: bool
) -> None:
    monkeypatch.setattr("lb_stream.job.running.require_none_lost", lambda *_, **__: "")
    monkeypatch.setattr("lb_stream.job.running.next_offsets", lambda _: {})
    monkeypatch.setattr("lb_stream.job.running.last_batch", lambda _: planned)
    waiting = running(Query(1), WatchedBatches(lambda *_: None), 0)
    text = (
        "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location file:/c/state/0 "
        "should be empty on the first batch"
    )
    assert (
        isinstance(waiting._find_reason(StreamingQueryException(text)), SharedCheckpoint) is shared
    )


IN_A_TASK = (
    "Job aborted due to stage failure: Task 1 in stage 7.0 failed 4 times, most recent "
    "failure: Lost task 1.3 in stage 7.0: "
)


@pytest.mark.parametrize(
    ("why", "expected", "by_a_record"),
    [
        ("Python worker exited unexpectedly (crashed)", "Python workers have ended", True),
        (
            "EOFException occurred while reading the port number from "
            "lb_stream.job.python_workers's stdout and terminated with code: 137.",
            "Python workers have ended",
            True,
        ),
        (
            "org.apache.spark.SparkException: Python worker failed to connect back.",
            "not started in time",
            False,
        ),
        (
            "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: "
            "Command exited",
            "executors",
            True,
        ),
        (
            "ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: Worker "
            "lost",
            "executors were lost",
            False,
        ),
        (
            "ExecutorLostFailure (executor 1 exited caused by ...) Reason: Executor heartbeat "
            "timed out after 130000 ms",
            "were lost",
            False,
        ),
        (
            "org.apache.spark.shuffle.FetchFailedException: Connecting to /10.0.0.3:41001 failed",
            "executors were lost",
            False,
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR] An error occurred during loading "
            "state",
            "did not answer in time",
            False,
        ),
        (
            "java.io.IOException: Stale file handle",
            r"the disk did not answer \(Stale file handle\)",
            False,
        ),
        ("OSError: [Errno 5] Input/output error: '/mnt/x'", "the disk did not answer", False),
    ],
)
def test_what_spark_says_of_a_trouble_that_passes_is_understood(
    monkeypatch: pytest.MonkeyPatch, why: str, expected: str, by_a_record: bool
) -> None:
    monkeypatch.setattr("lb_stream.job.running.require_none_lost", lambda *_, **__: "")
    monkeypatch.setattr("lb_stream.job.running.next_offsets", lambda _: {})
    waiting = running(Query(1), WatchedBatches(lambda *_: None), 0)
    reason = waiting._find_reason(StreamingQueryException(IN_A_TASK + why))
    assert isinstance(reason, TransientError) and reason.by_a_record is by_a_record
    assert re.search(expected, str(reason))
    assert isinstance(
        waiting._find_reason(StreamingQueryException("ValueError: a fault of ours")),
        StreamingQueryException,
    )


LOST_DAEMON = """java.lang.NullPointerException
	at java.base/java.util.Objects.requireNonNull(Objects.java:209)
	at java.base/java.net.UnixDomainSocketAddress.of(UnixDomainSocketAddress.java:146)
	at org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:167)"""


def test_a_daemon_that_ended_while_it_started_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[object] = []
    monkeypatch.setattr(supervise, "renew_daemon", renewed.append)
    gone = "Python worker exited unexpectedly (crashed)"
    starting = (
        "EOFException occurred while reading the port number from "
        "lb_stream.job.python_workers's stdout."
    )
    ends = [find_failure(text) for text in (gone, starting, LOST_DAEMON)]
    assert all(isinstance(end, TransientError) for end in ends)
    run(monkeypatch, *(Run(1, end) for end in ends), Run(1, None))
    assert len(renewed) == 2, "a daemon that forks goes on after a worker's end"


def test_a_session_that_has_ended_does_not_mend() -> None:
    failure = find_failure(
        "org.apache.spark.SparkException: Job 7 cancelled because SparkContext was shut down"
    )
    assert type(failure) is FatalError
    check_wording(str(failure))


def test_a_disk_that_does_not_answer_at_the_start_passes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = run(monkeypatch, Run(1, OSError(116, "Stale file handle")), Run(1, None))
    assert world.calls == ["start", "stop", "wait", "start", "stop"]


def test_a_run_that_got_somewhere_gives_it_another_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    world = run(monkeypatch, *[Run(1, AWAY) for _ in range(10)], Run(0, None))
    assert world.calls.count("start") == 11


def test_a_call_that_stands_still_is_left_after_a_while() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError):
        _wait_while_progressing(lambda: never.wait() and None, lambda: 7, 0.05)
    never.set()


def test_a_call_is_waited_for_as_long_as_it_moves_on() -> None:
    seen: list[int] = []

    def slow() -> None:
        for step in range(10):
            seen.append(step)
            time.sleep(0.05)

    _wait_while_progressing(slow, lambda: len(seen), 0.2)
    assert len(seen) == 10


def test_the_error_of_a_call_is_its_own() -> None:
    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        _wait_while_progressing(fails, lambda: 0, 5)


@dataclass
class Query:
    """Spark's query: so many looks, then it ends. `during` happens at each."""

    looks: int
    during: Callable[[], None] = lambda: None

    def awaitTermination(self, seconds: float) -> bool:
        self.looks -= 1
        self.during()
        return self.looks <= 0


def running(query: Query, batches: WatchedBatches, batch_timeout_ms: int) -> Running:
    unused: Any = None
    settings = Settings(stream=StreamSettings(batch_timeout_ms=batch_timeout_ms))
    return Running(query, unused, unused, settings, batches)


def in_a_batch(query: Query, batch_timeout_ms: int) -> None:
    """Wait for the query while batch 17 is under way."""
    batches = WatchedBatches(lambda *_: running(query, batches, batch_timeout_ms).wait())
    batches(None, 17)


def test_a_batch_that_does_not_end_ends_the_job() -> None:
    with pytest.raises(BatchFailed) as error:
        in_a_batch(Query(1_000, lambda: time.sleep(0.002)), batch_timeout_ms=1)
    check_wording(error.value)


@pytest.mark.parametrize("batch_timeout_ms", [0, 60_000])
def test_a_batch_may_take_its_time(batch_timeout_ms: int) -> None:
    in_a_batch(query := Query(5, lambda: time.sleep(0.002)), batch_timeout_ms)
    assert query.looks == 0


def test_spark_hears_one_line_of_a_failure_and_the_job_all_of_it() -> None:
    """Java reads the text with a regular expression whose stack overflows on a long trace: then the
    query's thread was gone."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device\n" + "\tat Some.java\n" * 10_000)

    batches = WatchedBatches(fail)
    with pytest.raises(BatchFailed) as heard:
        batches(None, 17)
    check_wording(str(heard.value))
    assert heard.value.__suppress_context__
    assert isinstance(batches.failure, OSError)


def test_an_end_that_nobody_foresaw_is_not_its_own_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looked for a fault of the machine behind it walked in a circle, and filled the memory
    with what it found."""
    monkeypatch.setattr(Running, "_find_reason", lambda _, error: error)

    class Ended(Query):
        def awaitTermination(self, _: float) -> bool:
            raise StreamingQueryException("dagScheduler is null")

    with pytest.raises(StreamingQueryException) as heard:
        running(Ended(1), WatchedBatches(lambda *_: None), 0).wait()
    assert heard.value.__cause__ is None
    heard.value.__cause__ = heard.value
    assert error_chain(heard.value) == [heard.value]
    assert find_machine_fault(Settings(), heard.value) is None


def test_a_stream_without_input_is_not_stuck() -> None:
    batches = WatchedBatches(lambda *_: time.sleep(0.01))
    batches(None, 17)
    running(Query(5), batches, batch_timeout_ms=1).wait()
    assert batches.done == 1


def test_what_is_stuck_is_not_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Run(3, Stuck("batch 17"))).calls == ["start", "Stuck"]


@dataclass
class Stopping:
    """A query that is stopped."""

    failed: bool = False
    isActive: bool = False

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> str | None:
        return "a failure" if self.failed else None


def calls_of_stop(failed: bool, failure: Exception | None, error: Exception | None) -> list[str]:
    """What the end of a stream does. `failed`: its query; `failure`: of its last batch; `error`: of
    the averages that are written at the end."""
    calls: list[str] = []

    def write() -> None:
        calls.append("averages")
        if error is not None:
            raise error

    note: Any = SimpleNamespace(
        stop=lambda: calls.append("monitor"), close=lambda: calls.append("outbox")
    )
    balancer: Any = SimpleNamespace(write_pending_averages=write)
    query: Any = Stopping(failed)
    Running(query, note, note, Settings(), WatchedBatches(balancer, failure=failure)).stop()
    return calls


def test_a_stream_that_stops_in_order_writes_the_averages_that_are_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert calls_of_stop(False, None, None) == ["averages", "monitor", "outbox"]
    assert calls_of_stop(False, None, OSError("full")) == ["averages", "monitor", "outbox"]
    assert "full" in caplog.text
    assert calls_of_stop(True, None, None) == ["monitor", "outbox"]
    assert calls_of_stop(False, ValueError("a batch"), None) == ["monitor", "outbox"]
