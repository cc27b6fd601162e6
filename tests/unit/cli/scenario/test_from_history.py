"""`lbctl scenario from-tables` and `from-reports`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lb_stream.contracts.tables import BROKER_HISTORY, BROKER_LOADS, BUNDLE_HISTORY, COMMANDS, DECISIONS, OUTCOMES, ROUNDS
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.sim.scenario.reading import read_scenario
from lb_stream.sim.scenario.scenario import AntiAffinity, Event
from tests.support.lbctl_runner import Result, lbctl
from tests.unit.cli.inspect.test_tables import fill

CAPTURED = Path(__file__).parents[3] / "data" / "modular-load-reports.jsonl.gz"
START_MS, MINUTE_MS = 1_767_225_600_000, 60_000  # 2026-01-01
BROKERS = ("a:8080", "b:8080")
BUNDLES = {f"shop/{name}/0x00000000_0xffffffff": owner for name, owner in (("carts", "a:8080"), ("orders", "b:8080"))}


def load(rate: float) -> dict[str, float]:
    names = ("rate_in_msgs_per_s", "rate_out_msgs_per_s", "throughput_in_bytes_per_s", "throughput_out_bytes_per_s")
    return dict(zip(names, (rate, 2 * rate, 100 * rate, 200 * rate), strict=True))


def scenario(folder: Path, *arguments: str | Path) -> Result:
    return lbctl("scenario", *map(str, arguments), cwd=folder)


def at(minute: float) -> int:
    return START_MS + round(minute * MINUTE_MS)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six minutes of the cluster eu, of which b is dead for two, and a minute of us."""
    folder = tmp_path_factory.mktemp("tables")
    limits = {f"{name}_limit": 800.0 for name in ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")}
    times = [("eu", minute) for minute in range(6)] + [("us", 0)]
    of = [{"cluster": cluster, "slot_ms": at(minute)} for cluster, minute in times]
    rows = [one | {"bundle": bundle, "owner": owner} | load(10.0 + n) for n, one in enumerate(of) for bundle, owner in BUNDLES.items()]
    fill(folder, BUNDLE_HISTORY, rows)
    told = [one | {"broker": broker, "reported_ms": one["slot_ms"], "cpu_usage": 3.0 + n, **limits} | load(10.0 + n)
            for n, one in enumerate(of) for broker in BROKERS]  # fmt: skip
    fill(folder, BROKER_HISTORY, told)
    lives = [{"cluster": "eu", "seq": n, "now_ms": at(n / 2), "broker": broker, "seen_ms": at(n / 2), "reported_ms": at(n / 2)}
             | {"alive": broker == BROKERS[0] or n not in (4, 5, 6, 7)} for n in range(12) for broker in BROKERS]  # fmt: skip
    fill(folder, BROKER_LOADS, lives)
    memory = Memory(orders=OperatorState(anti_affinity={"shop/carts": "apart", "shop/orders": "apart"})).to_json()
    fill(folder, ROUNDS, [{"cluster": "eu", "log_seq": 0, "seq": 1, "now_ms": at(0), "memory": memory, "inputs": '{"settings": {}}'}])
    order = {"cluster": "eu", "kind": "drain-broker", "arguments": '{"broker": "a:8080"}', "id": "x", "at_ms": at(1)}
    fill(folder, COMMANDS, [order | {"outcome": outcome, "now_ms": at(2)} for outcome in ("accepted", "done")])
    made = [("assign", 4_000), ("transfer", 7_000)]
    common = {"cluster": "eu", "issued_ms": at(1), "dry_run": False}
    fill(folder, DECISIONS, [common | {"decision_id": kind, "kind": kind} for kind, _ in made])
    fill(folder, OUTCOMES, [{"decision_id": kind, "cluster": "eu", "outcome": "confirmed", "took_ms": took} for kind, took in made])
    return folder


def test_a_scenario_of_a_live_cluster_has_its_loads_deaths_drains_and_rules(tables: Path, tmp_path: Path) -> None:
    done = scenario(tmp_path, "from-tables", tables, tmp_path / "eu", "--cluster", "eu", "--json")
    assert (done.code, done.objects[0]["bundles"], done.objects[0]["seconds"]) == (0, 2, 360.0)
    made = read_scenario(tmp_path / "eu")
    assert made.loads[0].tolist() == [[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]] * 2
    assert made.events == (Event(60.0, 0, "drain"), Event(120.0, 1, "crash"), Event(240.0, 1, "up"))
    assert made.policies.anti_affinity == (AntiAffinity("apart", ("shop/carts", "shop/orders")),)
    assert (made.move.acquire_s, made.move.release_s, made.report_interval_s) == (3.0, 2.0, 30.0)
    assert [note for note in done.objects[0]["notes"] if note.startswith("assumed")] == ["assumed: report_delay_s = 1, reconnect_s = 2"]
    assert "explains 12 reports" in done.objects[0]["notes"][0]


def test_a_part_of_the_time_is_taken(tables: Path, tmp_path: Path) -> None:
    asked = ("--from", "2026-01-01T00:02Z", "--to", "2026-01-01T00:05Z")
    done = scenario(tmp_path, "from-tables", tables, tmp_path / "eu", "--cluster", "eu", "--tick", "30", *asked)
    assert (done.code, done.out) == (0, f"{tmp_path / 'eu'}: 2 brokers, 2 bundles, 180 s\n")
    made = read_scenario(tmp_path / "eu")
    assert made.loads[0].tolist() == [[12.0, 13.0, 14.0]] * 2
    assert (made.brokers.up.tolist(), made.bundles.start_owner.tolist()) == ([True, False], [0, -1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--cluster is needed: expected one that bundle_history tells of: eu, us"),
        (("--cluster", "nowhere"), "--cluster nowhere: expected one that bundle_history tells of: eu, us"),
        (("--cluster", "eu", "--from", "2026-02-01"), "bundle_history tells nothing of eu then, only of 2026-01-01T00:00:00Z to 2026"),
        (("--cluster", "eu", "--from", "2026-01-02", "--to", "2026-01-01"), "--to 2026-01-01: expected a time after --from 2026-01-02"),
        (("--cluster", "eu", "--from", "noon"), "'noon': expected a time as 2026-11-21T13:00"),
        (("--cluster", "eu", "--tick", "7"), "tick = 7.0: expected a divisor of the history's resolution, 60 s"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_told_in_a_line(tables: Path, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = scenario(tmp_path, "from-tables", tables, tmp_path / "x", *arguments)
    assert (done.code, said in " ".join(done.err.split())) == (2, True), done.err


def test_captured_reports_of_real_brokers_make_a_scenario(tmp_path: Path) -> None:
    done = scenario(tmp_path, "from-reports", CAPTURED, tmp_path / "captured", "--json")
    assert (done.code, done.objects[0]["brokers"]) == (0, 3)
    made = read_scenario(tmp_path / "captured")
    assert len(made.bundles) == done.objects[0]["bundles"] > 50
    assert made.loads.max() > 100 and (made.bundles.start_owner >= 0).all()
    first = (tmp_path / "captured" / "loads.parquet").read_bytes()
    refused = scenario(tmp_path, "from-reports", CAPTURED, tmp_path / "captured")
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert scenario(tmp_path, "from-reports", CAPTURED, tmp_path / "captured", "--force").code == 0
    assert (tmp_path / "captured" / "loads.parquet").read_bytes() == first


def test_reports_that_cannot_be_read_are_told_in_a_line(tmp_path: Path) -> None:
    timeless = json.dumps({"webServiceUrl": "http://a:8080", "loadReportType": "LocalBrokerData"}).encode()
    for number, (text, said) in enumerate(((b"", "has no load report"), (b"{", "line 1: not a JSON object"), (timeless, "when"))):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(text)
        done = scenario(tmp_path, "from-reports", file, tmp_path / "x")
        assert done.code in (1, 2) and said in done.err and len(done.err.splitlines()) == 1
