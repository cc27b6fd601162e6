"""`lbctl shadow` over tables with rounds of a cluster and two shadows."""

from pathlib import Path
from typing import Any

import pytest

from lb_stream.contracts.tables import DECISIONS, ROUNDS, SHADOW_ROUNDS
from lb_stream.query import status_facts
from tests.support.lbctl_runner import Result, lbctl
from tests.support.table_rows import fill
from tests.support.wordings import check_wording

START_MS = 1_767_225_600_000
DAY_MS = 86_400_000


def entry(number: int, policy: str, **columns: Any) -> dict[str, Any]:
    """A row of shadow_rounds."""
    row = {
        "cluster": "eu",
        "seq": number,
        "now_ms": START_MS + 60_000 * number,
        "log_seq": number,
        "policy": policy,
        "outcome": "done",
    }
    return (
        row
        | {
            "strategies": "A + B",
            "shed": True,
            "moves": 0,
            "assignments": 0,
            "moved_bytes_per_s": 0.0,
        }
        | columns
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rounds: of the shadow `good` the third was skipped, `bad` failed from the second on."""
    folder = tmp_path_factory.mktemp("shadows")
    rows = [
        entry(
            n,
            "real",
            detail="dry run",
            moves=3,
            moved_bytes_per_s=3e6,
            arrived=n % 2,
            max_ratio=0.8,
            mean_ratio=0.4,
        )
        for n in range(4)
    ]
    rows += [
        entry(
            n,
            "good",
            moves=2 - n,
            moved_bytes_per_s=1e6,
            elsewhere=2,
            max_ratio=0.6 - 0.1 * n,
            mean_ratio=0.4,
        )
        for n in (0, 1)
    ]
    rows += [
        {
            **dict.fromkeys(entry(2, "good")),
            **entry(2, "good"),
            "outcome": "skipped",
            "shed": None,
            "moves": None,
        }
    ]
    rows += [
        entry(3, "good", elsewhere=3, max_ratio=0.5, mean_ratio=0.4),
        entry(0, "bad", elsewhere=0, max_ratio=0.8, mean_ratio=0.4),
    ]
    rows += [
        entry(n, "bad", outcome="failed", detail=f"ValueError: {n}", strategies=None, shed=None)
        for n in (1, 2, 3)
    ]
    fill(folder, SHADOW_ROUNDS, rows)
    fill(
        folder,
        ROUNDS,
        [
            {"cluster": name, "seq": 1, "log_seq": 1, "now_ms": START_MS, "memory": "{}"}
            for name in ("eu", "us")
        ],
    )
    return folder


def ask(folder: Path, *arguments: str) -> Result:
    return lbctl("shadow", *arguments, "--set", f"stream.tables={folder}", cwd=folder)


def test_policies_stand_side_by_side_and_each_shadow_beside_what_was_so_in_its_rounds(
    tables: Path,
) -> None:
    real, bad, good = ask(tables, "--cluster", "eu", "--json").objects
    assert [real["policy"], bad["policy"], good["policy"]] == ["real", "bad", "good"]
    assert (real["dry_run"], real["rounds"], real["passes"], real["moves"], real["arrived"]) == (
        True,
        4,
        4,
        12,
        2,
    )
    assert (good["rounds"], good["skipped"], good["failed"], good["passes"], good["moves"]) == (
        3,
        1,
        0,
        3,
        3,
    )
    assert good["moved_bytes_per_s"] == 2e6
    assert good["max_usage"] == pytest.approx((0.6 + 0.5 + 0.5) / 3) and good[
        "real_max_usage"
    ] == pytest.approx(0.8)
    assert (good["max_usage_last"], good["elsewhere"], good["max_over_mean"]) == (
        0.5,
        3,
        pytest.approx(4 / 3),
    )
    assert (bad["rounds"], bad["failed"], bad["last_failure"]) == (1, 3, "ValueError: 3")


def test_people_read_what_it_comes_to_and_what_to_do_about_a_shadow_that_is_slow(
    tables: Path,
) -> None:
    text = " ".join(ask(tables).out.split())
    assert "stream.shadow_time_percent" in text and "ValueError: 3" in text
    sentences = text[text.index("real: ") :]
    check_wording(sentences)


def test_since_leaves_out_what_was_before_and_no_shadow_is_no_error(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = START_MS + 330 * DAY_MS  # the wording names the figures' age
    monkeypatch.setattr(status_facts, "_now_ms", lambda: now_ms)
    later = ask(tables, "--since", "2026-01-01T00:02:30+00:00", "--json").objects
    assert [(row["policy"], row["rounds"]) for row in later] == [
        ("real", 1),
        ("bad", 0),
        ("good", 1),
    ]
    nothing = ask(tables, "--cluster", "us")
    assert nothing.code == 0
    check_wording(nothing.err)
    wrong = ask(tables, "--cluster", "mars")
    assert wrong.code == 2
    check_wording(wrong.err)
    assert ask(tables, "--since", "noon").code == 2


def test_tables_of_a_version_without_shadows_are_read(tmp_path: Path) -> None:
    fill(tmp_path, DECISIONS, [])
    check_wording(ask(tmp_path).err)


def test_config_show_prints_shadows_as_config_takes_them(tmp_path: Path) -> None:
    given = (
        "cluster.eu.shadow.calm.shedding_excluded_namespaces=a/b,a/c",
        "cluster.eu.shadow.calm.threshold_percent=30",
    )
    shown = lbctl(
        "config", "show", *(part for one in given for part in ("--set", one)), cwd=tmp_path
    )
    (tmp_path / "lb.toml").write_text(shown.out)
    (again,) = lbctl("config", "show", "--json", "--config", "lb.toml", cwd=tmp_path).objects
    assert again["cluster"]["eu"]["shadow"] == {
        "calm": {"shedding_excluded_namespaces": ["a/b", "a/c"], "threshold_percent": 30.0}
    }
