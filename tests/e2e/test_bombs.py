"""Records that are small in Kafka and end whoever decompresses them: each ends the job once at
most, and is a row of rejected_reports."""

import json
from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.settings import TopicSettings
from lb_stream.io.kafka.poison_file import RecoveryState
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.store import Store
from tests.e2e import bombs
from tests.e2e.pipeline import Pipeline
from tests.support.topics import topics_named

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]


def report(broker: str, number: int) -> tuple[bytes, bytes, None]:
    stats = {f"acme/{broker[:2]}/0x00000000_0xffffffff": {"msgRateIn": float(number), "topics": 1}}
    fields = {
        "cpu": {"usage": 5.0, "limit": 100.0},
        "lastStats": stats,
        "lastUpdate": number,
        "loadReportType": "LocalBrokerData",
    }
    return f"eu/{broker}".encode(), json.dumps(fields).encode(), None


def rows(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    found = pipeline.table("rejected_reports").to_pylist()
    return sorted(
        (row["partition"], row["offset"], row["cluster"], row["broker"], row["value"])
        for row in found
    )


def test_a_thousand_megabytes_of_spaces_end_the_job_once_and_no_report_is_lost(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = topics_named("bombs")
    pipeline = Pipeline(kafka.bootstrap, topics, tmp_path, {"stream.lost_records": "stop"})
    pipeline.create_topics(reports=1)
    pipeline.send([report("b1:8080", 1)])
    pipeline.run_once()
    pipeline.send([report("b1:8080", 2)])
    large = 1_000 * bombs.MB
    first = bombs.send(kafka.bootstrap, topics.reports, 0, bombs.bomb(b"eu/b9:8080"))
    pipeline.send([report("b1:8080", 3)])
    good = bombs.compressed(
        [
            bombs.record(
                0,
                *(report("b1:8080", 4)[0], [report("b1:8080", 4)[1]], len(report("b1:8080", 4)[1])),
            )
        ]
    )
    assert bombs.send(kafka.bootstrap, topics.reports, 0, good) == first + 2
    second = bombs.send(kafka.bootstrap, topics.reports, 0, bombs.bomb(b"nobody/b9:8080"))
    pipeline.send([report("b1:8080", 5)])
    with pipeline.running("--once") as job:
        assert job.wait(timeout=180) == 3, pipeline.log()[-2000:]
    pipeline.run_once(longest_s=300)
    size = str(large)[:4]
    assert [row[:4] for row in rows(pipeline)] == [
        (0, first, "eu", "b9:8080"),
        (0, second, "eu", ""),
    ]
    assert all(row[4].startswith(size) for row in rows(pipeline))
    (averages,) = pipeline.table("bundle_averages").to_pylist()
    assert (averages["long_samples"], averages["long_rate_in_msgs_per_s"]) == (5, 3.0)
    assert [row["error"] for row in pipeline.table("rounds").to_pylist() if row["error"]] == []
    third = bombs.send(kafka.bootstrap, topics.reports, 0, bombs.bomb(b"eu/b9:8080"))
    pipeline.send([report("b1:8080", 6)])
    pipeline.run_once(longest_s=300)
    assert [row[1] for row in rows(pipeline)] == [first, second, third], (
        "the next ones don't end it even once"
    )
    assert len(RecoveryState.read(Store.at(tmp_path / "checkpoint")).records) == 3


@pytest.mark.long
def test_a_record_that_ends_whoever_decodes_it_is_found_and_the_others_are_read(
    kafka: EmbeddedKafka,
    topic_names: TopicSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = Pipeline(kafka.bootstrap, topic_names, tmp_path)
    pipeline.create_topics(reports=1)
    pipeline.send([report("b1:8080", 1)])
    pipeline.run_once()
    reports = [report("b1:8080", number) for number in range(2, 9)]
    pipeline.send([*reports[:4], (b"eu/b9:8080", b"deadly", None), *reports[4:]])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("deadly")))
    pipeline.run_once(longest_s=600)
    assert [row[:4] for row in rows(pipeline)] == [(0, 5, "eu", "b9:8080")]
    (averages,) = pipeline.table("bundle_averages").to_pylist()
    assert (averages["long_samples"], averages["long_rate_in_msgs_per_s"]) == (8, 4.5)
