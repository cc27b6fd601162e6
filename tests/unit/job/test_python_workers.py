"""Spark's daemon of Python workers: what of a worker's end is module."""

import pytest

from lb_stream.job.python_workers import daemon, print_exc


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "Connection reset by peer")],
)
def test_a_worker_whose_task_is_over_says_nothing(
    capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    try:
        raise error
    except OSError:
        print_exc()
    assert capfd.readouterr() == ("", "")


def test_every_other_end_keeps_its_trace(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("unforeseen")
    except ValueError:
        print_exc()
    assert capfd.readouterr().err.endswith("ValueError: unforeseen\n")


def test_sparks_daemon_tells_it_so() -> None:
    module = vars(daemon)["traceback"]
    assert module.print_exc is print_exc and module.format_exc
