"""The queries in docs/queries give the same rows in Spark as in DuckDB."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lb_stream.contracts.tables import TABLES
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.delta import dataset
from lb_stream.query.lake import open_lake, records, run
from lb_stream.query.sql_file import convert_parameters
from lb_stream.store import Store
from tests.support.example_queries import FOLDER, ORDER, PARAMETERS
from tests.support.recorded_tables import batches, record

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run; Spark sees its tables as views of the same names.

    (This session has no Delta: they are handed over as Parquet.)
    """
    root = tmp_path_factory.mktemp("recorded") / "tables"
    record(root, 30, settings={"max_moves_in_flight": 3})  # so that something is refused
    batches(root, 30)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for spec in TABLES:
        path = root.parent / f"{spec.name}.parquet"
        known = DeltaTable.is_deltatable(str(root / spec.name))
        pq.write_table(
            dataset(Table(Store.at(root / spec.name))).to_table()
            if known
            else spec.schema.empty_table(),
            path,
        )
        spark.read.parquet(str(path)).createOrReplaceTempView(spec.name)
    return root


@pytest.mark.parametrize("name", ORDER)
def test_spark_and_duckdb_answer_alike(spark: SparkSession, tables: Path, name: str) -> None:
    text, given = (FOLDER / f"{name}.sql").read_text(), PARAMETERS.get(name, {})
    query, values = convert_parameters(text, given)
    expected = [plain(row) for row in records(run(open_lake(Store.at(tables)), query, values))]
    assert [plain(row.asDict()) for row in spark.sql(text, args=given).collect()] == expected
    if name not in ("returned", "rejected", "commands", "failed_rounds"):
        assert expected


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times without zones (both are in UTC), floats to nine digits: sums may be taken in another
    order."""
    return {
        name: value.replace(tzinfo=None) if isinstance(value, datetime) else digits(value)
        for name, value in row.items()
    }


def digits(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value
