"""Whether a job runs: by its process on this machine, by the ticks of its clock from another
one."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.contracts.settings import Settings, TopicSettings
from lb_stream.contracts.tables import LEADERS
from lb_stream.io.kafka.topics import create_topics, topic_specs
from lb_stream.io.leadership import liveness
from lb_stream.io.leadership.clock import Clock
from lb_stream.io.leadership.leader import Leader, announce_leader, this_host
from lb_stream.io.leadership.liveness import find_leader, require_no_leader
from lb_stream.io.local.processes import started_ms
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.store import Store
from lb_stream.stream.ports import FatalError
from tests.support.table_rows import fill
from tests.support.wordings import check_wording


def test_a_process_that_began_after_the_job_is_not_the_job() -> None:
    began_ms = started_ms(os.getpid())
    assert began_ms is not None and 0 < time.time() * 1000 - began_ms < 86_400_000
    assert Leader("p", 1, this_host(), os.getpid(), int(time.time() * 1000)).runs_here
    assert not Leader("p", 1, this_host(), os.getpid(), began_ms - 60_000).runs_here
    assert not Leader("p", 1, "elsewhere", os.getpid(), int(time.time() * 1000)).runs_here


def test_a_running_job_of_this_machine_is_told_without_kafka_and_one_that_has_ended_too(
    tmp_path: Path,
) -> None:
    kafka, stream = (
        {"bootstrap_servers": "127.0.0.1:1"},
        {"tables": str(tmp_path), "pipeline_id": "p"},
    )
    settings = Settings.model_validate({"stream": stream, "kafka": kafka})
    announce_leader(Store.at(tmp_path), "p", 0)
    found = find_leader(settings)
    assert found is not None and (found.epoch, found.pid) == (1, os.getpid())
    with pytest.raises(
        FatalError,
        match=rf"the pipeline 'p' is run already by process {os.getpid()} on .* \(epoch 1, since "
        r"20.*--take-over",
    ):
        require_no_leader(settings, take_over=False)
    child = os.posix_spawn("/bin/true", ["/bin/true"], {})
    os.waitpid(child, 0)
    fill(
        tmp_path,
        LEADERS,
        [
            {
                "pipeline": "p",
                "epoch": 2,
                "host": this_host(),
                "pid": child,
                "since_ms": int(time.time() * 1000),
            }
        ],
    )
    assert find_leader(settings) is None, "killed a moment ago: no wait is needed"
    require_no_leader(settings, take_over=False)


@pytest.fixture
def elsewhere(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> Iterator[tuple[Settings, Clock]]:
    """A job on another machine, as its clock and its row of `leaders` tell of it."""
    create_topics(kafka.bootstrap, topic_specs(topic_names))
    topics = {
        name: getattr(topic_names, name)
        for name in ("reports", "commands", "results", "decisions", "ownership")
    }
    stream = {
        "tables": str(tmp_path),
        "pipeline_id": topic_names.reports[:80],
        "tick_interval_ms": 200,
    }
    settings = Settings.model_validate(
        {"kafka": {"bootstrap_servers": kafka.bootstrap}, "topics": topics, "stream": stream}
    )
    row = {
        "pipeline": settings.stream.pipeline_id,
        "epoch": 5,
        "host": "elsewhere.example",
        "pid": 1,
        "since_ms": 1_767_225_600_000,
    }
    fill(tmp_path, LEADERS, [row])
    clock = Clock(settings)
    yield settings, clock
    clock.stop()


@pytest.mark.e2e
def test_a_job_of_another_machine_lives_as_long_as_its_clock_ticks(
    elsewhere: tuple[Settings, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, clock = elsewhere
    assert find_leader(settings) is None, "it has never ticked"
    clock.lead(5)
    while (found := find_leader(settings)) is None:
        pass
    assert (found.epoch, found.host, found.since_ms) == (5, "elsewhere.example", 1_767_225_600_000)
    with pytest.raises(FatalError) as error:
        require_no_leader(settings, take_over=False)
    check_wording(error.value)
    monkeypatch.setattr(liveness, "shut_out", lambda *_: clock.stop() or True)
    require_no_leader(settings, take_over=True)
    assert find_leader(settings) is None, "it ticked a moment ago, and no more"
