"""The leader's log in the forms in which releases of Pulsar write it."""

import gzip
import json
import time
from pathlib import Path

import pytest

from lb_stream.agent.pulsar.leader_log import LeaderLog, parse_passes, read_leader_log
from lb_stream.agent.pulsar.log_lines import SENTENCES, parse_line
from tests.captured import DATA

LOGS = ("leader-4.2.4.txt", "leader-5.0.1.txt", "leader-5.0.1.jsonl")
MOVED = ("t/n0/0xc0000000_0xffffffff", "t/n1/0x80000000_0xa0000000", "t/n0/0x40000000_0x80000000")
TIME = "2026-11-27T16:10:00.383Z"


def read(folder: Path, *lines: str) -> LeaderLog:
    (folder / "broker.log").write_text("".join(f"{line}\n" for line in lines))
    return read_leader_log([folder / "broker.log"])


@pytest.mark.parametrize("name", LOGS)
def test_each_release_logs_the_same_pass_of_avgshedder(name: str) -> None:
    log = read_leader_log([DATA / name])
    (only,) = log.passes
    assert [(move.bundle, move.source, move.destination) for move in only.moves] == [
        (bundle, "b0:8080", "b1:8080") for bundle in MOVED
    ]
    assert {broker: round(score, 1) for broker, score in only.scores.items()} == {
        "b1:8080": 10.6,
        "b0:8080": 98.9,
        "b3:8080": 25.6,
    }
    assert only.hits == {"b1:8080": (1, 1), "b0:8080": (1, 1)}
    assert only.partners == {"b0:8080": "b1:8080"}
    (file,) = log.files
    assert (file.timed_lines, file.json_lines, file.without_values) == (
        20,
        20 if "jsonl" in name else 0,
        0,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"@timestamp":"%s","labels":{', '},"log.logger":"o.a.Manager","message":"%s"}'),
        (
            '{"Timestamp":"%s","Body":"MESSAGE","Attributes":{"code.namespace":"o.a.Manager",',
            "}}%s",
        ),
        (
            '{"instant":{"epochSecond":1795795800,"nanoOfSecond":383000000},"contextMap":{',
            '},"loggerName":"o.a.Manager","message":"%s"}',
        ),
        (
            '{"timestamp":1795795800.383000000,"short_message":"%s",',
            '"_logger":"o.a.Manager"}',
        ),
        ('[pod/broker-1] {"@timestamp":"%s","mdc":{', '},"message":"%s"}'),
    ],
    ids=["labels", "otel", "log4j", "gelf", "behind a collector's text"],
)
def test_json_layouts_are_read(tmp_path: Path, before: str, after: str) -> None:
    message = "Unloading bundle from source broker to dest broker"
    values = {"bundle": MOVED[0], "class": "S", "sourceBroker": "a:1", "destBroker": "b:1"}
    under = "_" if "short_message" in before else ""
    fields = ",".join(f'"{under}{name}":"{value}"' for name, value in values.items())
    if "short_message" in before:
        line = before % message + fields + "," + after
    elif "Body" in before:
        line = before.replace("MESSAGE", message) % TIME + fields + after % ""
    else:
        line = (before % TIME if "%s" in before else before) + fields + after % message
    json.loads(line[line.index("{") :])
    (only,) = read(tmp_path, line).passes
    (move,) = only.moves
    assert (move.at_ms, move.bundle, move.source, move.destination) == (
        1795795800383,
        MOVED[0],
        "a:1",
        "b:1",
    )


def test_a_pattern_without_context_data_leaves_the_values_of_5_0_out_and_that_is_counted(
    tmp_path: Path,
) -> None:
    lines = [f"{TIME} [main] INFO  X - {message}" for message in SENTENCES]
    log = read(tmp_path, *lines, f"{TIME} [main] INFO  X - Started load manager.")
    assert (log.moves, log.files[0].without_values, log.files[0].timed_lines) == (
        0,
        len(SENTENCES),
        len(SENTENCES) + 1,
    )


