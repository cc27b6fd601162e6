"""The format of tables and checkpoint, and the version that wrote them: properties of the log.

A job that finds another format refuses it, before it reads or writes anything.
"""

from __future__ import annotations

from deltalake import DeltaTable

from lb_stream import __version__
from lb_stream.stream.ports import FatalError

FORMAT = 3
"""Number of what this version writes into tables and checkpoint.

A change that older versions can't read, or would read wrongly, raises it: a column, another meaning
of a column, of the logged memory or of a block in the checkpoint. 2: the state of a shard may name
blocks of changed rows (stream/shards/changed_rows.py). 3: small shards share blocks, and name their
rows of them (stream/shards/block_files.py).
"""
OLDEST_FORMAT = 1
"""The oldest format that this version reads. It writes on in FORMAT."""
FORMAT_KEY, VERSION_KEY = "lb_stream.format", "lb_stream.version"


class OtherFormat(FatalError):
    """The tables have a format that this version can't read; the text says which version can."""


def describe_writer(table: DeltaTable) -> str:
    """Return the version that last wrote to a table, as text; it may not be known."""
    version = table.metadata().configuration.get(VERSION_KEY)
    return f"lb_stream {version}" if version else "another version"


def require_format(table: DeltaTable) -> None:
    """Require that this version reads a table's format. Raises OtherFormat.

    A table that names no format has the first one.
    """
    named = table.metadata().configuration.get(FORMAT_KEY) or "1"
    found = int(named) if named.isdigit() else FORMAT + 1
    if OLDEST_FORMAT <= found <= FORMAT:
        return
    reads = f"format {FORMAT}"
    if OLDEST_FORMAT < FORMAT:
        reads = f"formats {OLDEST_FORMAT} to {FORMAT}"
    if found > FORMAT:
        advice = (
            f"Go on with {describe_writer(table)}, or start lb_stream {__version__} on the copy of "
            "tables and checkpoint that was made before the upgrade"
        )
    else:
        advice = "Start a version between the two first, then this one"
    raise OtherFormat(
        f"the tables at {table.table_uri} have format {named}, written by "
        f"{describe_writer(table)}; lb_stream {__version__} reads {reads}. {advice}"
    )


def stamp(table: DeltaTable) -> None:
    """Write this version and its format into a table's properties, if it names others."""
    wanted = {FORMAT_KEY: str(FORMAT), VERSION_KEY: __version__}
    if wanted.items() - table.metadata().configuration.items():
        table.alter.set_table_properties(wanted, raise_if_not_exists=False)
