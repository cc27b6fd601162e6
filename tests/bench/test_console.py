"""The console's benchmark: its tables, its viewers, its figures. No JVM needed."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from lb_stream.console.serve import ConsoleServer
from lb_stream.console.sources.live import parse_decision_row
from lb_stream.console.sources.reader import Reader
from lb_stream.query.lake import open_lake, records, run
from lb_stream.query.screens.entries import OpenMoves
from lb_stream.store import Store
from tests.bench.console import viewers, written
from tests.bench.console.__main__ import Turn, options, summary
from tests.bench.console.processes import cpu_s, resident_mib
from tests.bench.console.viewers import Seen, page_of, pages, view
from tests.bench.console.written import HOUR_MS, Cluster, Job, hour
from tests.unit.console.site import client, settings_of

BROKERS, BUNDLES, STEP_MS = 4, 64, 900_000
NOW = 1_790_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With an hour of a small cluster: two rounds at once, two as the job writes them."""
    found = tmp_path_factory.mktemp("hour")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "TAIL", 2)
        hour(found, Cluster(BROKERS, BUNDLES), NOW, STEP_MS)
    return found


def test_an_hour_has_a_row_of_every_broker_in_every_round_and_the_job_goes_on_with_it(
    folder: Path,
) -> None:
    def counted() -> dict[str, int]:
        with open_lake(Store.at(folder / "tables")) as lake:
            names = ("rounds", "broker_loads", "bundle_averages", "decisions", "outcomes")
            return {
                name: records(run(lake, f"SELECT count(*) AS n FROM {name}"))[0]["n"]
                for name in names
            }

    rounds = HOUR_MS // STEP_MS
    before = {
        "rounds": rounds,
        "broker_loads": BROKERS * rounds,
        "bundle_averages": BUNDLES,
        "decisions": 3 * rounds,
    }
    assert counted().items() >= before.items()
    job = Job(folder, Cluster(BROKERS, BUNDLES))
    made = job.round(NOW)
    assert job.seq == rounds and {one.seq for one in made} == {rounds}
    after = {
        "rounds": rounds + 1,
        "broker_loads": BROKERS * (rounds + 1),
        "bundle_averages": BUNDLES,
        "decisions": 3 * (rounds + 1),
    }
    assert counted().items() >= after.items()


def test_every_page_that_viewers_look_at_is_there(folder: Path) -> None:
    site = client(folder / "tables")
    for address in pages(Cluster(BROKERS, BUNDLES)):
        assert site.get(address).status_code == 200, address


def test_most_viewers_look_at_the_cluster_and_each_other_page_has_some() -> None:
    addresses = pages(Cluster(BROKERS, BUNDLES))
    looked = Counter(page_of(number, addresses) for number in range(200))
    assert looked[addresses[0]] == 160 and set(looked) == set(addresses)


def test_a_viewer_sees_the_page_its_chart_and_what_is_told_and_asks_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewers, "EVERY_S", 0.01)
    tables, cluster, seen = folder / "tables", Cluster(BROKERS, BUNDLES), Seen()
    (decision,) = cluster.decisions(99, NOW)[:1]
    served = ConsoleServer(
        "127.0.0.1:0",
        Reader(Store.at(tables), settings_of(tables), None, clock=lambda: 0.0),
        (),
        None,
    )

    async def watch() -> None:
        task = asyncio.create_task(
            view(served.url, 0, pages(cluster), seen, {decision.decision_id: 0.0})
        )
        async with asyncio.timeout(120):
            while not (seen.statuses[304] and sum(seen.told)):
                served.publish(parse_decision_row(OpenMoves(), decision.to_json().encode()))
                await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        asyncio.run(watch())
    finally:
        served.stop()
    assert seen.statuses[200] == 2 and set(seen.statuses) == {200, 304}
    assert len(seen.delays_ms) == sum(seen.told) and not seen.broken
    assert len(seen.times_ms) == sum(seen.statuses.values())


def test_the_figures_compare_neighbouring_turns_and_count_what_failed() -> None:
    slow, quick = [10.0, 12.0, 14.0], [10.0, 10.0, 40.0]
    turns = [
        Turn(5, slow, slow, 9, seconds=10.0, console_s=2.0, own_s=1.0),
        Turn(0, quick, quick, 9, seconds=10.0),
        Turn(5, slow, slow, 9, seconds=10.0, console_s=4.0, own_s=1.0),
        Turn(0, [12.0], [6.0], 3, seconds=10.0),
        Turn(5, [], [], 0, seconds=20.0),
        Turn(0, quick, quick, 9, seconds=10.0),
    ]
    seen = Seen(
        [1.0] * 95 + [100.0] * 5,
        Counter({200: 60, 304: 38, 503: 2}),
        [3, 4],
        [5.0],
        Counter({"OSError": 1}),
    )
    found = summary(turns, seen, [100.0, 300.0, 200.0])
    assert (found["round_ratio"], found["round_cpu_ratio"]) == (1.1, 1.6)
    assert (found["round_ms_with"], found["round_ms_without"], found["rounds"]) == (12.0, 10.0, 13)
    assert (found["console_cores"], found["viewers_cores"]) == (0.15, 0.05)
    assert found["memory_mib"] == {"first": 100, "greatest": 300, "last": 200}
    assert (found["requests"], found["unchanged"], found["failed"]) == (
        100,
        38,
        {"503": 2, "OSError": 1},
    )
    assert found["answer_ms"]["median"] == 1.0 and found["answer_ms"]["greatest"] == 100.0
    assert found["entries"] == {"made": 18, "told": 7}
    assert json.loads(json.dumps(found)) == found


def test_a_process_is_measured_while_it_runs() -> None:
    assert resident_mib(os.getpid()) > 10 and cpu_s(os.getpid()) > 0


def test_a_size_that_can_not_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--viewers", "0"], ["--minutes", "0"], ["--bundles", "3"]):
        with pytest.raises(SystemExit) as ended:
            options(wrong)
        assert (
            ended.value.code == 2
            and f"{wrong[0]} {wrong[1]}" in capsys.readouterr().err.replace(".0", "")
        )
