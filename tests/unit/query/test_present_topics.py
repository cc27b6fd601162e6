"""A view made of the tables has the shares of topics that the tables have, and no gaps."""

from pathlib import Path

import pyarrow as pa
from numpy.testing import assert_allclose, assert_array_equal

from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BROKER_LOADS, BUNDLE_AVERAGES
from lb_stream.query.lake import open_lake
from lb_stream.query.present.view import load_present_view
from lb_stream.store import Store
from tests.support.table_rows import fill

X, Y = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


def numbers(spec: TableSpec) -> dict[str, int]:
    """0 in each column of numbers."""
    kinds = (pa.types.is_integer, pa.types.is_floating)
    return {field.name: 0 for field in spec.schema if any(kind(field.type) for kind in kinds)}


def test_a_view_of_the_tables_has_the_shares_of_topics(tmp_path: Path) -> None:
    fill(tmp_path, BROKER_LOADS, [numbers(BROKER_LOADS) | {"cluster": "c", "broker": "a"}])
    of_y = {"topic_hashes": [0x8000_0001, 0x9000_0000], "topic_shares": [0.25, 0.75]}
    bundle = numbers(BUNDLE_AVERAGES) | {"cluster": "c", "owner": "a", "part": "0"}
    fill(tmp_path, BUNDLE_AVERAGES, [bundle | {"bundle": X}, bundle | {"bundle": Y} | of_y])
    with open_lake(Store.at(tmp_path)) as lake:
        shares = load_present_view(lake, "c", {"cpu": 1.0}).topic_shares
    assert shares.bundles.tolist() == [1]
    hashes, share = shares.of(1)
    assert_array_equal(hashes, [0x8000_0001, 0x9000_0000])
    assert_allclose(share, [0.25, 0.75], rtol=1e-6)


def test_a_broker_without_a_time_of_its_report_has_not_reported(tmp_path: Path) -> None:
    row = numbers(BROKER_LOADS) | {"cluster": "c", "broker": "a", "reported_ms": None}
    fill(tmp_path, BROKER_LOADS, [row, row | {"broker": "b", "reported_ms": 7, "seen_ms": None}])
    fill(tmp_path, BUNDLE_AVERAGES, [])
    with open_lake(Store.at(tmp_path)) as lake:
        brokers = load_present_view(lake, "c", {"cpu": 1.0}).brokers
    assert (brokers.reported_ms.tolist(), brokers.seen_ms.tolist()) == ([0, 7], [0, 0])
    assert brokers.reported_ms.dtype == brokers.seen_ms.dtype == "int64"
