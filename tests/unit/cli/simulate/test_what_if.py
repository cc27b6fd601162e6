"""`lbctl what-if` and --preview: what would come of a change, played from a live cluster's present."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.contracts.tables import BROKER_HISTORY, BROKER_LOADS, BUNDLE_HISTORY, COMMANDS, DECISIONS, OUTCOMES, ROUNDS
from lb_stream.core.model.memory import Memory
from tests.support.lbctl_runner import Result, lbctl
from tests.unit.cli.inspect.test_tables import fill

START_MS, MINUTE_MS = 1_767_225_600_000, 60_000
BROKERS = ("a:8080", "b:8080", "c:8080")
RATE = 20_000.0
"""Of each bundle, messages in; a core's worth of cpu for each four bundles."""


def load(bundles: int) -> dict[str, float]:
    return {
        "rate_in_msgs_per_s": RATE * bundles,
        "rate_out_msgs_per_s": RATE * bundles,
        "throughput_in_bytes_per_s": 1e6 * bundles,
        "throughput_out_bytes_per_s": 1e6 * bundles,
    }


def write_present(folder: Path, slot_ms: int = MINUTE_MS) -> Path:
    """Ten slots of time of eu: a serves eight bundles, b and c two each; a broker is full with twelve."""
    owners = [*[BROKERS[0]] * 8, *[BROKERS[1]] * 2, *[BROKERS[2]] * 2]
    times = [{"cluster": "eu", "slot_ms": START_MS + slot * slot_ms} for slot in range(10)]
    clients = {"topics": 2, "producers": 3, "consumers": 4}
    bundles = [{"bundle": f"shop/n{row}/0x00000000_0xffffffff", "owner": owner} | load(1) | clients for row, owner in enumerate(owners)]
    fill(folder, BUNDLE_HISTORY, [time | one for time in times for one in bundles])
    limits = {"cpu_limit": 100.0, "memory_limit": 8192.0, "direct_memory_limit": 8192.0} | {
        f"bandwidth_{way}_limit": 10_000_000.0 for way in ("in", "out")
    }
    brokers = [{"broker": name, "cpu_usage": 100 / 12 * owners.count(name)} | limits | load(owners.count(name)) for name in BROKERS]
    fill(folder, BROKER_HISTORY, [time | one | {"reported_ms": time["slot_ms"]} for time in times for one in brokers])
    lives = [
        {"cluster": "eu", "seq": seq, "now_ms": time["slot_ms"], "broker": broker, "alive": True}
        | {"seen_ms": time["slot_ms"], "reported_ms": time["slot_ms"]}
        for seq, time in enumerate(times)
        for broker in BROKERS
    ]
    fill(folder, BROKER_LOADS, lives)
    settings = '{"settings": {"dry_run": false, "shedding_enabled": false}}'
    fill(folder, ROUNDS, [{"cluster": "eu", "log_seq": 0, "seq": 1, "now_ms": START_MS, "memory": Memory().to_json(), "inputs": settings}])
    for table in (COMMANDS, DECISIONS, OUTCOMES):
        fill(folder, table, [])
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_present(tmp_path_factory.mktemp("tables"))


def asked(tables: Path, *arguments: str) -> Result:
    return lbctl(*arguments, "--set", f"stream.tables={tables}", cwd=tables)


def test_what_another_setting_would_do_is_shown_beside_what_happens_without_it(tables: Path) -> None:
    pulsars = "loadBalancerLoadSheddingStrategy=ThresholdShedder"
    wanted = ["--set", "shedding_enabled=true", "--set", pulsars, "--set", "min_throughput_mb=0"]
    result = asked(tables, "what-if", *wanted, "--minutes", "20", "--json")
    assert result.code == 0, result.err
    (found,) = result.objects
    as_it_is, changed = found["as it is"], found["changed"]
    assert (found["cluster"], found["minutes"], as_it_is["moves"]) == ("eu", 20.0, 0)
    assert 0 < changed["moves"] == len(changed["moved"]) and changed["clients_disturbed"] == 7 * changed["moves"]
    assert changed["usage_max_after"] < changed["usage_max_now"] == as_it_is["usage_max_after"] == pytest.approx(8 / 12, rel=0.02)
    assert changed["moved"][0]["from"] == "a:8080" and changed["fits"]


def test_slots_of_any_length_can_be_played(tmp_path: Path) -> None:
    result = asked(write_present(tmp_path, 2_000), "what-if", "--drain", "c:8080", "--minutes", "5", "--json")
    assert result.code == 0 and result.objects[0]["changed"]["drain_s"] > 0, result.err


def test_a_drain_that_fits_and_one_that_does_not(tables: Path) -> None:
    fits = asked(tables, "what-if", "--drain", "c", "--json")
    assert fits.code == 0 and fits.objects[0]["changed"]["drain_s"] < 120.0
    full = asked(tables, "what-if", "--drain", "b:8080", "--drain", "c:8080", "--drain", "a:8080")
    assert full.code == 1 and "doesn't fit" in full.out


def test_the_commands_that_change_something_have_it_as_a_preview_and_send_nothing(tables: Path) -> None:
    drained = asked(tables, "brokers", "drain", "c:8080", "--preview")
    assert drained.code == 0 and "clients disturbed" in drained.out
    changed = asked(tables, "update-dynamic-config", "--config", "loadBalancerSheddingEnabled", "--value", "true", "--preview", "--json")
    (found,) = changed.objects
    assert (changed.code, found["minutes"], found["as it is"]["moves"]) == (0, 30.0, 0)
    assert found["changed"]["usage_max_now"] == found["as it is"]["usage_max_after"], "both begin from what there is"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to try"),
        (["--set", "threshold_percent"], "expected KEY=VALUE"),
        (["--set", "threshold_percnt=5"], "nearest: threshold_percent"),
        (["--set", "threshold_percent=much"], "expected a number"),
        (["--drain", "z:8080"], "expected one of a:8080, b:8080, c:8080"),
        (["--drain", "z"], "broker z: expected a broker's name"),
        (["--cluster", "us", "--set", "threshold_percent=5"], "expected one that bundle_history tells of: eu"),
    ],
)
def test_what_cannot_be_tried_is_one_line_and_code_two(tables: Path, arguments: list[str], told: str) -> None:
    result = asked(tables, "what-if", *arguments)
    assert result.code == 2 and told in result.err.splitlines()[-1] and "Traceback" not in result.err and not result.out