def test_empty_context_data_behind_a_line_of_4_2_are_no_part_of_it(tmp_path: Path) -> None:
    line = (
        f"{TIME} [x] INFO  M - [S] Unloading bundle: {MOVED[0]} from broker a:1 to dest broker "
        "b:1 {}"
    )
    assert read(tmp_path, line).moves == 1


def test_decisions_of_the_extensible_manager_are_read_in_both_words(tmp_path: Path) -> None:
    decision = (
        "UnloadDecision(unload=Unload[sourceBroker=a:1, serviceUnit=t/n/0x00000000_0x40000000, "
        "destBroker=Optional[b:1], force=false], label=Success, reason=Overloaded)"
    )
    other = decision.replace("0x00000000_0x40000000", "0x40000000_0x80000000")
    for text in (
        f"UnloadScheduler - [TransferShedder] Unload decision result: [{decision}, {other}]",
        f"UnloadScheduler - Unload decision result {{result=[{decision}, {other}], "
        "strategy=TransferShedder}",
    ):
        assert read(tmp_path, f"{TIME} [x] INFO  {text}").moves == 2


def test_what_leaders_of_5_0_log_of_candidates_splits_and_calm_brokers_is_read() -> None:
    shedder = f"{TIME} [x] DEBUG ThresholdShedder - "
    texts = [
        f"{TIME} [x] INFO  BundleSplitterTask - The bundle is considered to be unloaded "
        "{bundle=t/n/0x0_0x1, consumerCount=501, topics=1001}",
        shedder + "Broker is not overloaded, ignoring at this point {broker=c:1, resourceUsage=cpu:"
        " 9.90%, memory: 0.00%}",
        shedder + "Broker is planning to shed less than minimumThroughputThreshold, skipping bundle"
        " unload {broker=d:1, minThroughputThresholdMiB=10.0, resourceUsage=cpu: 7%, memory: 0%, "
        "throughputMiB=4.8}",
        f"{TIME} [x] INFO  M - Brokers being considered for assignment {{brokerCount=2, bundle=b}}",
        f"{TIME} [x] DEBUG L - Broker has long term message rate {{broker=http://b:1, rate=3.5}}",
        f"{TIME} [x] INFO  M - Unloading bundle from source broker to dest broker {{bundle=t/n/x, "
        "class=S, destBroker=b:1, sourceBroker=a:1}",
    ]
    lines = [parse_line(text) for text in texts]
    (only,) = parse_passes((line.at_ms, line.text) for line in lines if line is not None)
    assert (only.splitting, only.calm, only.too_little) == ({"t/n/0x0_0x1"}, {"c:1"}, {"d:1"})
    assert [dict(move.rates) for move in only.moves] == [{"b:1": 3.5}]


def test_a_pair_whose_difference_is_too_small_to_move_is_read() -> None:
    text = (
        "AvgShedder - broker:[a:1] is planning to shed bundles to broker:[b:1],but the throughput "
        "0.1 MByte/s is less than minimumThroughputThreshold 1.0 MByte/s, and the msgRate 3.0 "
        "rate/s is also less than minimumMsgRateThreshold 1000.0 rate/s, skipping bundle unload."
    )
    (only,) = parse_passes([(1_000, text)])
    assert (only.too_little, only.partners) == ({"a:1"}, {"a:1": "b:1"})


def test_values_that_a_json_layout_writes_as_objects_are_read() -> None:
    """As log4j's LogstashJsonEventLayoutV1 does."""
    values = {"brokerHitCountForHigh": {}, "brokerHitCountForLow": {"a:1": 3, "b:1": 3}}
    fields = {
        "mdc": values,
        "message": "Broker hit counts",
        "@timestamp": "2026-11-27T16:22:13.963+0000",
        "logger_name": "org.apache.pulsar.broker.loadbalance.impl.AvgShedder",
    }
    line = parse_line(json.dumps(fields))
    assert line is not None and line.at_ms == 1795796533963
    (only,) = parse_passes([(line.at_ms, line.text)])
    assert only.hits == {"a:1": (3, 0), "b:1": (3, 0)}


