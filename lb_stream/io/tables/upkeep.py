"""Upkeep of the tables: deletes old rows, compacts small files, removes files that no table names.

It is safe beside a running job. A commit of the job that meets one of upkeep's is repeated
(io.tables.delta.commit_once). A commit of upkeep that meets one of the job's is left for the next
upkeep.
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
from lb_stream.contracts.tables import (
    AUDIT,
    BUNDLE_AVERAGES,
    MERGE_ADVICE,
    OWNERSHIP,
    ROUNDS,
    TABLES,
)
from lb_stream.io.messages.errors import describe_disk_error
from lb_stream.io.tables.audit import count_old_rows, cut
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
"""How long a file stays that no table names.

An executor may just have written it, and its batch isn't done.
"""
SLICE_MS = 24 * HOUR_MS
"""Rows are deleted by the day.

Beside a running job a commit must not take longer than the table's history is kept.
"""
ATTEMPTS = 5
_REPLACED_BY_JOB = frozenset({OWNERSHIP.name, MERGE_ADVICE.name, BUNDLE_AVERAGES.name})
"""Tables whose rows the job replaces.

The job keeps their files few, and a compaction by upkeep would make it repeat its commits.
"""


@dataclass(slots=True)
class MaintenanceResult:
    """What upkeep has done to one table; in a dry run, what it would do.

    Files and bytes before and after are those of the table's newest version. Those removed were on
    the disk, and no version that is kept names them. `left`: what was left for the next upkeep, and
    why; `failed`: the next one can't do it either, because of the disk.
    """

    table: str
    rows_deleted: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    seconds: float = 0.0
    left: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Protected:
    """The part of the log that must stay at any age.

    `rounds`: log_seq of each cluster's last round, which has its memory; `from_log_seq`: batches
    from here on may be neither published nor projected; `unprojected`: tables with files that only
    the log names.
    """

    rounds: tuple[int, ...] = ()
    from_log_seq: int = 0
    unprojected: frozenset[str] = frozenset()


def maintain(
    root: Store, settings: UpkeepSettings, now_ms: int, dry_run: bool = False
) -> Iterator[MaintenanceResult]:
    """Delete old rows, compact and vacuum each table that exists, and yield the results.

    `root`: the folder of all tables; `now_ms`: the time from which ages count.
    """
    protected = protect(root)
    for spec in TABLES:
        if (table := existing_table(root, spec)) is not None:
            yield _maintain_table(table, spec, settings, now_ms, protected, dry_run)


def protect(root: Store) -> Protected:
    """Return which part of the log the job still needs.

    Reads two small columns of the log, and each cluster's last row.
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
    """Return the log's numbers of the clusters' last rounds.

    That of a forgotten cluster is among them only while an earlier row of the cluster stays.
    """
    rows = numeric_dataset(log).to_table(columns=["cluster", "log_seq"])
    seqs: dict[str, list[int]] = {}
    for cluster, seq in zip(rows["cluster"].to_pylist(), rows["log_seq"].to_pylist(), strict=True):
        seqs.setdefault(cluster, []).append(seq)
    last = {cluster: max(numbers) for cluster, numbers in seqs.items()}
    last_rows = numeric_dataset(log).to_table(
        ["cluster", "log_seq", "memory"], pc.field("log_seq").isin(sorted(set(last.values())))
    )
    forgotten = {
        row["cluster"]
        for row in last_rows.to_pylist()
        if not row["memory"] and row["log_seq"] == last[row["cluster"]]
    }
    kept = {seq for cluster, seq in last.items() if cluster not in forgotten}
    for cluster in sorted(forgotten, key=lambda name: last[name]):
        if not kept.isdisjoint(seqs[cluster]):
            kept.add(last[cluster])
    return kept


def _unprojected(log: Table, versions: Mapping[str, int], oldest: int) -> frozenset[str]:
    """Return the tables with files that the log names and the table doesn't: the job was killed."""
    rows = numeric_dataset(log).to_table(
        columns=["log_seq", "files"], filter=pc.field("log_seq") > oldest
    )
    numbers = rows["log_seq"].to_numpy()
    logged_later = {
        name: pc.unique(rows["files"].filter(pa.array(numbers > version))).to_pylist()
        for name, version in versions.items()
    }
    return frozenset(
        name for name, texts in logged_later.items() if any(f'"{name}"' in files for files in texts)
    )


def _maintain_table(
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

    # A stage that fails doesn't keep the next ones from running.
    with _leaving(done):
        if hours and spec is AUDIT:
            _cut_audit(table, hours, now_ms, done, dry_run)
        elif hours:
            _delete(table, spec, now_ms - hours * HOUR_MS, protected, done, dry_run)
    with _leaving(done):
        if spec.name not in _REPLACED_BY_JOB:
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
    """Note what can't be done now; the next upkeep does it."""
    try:
        yield
    except CommitFailedError:
        done.left = done.left or "the job has written meanwhile: left for the next upkeep"
    except (DeltaError, OSError) as error:
        # The job may have removed a file of `_delta_log` that was to be read: only a disk that
        # can't be written to is a failure.
        line = describe_disk_error(error)
        done.left = done.left or line or f"left for the next upkeep: {error}"
        done.failed = done.failed or bool(line)


def _size(table: Table) -> tuple[int, int]:
    """Return the number of files and the bytes of the newest version."""
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
    """Delete rows that are older than `before_ms`, but none of the log that the job still needs."""
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
        done.rows_deleted += _delete_rows(
            table, f"{column} >= {first} AND {column} < {end}{condition}"
        )


def _cut_audit(
    table: Table, hours: int, now_ms: int, done: MaintenanceResult, dry_run: bool
) -> None:
    """Delete whole days of the audit that are too old; a row of each cluster says so."""
    before_ms = (now_ms - hours * HOUR_MS) // SLICE_MS * SLICE_MS
    done.rows_deleted = count_old_rows(table, before_ms)
    if not dry_run and done.rows_deleted:
        why = f"upkeep has deleted what was older than upkeep.keep_audit_hours = {hours}"
        done.rows_deleted = cut(table, before_ms, now_ms, why)


def _delete_rows(table: Table, predicate: str) -> int:
    """Delete rows, again if the job has written meanwhile. Returns the number of rows."""
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
    """Remove files that the table doesn't name.

    A replaced file must have been replaced long enough ago. One that was never named must be old
    enough, unless a stopped job has not projected files: those may be of any age, and only replaced
    files are removed.
    """
    whole = spec.name not in protected.unprojected
    unused = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=whole)
    replaced = read_replacement_times(table)
    now_ms = time.time_ns() // 1_000_000
    keep_ms = settings.keep_replaced_files_hours * HOUR_MS
    for path in unused:
        if (found := table.store.stat(path)) is None:
            continue
        if (at_ms := replaced.get(unquote(path))) is not None:
            old = now_ms - at_ms >= keep_ms
        else:
            old = now_ms - found.changed_ms >= max(WRITTEN_MS, keep_ms)
        if old:
            done.files_removed += 1
            done.bytes_removed += found.size
            if not dry_run:
                table.store.delete(path)
    if not whole:
        done.left = done.left or "the log names files that the table lacks: start the job once"
