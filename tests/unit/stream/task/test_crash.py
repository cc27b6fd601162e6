"""Crash points kill a group of processes when they are reached often enough, and nobody otherwise.

No JVM needed.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lb_stream.contracts.keys import SettingError
from lb_stream.contracts.settings import CRASH_POINTS, Settings, StreamSettings
from lb_stream.settings.load import load_settings
from lb_stream.stream.task import crash
from tests.support.wordings import check_wording

PACKAGE = Path(crash.__file__).parents[2]

DRIVER = """
import subprocess, sys, time
from lb_stream.stream.task.crash import arm, crash_point
environment = arm("after_log:2")
for name in ("before_log", "after_log", "before_log", "before_log"):
    crash_point(name)
print("once", flush=True)
{then}
time.sleep(60)
"""
WORKER = """
import os
os.setpgid(0, 0)
from lb_stream.stream.task.crash import crash_point
crash_point("after_log")
print("worker", flush=True)
crash_point("after_log")
"""
START_WORKER = (
    f"import os; subprocess.run([sys.executable, '-c', {WORKER!r}], env=os.environ | environment)"
)


@pytest.mark.parametrize(
    ("then", "printed"), [("crash_point('after_log')", "once\n"), (START_WORKER, "once\nworker\n")]
)
def test_the_second_time_ends_the_job_wherever_it_is_reached(then: str, printed: str) -> None:
    code = DRIVER.format(then=then)
    job = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=30,
        check=False,
    )
    assert (job.returncode, job.stdout) == (-signal.SIGKILL, printed), job.stderr


def test_a_job_that_shares_its_group_with_others_is_not_armed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getpgrp", lambda: -1)
    with pytest.raises(SettingError) as error:
        crash.arm("after_log:1")
    check_wording(error.value)
    crash.crash_point("after_log")


def test_nothing_is_armed_by_default() -> None:
    assert StreamSettings().crash_at == ""
    assert crash.arm("") == {}
    for name in CRASH_POINTS:
        crash.crash_point(name)


@pytest.mark.parametrize(
    "wrong", ["after_log", "after_log:", "after_log:0", "after_log:x", "nowhere:1", ":1"]
)
def test_a_point_that_is_none_is_refused_with_those_that_are(wrong: str) -> None:
    with pytest.raises(SettingError, match=r"stream.crash_at.*after_fence, in_catch_up"):
        load_settings(arguments=[f"stream.crash_at={wrong}"], environment={})


def test_the_environment_sets_it_as_any_other_setting() -> None:
    settings: Settings = load_settings(environment={"LB_STREAM__CRASH_AT": "in_state:3"})
    assert settings.stream.crash_at == "in_state:3"


def test_every_named_point_is_somewhere_in_the_code_and_no_other_is() -> None:
    used = [
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r'\bcrash_point\("(\w+)"\)', path.read_text())
    ]
    assert sorted(used) == sorted(CRASH_POINTS)
