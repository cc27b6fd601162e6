"""A batch's stages without Spark: what they cost, and which clusters have a round. No JVM needed."""

import json
from pathlib import Path

import pytest

from tests.bench.small_clusters import main
from tests.bench.stages import Record, Stages
from tests.bench.stream.fleet import Fleet, Shape


def test_the_last_line_has_each_stage_of_small_clusters_and_of_a_large_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--clusters", "2", "--runs", "1"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["clusters"] == 2
    for stage in ("decode", "fold", "decide", "directory"):
        assert found[stage]["small_ms"] > 0 and found[stage]["large_ms"] > 0


class Life:
    """A calm cluster of two brokers, and a new one of which a single report is read."""

    def __init__(self, folder: Path) -> None:
        self._calm = Fleet(Shape(1, 2, 3), prefix="calm")
        self._stages = Stages(folder, balancer={"dry_run": False})
        reports = Fleet(Shape(1, 1, 3), prefix="new").generation()
        self.report: list[Record] = [(key, value, None) for key, value in reports]

    def batch(self, records: list[Record], calm: bool = True) -> dict[str, bool]:
        """Run a batch; return the clusters with a round → whether it had nothing to do."""
        reports = self._calm.generation() if calm else []
        self._stages.run([*((key, value, None) for key, value in reports), *records])
        rounds = self._stages.rounds.select(["cluster", "idle"]).to_pylist()
        return {row["cluster"]: row["idle"] for row in rounds}

    def owned(self) -> list[str]:
        """Return the clusters of whose bundles the last batch publishes an ownership record."""
        rounds = self._stages.rounds.select(["cluster", "ownership"]).to_pylist()
        return [row["cluster"] for row in rounds if row["ownership"] != "[]"]

    @property
    def new_ms(self) -> int | None:
        return self._stages.directory["new-0000"].new_ms


def test_an_unconfirmed_cluster_has_its_first_round_at_once_and_rests_when_it_has_nothing_to_do(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path / "stages")
    life.batch([])
    assert life.batch(life.report)["new-0000"] is False
    assert life.owned() == ["new-0000"]
    assert life.batch([])["new-0000"] is True
    assert life.new_ms is not None
    for _ in range(3):
        assert list(life.batch([])) == ["calm-0000"]


def test_the_next_record_ends_the_rest_and_confirms_the_cluster(tmp_path: Path) -> None:
    life = Life(tmp_path / "stages")
    for records in ([], life.report, [], []):
        life.batch(records)
    key, _, _ = life.report[0]
    beat: Record = (key, json.dumps({"sent_ms": 0}).encode(), "heartbeat")
    assert "new-0000" in life.batch([beat])
    assert life.new_ms is None
    assert "new-0000" in life.batch([])


def test_where_all_clusters_rest_all_have_a_round(tmp_path: Path) -> None:
    life = Life(tmp_path / "stages")
    life.batch(life.report, calm=False)
    for _ in range(3):
        assert list(life.batch([(b"new-0000/b", b"{}", "nothing")], calm=False)) == ["new-0000"]
