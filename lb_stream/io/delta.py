"""Delta tables through `deltalake`: opening, creating, and what a writer has committed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, Transaction
from pyarrow.dataset import Dataset
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from lb_stream.contracts.tables import TableSpec

CONFIGURATION: Mapping[str, str | None] = {
    "delta.enableDeletionVectors": "false",  # readers without Spark don't understand them
    "delta.checkpointInterval": "50",
}


def open_table(root: str, spec: TableSpec) -> DeltaTable:
    """The table, created with its columns when it isn't there yet."""
    uri = table_uri(root, spec)
    if DeltaTable.is_deltatable(uri):
        return DeltaTable(uri)
    return DeltaTable.create(
        uri,
        schema=spec.schema,
        mode="ignore",
        name=spec.name,
        description=spec.row,
        partition_by=[spec.partition_by] if spec.partition_by else None,
        configuration=CONFIGURATION,
    )


def table_uri(root: str, spec: TableSpec) -> str:
    """Where a table is."""
    return f"{root.rstrip('/')}/{spec.name}"


def dataset(table: DeltaTable) -> Dataset:
    """The table as an Arrow dataset that reads local files by Arrow itself.

    By default every read calls back into Python from Arrow's threads, which now and then hangs or crashes at the end of the process.
    """
    uri = table.table_uri
    if uri.startswith("file://") or "://" not in uri:
        root = Path(unquote(uri.removeprefix("file://"))).resolve()
        return table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(str(root), LocalFileSystem()))
    return table.to_pyarrow_dataset()


def committed(table: DeltaTable, app: str) -> int | None:
    """The version of the last transaction that `app` has committed to the table; None before the first. (0 is a version.)"""
    table.update_incremental()
    return table.transaction_version(app)


def transaction(*marks: tuple[str, int]) -> CommitProperties:
    """Commit properties that mark a commit as transaction `version` of each `app`. Of two writers who try the same, one is refused."""
    return CommitProperties(app_transactions=[Transaction(app, version) for app, version in marks])
