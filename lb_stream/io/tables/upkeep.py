"""Upkeep of the tables: delete what is old, put small files together, remove files that no table
names any more.

Safe beside a running job: what it appends or replaces looks at the table again and is repeated when
a commit of ours got in between (io.tables.delta.commit_once); one of ours that meets with one of
its is left for the next time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError, DeltaError

from lb_stream.contracts.settings import UpkeepSettings
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BUNDLE_AVERAGES, MERGE_ADVICE, OWNERSHIP, ROUNDS, TABLES
from lb_stream.io.messages.errors import describe_disk_error
from lb_stream.io.tables.commits import Table
from lb_stream.io.tables.compaction import compact
from lb_stream.io.tables.delta import (
    ONLY_COMMIT,
    existing_table,
    numeric_dataset,
    read_replacement_times,
)
from lb_stream.io.tables.log import find_pipeline
from lb_stream.store import Store

HOUR_MS = 3_600_000
WRITTEN_MS = HOUR_MS
"""A file that no table has named yet stays for so long: an executor may just have written it, and
its batch isn't done."""
SLICE_MS = 24 * HOUR_MS
"""Rows are deleted a day at a time: a commit that takes longer than the table's history is kept
can't be made beside a running job."""
ATTEMPTS = 5
_WRITTEN_WHOLE = frozenset({OWNERSHIP.name, MERGE_ADVICE.name, BUNDLE_AVERAGES.name})
"""Tables whose rows the job replaces: it keeps their files few by itself, and our compaction would
make it repeat its commits."""


@dataclass(slots=True)
class MaintenanceResult:
    """What upkeep has done to one table (in a dry run: would do).

    Files and bytes are those of the table's newest version.
    """

    table: str
    rows_deleted: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_removed: int = 0  # from the disk: no version that is kept names them
    bytes_removed: int = 0
    seconds: float = 0.0
    left: str = ""  # what was left for the next time, and why
    failed: bool = False  # the next time won't do it either: somebody must see to the disk


@dataclass(frozen=True, slots=True)
class Protected:
    """What of the log must stay, whatever its age, and which figures' files are only named in
    it."""

    rounds: tuple[int, ...] = ()  # log_seq of each cluster's last round: its memory
    from_log_seq: int = (
        0  # from here on, what has been logged may have been neither published nor projected
    )
    unprojected: frozenset[str] = frozenset()


def maintain(
    root: Store, settings: UpkeepSettings, now_ms: int, dry_run: bool = False
) -> Iterator[MaintenanceResult]:
    """Delete old rows, compact and vacuum each table that exists.

    `root`: the folder of all tables; `now_ms`: ages count from here.
    """
    protected = protect(root)
    for spec in TABLES:
        if (table := existing_table(root, spec)) is not None:
            yield _keep(table, spec, settings, now_ms, protected, dry_run)


def protect(root: Store) -> Protected:
    """Return what the job still needs of the log.

    Reads two small columns of it, and each cluster's last row.
    """
    log = existing_table(root, ROUNDS)
    if log is None or (pipeline := find_pipeline(log)) is None:
        return Protected()
    versions: dict[str, int] = {}
    for spec in TABLES:
        if spec.from_log and (table := existing_table(root, spec)) is not None:
            found = table.transaction_version(pipeline)
            versions[spec.name] = -1 if found is None else found
    oldest = min(versions.values(), default=-1)
    return Protected(
        rounds=tuple(sorted(_last_rounds(log))),
        from_log_seq=max(versions.values(), default=0),
        unprojected=_unprojected(log, versions, oldest),
    )


def _last_rounds(log: Table) -> set[int]:
    """Numbers of the clusters' last rounds.

    One that says that its cluster has been forgotten stays for as long as an earlier one does.
    """
    rows = numeric_dataset(log).to_table(columns=["cluster", "log_seq"])
    seqs: dict[str, list[int]] = {}
    for cluster, seq in zip(rows["cluster"].to_pylist(), rows["log_seq"].to_pylist(), strict=True):
        seqs.setdefault(cluster, []).append(seq)
    last = {cluster: max(every) for cluster, every in seqs.items()}
    said = numeric_dataset(log).to_table(
        ["cluster", "log_seq", "memory"], pc.field("log_seq").isin(sorted(set(last.values())))
    )
    forgotten = {
        row["cluster"]
        for row in said.to_pylist()
        if not row["memory"] and row["log_seq"] == last[row["cluster"]]
    }
    kept = {seq for cluster, seq in last.items() if cluster not in forgotten}
    for cluster in sorted(forgotten, key=lambda name: last[name]):
        if not kept.isdisjoint(seqs[cluster]):
            kept.add(last[cluster])
    return kept


def _unprojected(log: Table, versions: Mapping[str, int], oldest: int) -> frozenset[str]:
    """Tables whose files the log names and the table does not have yet: the job was ended in
    between."""
    rows = numeric_dataset(log).to_table(
        columns=["log_seq", "files"], filter=pc.field("log_seq") > oldest
    )
    numbers = rows["log_seq"].to_numpy()
    waiting = {
        name: pc.unique(rows["files"].filter(pa.array(numbers > version))).to_pylist()
        for name, version in versions.items()
    }
    return frozenset(
        name for name, named in waiting.items() if any(f'"{name}"' in files for files in named)
    )


