"""How the job ends: in order when asked to, else with one line and its exit code.

Without Spark, without Kafka.
"""

import os
import signal
import sys
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from lb_stream.io.kafka.outbox import KafkaUnavailable
from lb_stream.job import balance as job
from lb_stream.stream.ports import FatalError
from tests.support.wordings import check_wording


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Mock]]:
    """Runs the job with a stream that does this; its exit code, and its Spark session."""
    spark = Mock()
    monkeypatch.setattr("lb_stream.job.kafka_checks.prepare_topics", lambda *_: None)
    monkeypatch.setattr(job, "set_up", lambda: None)
    monkeypatch.setattr("lb_stream.job.session.spark_session", lambda *_: spark)
    monkeypatch.setattr("lb_stream.io.leadership.membership.Member.start", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["balance.py"])

    def run(stream: Callable[..., None]) -> tuple[int, Mock]:
        monkeypatch.setattr("lb_stream.job.leading.lead", stream)
        return job.main(), spark

    return run


def fails(error: BaseException) -> Callable[..., None]:
    def stream(*_: object) -> None:
        raise error

    return stream


@pytest.mark.parametrize(
    "error",
    [
        FatalError("another job runs"),
        KafkaUnavailable("nobody answers"),
        OSError(28, "No space left on device", "/d"),
    ],
)
def test_what_ends_the_stream_is_one_line(
    ended: Callable[..., tuple[int, Mock]], error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    code, spark = ended(fails(error))
    assert code == 1
    assert len(capfd.readouterr().err.splitlines()) == 1
    spark.stop.assert_called_once()


def test_what_nobody_foresaw_keeps_its_trace(ended: Callable[..., tuple[int, Mock]]) -> None:
    with pytest.raises(ZeroDivisionError):
        ended(fails(ZeroDivisionError()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("breaks", [True, False])
def test_a_request_to_stop_is_told_to_the_stream_and_what_breaks_by_it_is_no_news(
    ended: Callable[..., tuple[int, Mock]],
    number: int,
    breaks: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def stream(
        _spark: object, _settings: object, _member: object, _once: bool, stop: Callable[[], bool]
    ) -> None:
        assert not stop()
        os.kill(os.getpid(), number)
        while not stop():
            pass
        if breaks:
            raise ConnectionRefusedError("the JVM is gone")

    code, spark = ended(stream)
    assert (code, capfd.readouterr().err) == (0, "")
    spark.stop.assert_called_once()


@pytest.mark.parametrize("others", ["--once", "--take-over"])
def test_standing_by_goes_with_neither_once_nor_taking_over(
    others: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["balance.py", "--standby", others])
    with pytest.raises(SystemExit) as ended:
        job.main()
    assert ended.value.code == 2
    check_wording(capsys.readouterr().err)


def test_standing_by_needs_ticks(
    ended: Callable[..., tuple[int, Mock]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["balance.py", "--standby", "--set", "stream.tick_interval_ms=0"]
    )
    code, spark = ended(fails(AssertionError("not reached")))
    assert code == 2 and "stream.tick_interval_ms" in capsys.readouterr().err
    spark.stop.assert_not_called()
