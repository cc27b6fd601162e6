"""`lbctl top` shows the heaviest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from lb_stream.query.screens.lists import PAGE_ROWS
from tests.support.lbctl_runner import Result, lbctl
from tests.unit.console.site import fleet


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("top") / "tables"
    fleet(folder, more=60)
    return folder


def top(tables: Path, *arguments: str) -> Result:
    return lbctl("top", *arguments, "--set", f"stream.tables={tables}", cwd=tables)


def test_brokers_are_sorted_by_usage_over_more_than_a_page(tables: Path) -> None:
    rows = top(tables, "brokers", "--last", "100", "--json").objects
    assert len({row["broker"] for row in rows}) == len(rows) > PAGE_ROWS
    alive = [row["usage_ratio"] for row in rows if row["alive"]]
    assert alive == sorted(alive, reverse=True)


def test_only_as_many_are_shown_as_asked_for(tables: Path) -> None:
    all_of_them = top(tables, "brokers", "-o", "name").out.splitlines()
    assert len(all_of_them) == 10
    assert top(tables, "brokers", "-n", "3", "-o", "name").out.splitlines() == all_of_them[:3]


@pytest.mark.parametrize(
    ("kind", "column", "first"),
    (
        ("bundles", "bundle", "shop/hot/0x00000000_0x10000000"),
        ("namespaces", "name", "shop/hot"),
        ("tenants", "name", "shop"),
    ),
)
def test_others_have_their_share_of_the_traffic(
    tables: Path, kind: str, column: str, first: str
) -> None:
    rows = top(tables, kind, "--json").objects
    assert rows[0][column] == first and rows[0]["cluster"] == "eu-1"
    traffic = [row["bytes_per_s"] for row in rows]
    assert traffic == sorted(traffic, reverse=True)
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_people_see_brokers_and_bundles_and_programs_one_kind(tables: Path) -> None:
    shown = top(tables)
    assert shown.code == 0 and shown.out.index("usage") < shown.out.index("share")
    refused = top(tables, "-o", "csv")
    assert refused.code == 2 and "brokers|bundles|namespaces|tenants" in refused.err