def _keep(
    table: Table,
    spec: TableSpec,
    settings: UpkeepSettings,
    now_ms: int,
    protected: Protected,
    dry_run: bool,
) -> MaintenanceResult:
    begin = time.perf_counter()
    done = MaintenanceResult(spec.name)
    done.files_before, done.bytes_before = _size(table)
    done.files_after, done.bytes_after = done.files_before, done.bytes_before
    hours = getattr(settings, f"keep_{spec.name}_hours", 0) if spec.kept_by else 0
    with _leaving(done):
        if hours:
            _delete(table, spec, now_ms - hours * HOUR_MS, protected, done, dry_run)
    with _leaving(done):
        if spec.name not in _WRITTEN_WHOLE:
            _compact(table, settings.target_file_mb * 2**20, done, dry_run)
    with _leaving(done):
        table.refresh()
        if not dry_run:
            done.files_after, done.bytes_after = _size(table)
        _vacuum(table, spec, settings, protected, done, dry_run)
    done.seconds = time.perf_counter() - begin
    return done


@contextmanager
def _leaving(done: MaintenanceResult) -> Iterator[None]:
    """What can't be done now is left for the next time, and doesn't keep from what comes after
    it."""
    try:
        yield
    except CommitFailedError:
        done.left = done.left or "the job was quicker: left for the next time"
    except (
        DeltaError,
        OSError,
    ) as error:  # the job has removed a file of `_delta_log` that was about to be read
        line = describe_disk_error(error)
        done.left, done.failed = (
            done.left or line or f"left for the next time: {error}",
            done.failed or bool(line),
        )


def _size(table: Table) -> tuple[int, int]:
    """Files and bytes of the newest version."""
    sizes = pa.table(table.get_add_actions())["size_bytes"]
    return len(sizes), pc.sum(sizes).as_py() or 0


def _delete(
    table: Table,
    spec: TableSpec,
    before_ms: int,
    protected: Protected,
    done: MaintenanceResult,
    dry_run: bool,
) -> None:
    """Delete rows that are older than `before_ms`; of the log none that the job still needs."""
    assert spec.kept_by
    column = spec.kept_by
    wanted, condition = pc.field(column) < before_ms, ""
    if spec.name == ROUNDS.name:
        wanted &= (pc.field("log_seq") < protected.from_log_seq) & ~pc.field("log_seq").isin(
            protected.rounds
        )
        condition = (
            f" AND log_seq < {protected.from_log_seq} AND log_seq NOT IN "
            f"({', '.join(map(str, protected.rounds)) or '-1'})"
        )
    old = numeric_dataset(table).to_table(columns=[column], filter=wanted)[column]
    if dry_run or not len(old):
        done.rows_deleted = len(old)
        return
    for number in np.unique(old.to_numpy() // SLICE_MS).tolist():
        first, end = number * SLICE_MS, min((number + 1) * SLICE_MS, before_ms)
        done.rows_deleted += _again(table, f"{column} >= {first} AND {column} < {end}{condition}")


def _again(table: Table, predicate: str) -> int:
    """Delete; once more when the job has written in between. Returns the number of rows."""
    for attempt in range(ATTEMPTS):
        table.update_incremental()
        try:
            return int(
                table.delete(predicate, post_commithook_properties=ONLY_COMMIT)["num_deleted_rows"]
            )
        except CommitFailedError:
            if attempt == ATTEMPTS - 1:
                raise
    return 0


def _compact(table: Table, target_bytes: int, done: MaintenanceResult, dry_run: bool) -> None:
    if dry_run:
        sizes = [
            size
            for size in pa.table(table.get_add_actions())["size_bytes"].to_pylist()
            if size < target_bytes
        ]
        done.files_after = done.files_before - len(sizes) + math.ceil(sum(sizes) / target_bytes)
        return
    table.refresh()
    compact(table, target_bytes)


def _vacuum(
    table: Table,
    spec: TableSpec,
    settings: UpkeepSettings,
    protected: Protected,
    done: MaintenanceResult,
    dry_run: bool,
) -> None:
    """Remove files that the table doesn't name, once it has been so for long enough; what was never
    named, once it is old enough.

    Figures' files that the log names and a stopped job has not projected may be of any age: then
    only what the table itself has replaced is removed.
    """
    whole = spec.name not in protected.unprojected
    unused = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=whole)
    replaced, now_ms = read_replacement_times(table), time.time_ns() // 1_000_000
    for path in unused:
        if (found := table.store.stat(path)) is None:
            continue
        if (at_ms := replaced.get(unquote(path))) is not None:
            old = now_ms - at_ms >= settings.keep_replaced_files_hours * HOUR_MS
        else:
            old = now_ms - found.changed_ms >= max(
                WRITTEN_MS, settings.keep_replaced_files_hours * HOUR_MS
            )
        if old:
            done.files_removed += 1
            done.bytes_removed += found.size
            if not dry_run:
                table.store.delete(path)
    if not whole:
        done.left = (
            done.left
            or "files that the log names are not part of the table yet: start the job once"
        )
