"""Delta tables through `deltalake`: opening, creating, and what a writer has committed."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import CommitProperties, DeltaTable, Transaction

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


def committed(table: DeltaTable, app: str) -> int | None:
    """The version of the last transaction that `app` has committed to the table; None before the first. (0 is a version.)"""
    table.update_incremental()
    return table.transaction_version(app)


def transaction(app: str, version: int) -> CommitProperties:
    """Commit properties that mark a commit as `app`'s transaction `version`."""
    return CommitProperties(app_transactions=[Transaction(app, version)])