@pytest.mark.parametrize(
    "line",
    [
        "2026-02-30T10:00:00.000Z a day that isn't",
        "2026-11-27T16:10:00,383+2500 a zone that isn't",
        '{"@timestamp":"2026-13-01T10:00:00.000Z","message":"m"}',
        '{"timestamp":1e999,"short_message":"m"}',
        '{"timestamp":NaN,"short_message":"m"}',
        '{"timestamp":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=lambda line: line[:40],
)
def test_a_line_with_an_impossible_time_is_passed_over_like_one_without(
    tmp_path: Path, line: str
) -> None:
    assert parse_line(line) is None
    assert read(tmp_path, line, f"{TIME} a line of the broker's").files[0].timed_lines == 1


MOVE = f"[Shedder] Unloading bundle: {MOVED[0]} from broker b0:8080 to dest broker b1:8080"
HOSTILE = (
    '{"instant":{"epochSecond":1e99},"message":"x"}',
    f'{{"instant":{{"epochSecond":{"9" * 40}}},"message":"x"}}',
    "0000-01-01T00:00:00.000Z before the calendar",
    f"{TIME} INFO M - Shedder - broker:b0:8080, scores:--, throughput:",
    f"{TIME} INFO M - Shedder - Attempting to shed load on b0, which has 1.2.3% > 1% + 1%",
)


def test_lines_of_other_programs_are_passed_over(tmp_path: Path) -> None:
    log = read(tmp_path, *HOSTILE, f"{TIME} INFO M - {MOVE}")
    assert log.moves == 1


@pytest.mark.parametrize(
    "line",
    [
        f"{TIME} INFO M - {MOVE} {{cluster=eu-1, note=a b}}",
        f'{{"@timestamp":"{TIME}","level":"INFO","thread":"t","message":"{MOVE}"}}',
    ],
)
def test_a_move_of_4_x_is_read_with_context_data_behind_it(tmp_path: Path, line: str) -> None:
    (only,) = read(tmp_path, line).passes[0].moves
    assert (only.bundle, only.source, only.destination) == (MOVED[0], "b0:8080", "b1:8080")


def test_small_rates_are_read_as_java_writes_them(tmp_path: Path) -> None:
    rates = [
        f"{TIME} DEBUG M - Broker b{n}:8080 has long term message rate {n}.5E-4" for n in (0, 1)
    ]
    log = read(tmp_path, *rates, f"{TIME} INFO M - {MOVE}")
    assert log.passes[0].moves[0].rates == {"b0:8080": 0.00005, "b1:8080": 0.00015}


@pytest.mark.parametrize(
    "text",
    [
        " {a=" * 25_000,
        "1" * 100_000,
        f"Shedder - brokerHitCountForHigh:{{{'a' * 100_000}}}, brokerHitCountForLow:{{}}",
        "Shedder - " + "brokerHitCountForHigh:{" * 5_000,
        "Shedder - " + "Attempting to shed load on b, which has " * 2_500,
    ],
)
def test_the_time_for_a_line_grows_with_its_length_only(tmp_path: Path, text: str) -> None:
    began = time.process_time()
    read(tmp_path, f"{TIME} INFO M - {text}")
    assert time.process_time() - began < 1  # a quadratic pattern takes 2 to 100 s


def test_a_gzipped_log_that_is_not_whole_is_named(tmp_path: Path) -> None:
    path, whole = tmp_path / "broker.log.gz", gzip.compress(f"{TIME} INFO M - {MOVE}\n".encode())
    for content in (whole[:-10], b"no gzip", whole[:12] + b"\xff" * 20):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"broker\.log\.gz: expected a whole gzip file"):
            read_leader_log([path])
