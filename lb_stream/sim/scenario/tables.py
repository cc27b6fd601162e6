"""Reads and checks the Parquet files of a scenario: bundles, loads, noise, topics, background."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lb_stream.contracts.base import MAX_AMOUNT
from lb_stream.core.model.names import (
    BUNDLE_PATTERN,
    FULL_RANGE_END,
    namespace_codes,
)
from lb_stream.sim.scenario.errors import MISSING, ScenarioError
from lb_stream.sim.scenario.scenario import (
    LOADS,
    Bools,
    Ints,
    ScenarioAntiAffinity,
    ScenarioBrokers,
    ScenarioBundles,
    ScenarioTopics,
)

BUNDLES = "bundles.parquet"
LOADS_FILE = "loads.parquet"
NOISE = "noise.parquet"
BROKER_NOISE = "broker_noise.parquet"
BACKGROUND = "background.parquet"
TOPICS = "topics.parquet"
COUNTS = ("topics", "producers", "consumers", "memory_bytes")
_BUNDLE_EXPECTED = "tenant/namespace/0xLLLLLLLL_0xHHHHHHHH"

_Kind = tuple[str, Callable[[pa.DataType], bool]]
_TEXT: _Kind = ("text", lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind))
_WHOLE: _Kind = ("whole numbers", pa.types.is_integer)
_SMALL: _Kind = ("int8", pa.types.is_int8)
_SINGLE: _Kind = ("float32", pa.types.is_float32)


def read_bundles(path: Path, brokers: ScenarioBrokers) -> ScenarioBundles:
    """Read bundles.parquet.

    Raises ScenarioError, also for ranges that overlap and for owners that are unknown or down at
    the start.
    """
    table = _read(path, {"name": _TEXT, "start_owner": _WHOLE, **dict.fromkeys(COUNTS, _WHOLE)})
    if not len(table):
        raise ScenarioError(path, "rows", 0, "at least one bundle")
    encoded = table["name"].combine_chunks().cast(pa.string())
    _check_names(path, encoded)
    names = tuple(encoded.to_pylist())

    def column(name: str) -> Ints:
        values: Ints = table[name].to_numpy().astype(np.int64)
        return values

    def refuse(field: str, values: Ints, bad: Bools, expected: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            raise ScenarioError(
                path, f"{field} of row {row} ({names[row]})", int(values[row]), expected
            )

    owner = column("start_owner")
    last = len(brokers) - 1
    refuse(
        "start_owner", owner, (owner < -1) | (owner > last), f"-1 or a row of brokers, 0 to {last}"
    )
    refuse(
        "start_owner",
        owner,
        ~np.append(brokers.up, True)[owner],
        "a broker that is up at the start, or -1",
    )
    counts = {name: column(name) for name in COUNTS}
    for name, values in counts.items():
        refuse(name, values, values < 0, "0 or more")
    return ScenarioBundles(names, owner, **counts)


def _check_names(path: Path, names: pa.StringArray) -> None:
    """Require names with ranges that don't overlap within a namespace. Raises ScenarioError."""
    # form
    bad = pc.invert(pc.match_substring_regex(names, BUNDLE_PATTERN)).to_numpy(zero_copy_only=False)
    if bad.any():
        row = int(np.argmax(bad))
        raise ScenarioError(path, f"name of row {row}", names[row].as_py(), _BUNDLE_EXPECTED)
    # bounds
    codes, _ = namespace_codes(names)
    lower, upper = _bounds(names)
    if (lower >= upper).any():
        row = int(np.argmax(lower >= upper))
        raise ScenarioError(
            path, f"name of row {row}", names[row].as_py(), "a lower bound below the upper one"
        )
    # overlaps
    order = np.lexsort((lower, codes))
    follows = codes[order][1:] == codes[order][:-1]
    overlap = follows & (lower[order][1:] < upper[order][:-1])
    if overlap.any():
        at = int(np.argmax(overlap))
        row, other = int(order[at + 1]), names[int(order[at])].as_py()
        raise ScenarioError(
            path,
            f"name of row {row}",
            names[row].as_py(),
            f"a range that no other bundle has: it overlaps {other}",
        )


def _bounds(names: pa.StringArray) -> tuple[Ints, Ints]:
    """Return the lower and the upper bounds of bundles' ranges, as their names give them."""
    lower, upper = (
        _hex(pc.utf8_slice_codeunits(names, start, stop))
        for start, stop in ((-19, -11), (-8, None))
    )
    return lower, upper


def _hex(digits: pa.StringArray) -> Ints:
    """Parse texts of eight hexadecimal digits."""
    letters = (
        np.frombuffer("".join(digits.to_pylist()).encode("ascii"), np.uint8)
        .reshape(-1, 8)
        .astype(np.int64)
    )
    values = np.where(letters >= ord("a"), letters - ord("a") + 10, letters - ord("0"))
    found: Ints = values @ (16 ** np.arange(7, -1, -1))
    return found


def check_anti_affinity(
    path: Path,
    bundles: ScenarioBundles,
    brokers: ScenarioBrokers,
    groups: tuple[ScenarioAntiAffinity, ...],
) -> None:
    """Require that no broker starts with two namespaces of a group. Raises ScenarioError."""
    group_of = {namespace: group.name for group in groups for namespace in group.namespaces}
    serves: dict[tuple[str, int], str] = {}
    if not group_of:
        return
    for row, (name, owner) in enumerate(
        zip(bundles.names, bundles.start_owner.tolist(), strict=True)
    ):
        namespace = name.rpartition("/")[0]
        if owner >= 0 and (group := group_of.get(namespace)) is not None:
            other = serves.setdefault((group, owner), namespace)
            if other != namespace:
                wanted = (
                    f"another broker: {brokers.names[owner]} starts with {other} of the same "
                    f"anti-affinity group {group}"
                )
                raise ScenarioError(path, f"start_owner of row {row} ({name})", owner, wanted)


def read_loads(path: Path, bundles: ScenarioBundles, steps: int) -> NDArray[np.float32]:
    """Read loads.parquet: LOADS × bundles × steps. Raises ScenarioError."""
    table = _read(path, dict.fromkeys(LOADS, _SINGLE), (len(bundles), "bundles", steps))
    loads = np.empty((len(LOADS), len(bundles), steps), np.float32)
    for number, name in enumerate(LOADS):
        loads[number] = table[name].to_numpy().reshape(len(bundles), steps)
        bad = ~((loads[number] >= 0) & (loads[number] <= MAX_AMOUNT))  # NaN is bad, too
        if bad.any():
            bundle, step = divmod(int(np.argmax(bad)), steps)
            field = f"{name} of {bundles.names[bundle]} at step {step}"
            raise ScenarioError(
                path,
                field,
                float(loads[number, bundle, step]),
                f"a number from 0 to {MAX_AMOUNT:g}",
            )
    return loads


def read_noise(
    path: Path, count: int, rows: str, steps: int, unit: float
) -> NDArray[np.int8] | None:
    """Read noise.parquet or broker_noise.parquet: count × steps. None: there is no such file.

    `rows`: "bundles" or "brokers", for messages. Raises ScenarioError.
    """
    if not path.exists():
        return None
    noise: NDArray[np.int8] = (
        _read(path, {"q": _SMALL}, (count, rows, steps))["q"].to_numpy().reshape(count, steps)
    )
    if 1.0 + int(noise.min()) * unit < 0:
        row = int(np.argmin(noise))
        raise ScenarioError(
            path,
            f"q of row {row}",
            int(noise.min()),
            f"{-1 / unit:g} or more: 1 + q · noise_unit must not be negative",
        )
    return noise


def read_background(path: Path, brokers: ScenarioBrokers, steps: int) -> NDArray[np.float32] | None:
    """Read background.parquet: brokers × steps. None: there is no such file.

    Raises ScenarioError.
    """
    if not path.exists():
        return None
    table = _read(path, {"cpu": _SINGLE}, (len(brokers), "brokers", steps))
    cpu: NDArray[np.float32] = table["cpu"].to_numpy().reshape(len(brokers), steps)
    bad = ~((cpu >= 0) & (cpu <= MAX_AMOUNT))  # NaN is bad, too
    if bad.any():
        broker, step = divmod(int(np.argmax(bad)), steps)
        raise ScenarioError(
            path,
            f"cpu of {brokers.names[broker]} at step {step}",
            float(cpu[broker, step]),
            f"a number from 0 to {MAX_AMOUNT:g}",
        )
    return cpu


def read_topics(path: Path, bundles: ScenarioBundles) -> ScenarioTopics | None:
    """Read topics.parquet. None: there is no such file.

    Raises ScenarioError, also where a bundle's topics aren't as many as it has, where none has a
    share, and for hashes outside of their bundle's range.
    """
    if not path.exists():
        return None
    table = _read(path, {"bundle": _WHOLE, "hash": _WHOLE, "share": _SINGLE})
    bundle, hashes = (table[name].to_numpy().astype(np.int64) for name in ("bundle", "hash"))
    share: NDArray[np.float32] = table["share"].to_numpy()

    def refuse(name: str, values: NDArray[np.generic], bad: Bools, expected: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            raise ScenarioError(path, f"{name} of row {row}", values[row].item(), expected)

    last = len(bundles) - 1
    refuse("bundle", bundle, (bundle < 0) | (bundle > last), f"a row of bundles, 0 to {last}")
    refuse("share", share, ~((share >= 0) & (share <= MAX_AMOUNT)), "a number of 0 or more")
    # ranges; that of a namespace's last bundle includes its end
    lower, upper = _bounds(pa.array(bundles.names, pa.string()))
    end = np.where(upper == FULL_RANGE_END, upper + 1, upper)
    outside = (hashes < lower[bundle]) | (hashes >= end[bundle])
    if outside.any():
        row = int(np.argmax(outside))
        name = bundles.names[bundle[row]]
        refuse("hash", hashes, outside, f"a hash in the range of its bundle, {name}")
    # numbers and sums
    order = np.lexsort((hashes, bundle))
    count = np.bincount(bundle, minlength=len(bundles))
    total = np.bincount(bundle, share.astype(np.float64), len(bundles))
    for row in np.flatnonzero((count != bundles.topics) | ~(total > 0)).tolist():
        name, topics = bundles.names[row], int(bundles.topics[row])
        if count[row] != topics:
            raise ScenarioError(path, f"rows of {name}", int(count[row]), f"{topics}, its topics")
        raise ScenarioError(path, f"shares of {name}", float(total[row]), "a sum of more than 0")
    return ScenarioTopics(bundle[order], hashes[order], share[order])


def _read(
    path: Path, columns: Mapping[str, _Kind], shape: tuple[int, str, int] | None = None
) -> pa.Table:
    """Read a file that must have just these columns and no nulls. Raises ScenarioError.

    `shape`: the file must have count × steps rows (count, name of the rows, steps).
    """
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except FileNotFoundError:
        raise ScenarioError(
            path, "the file", MISSING, f"Parquet with columns {', '.join(columns)}"
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise ScenarioError(path, "", None, f"a whole Parquet file ({error})") from None
    for name in (*columns, *table.column_names):
        if name not in columns:
            raise ScenarioError(
                path,
                f"column {name}",
                str(table.schema.field(name).type),
                f"no columns but {', '.join(columns)}",
            )
        if table.column_names.count(name) != 1:
            found = MISSING if name not in table.column_names else table.column_names
            raise ScenarioError(
                path, f"column {name}", found, f"columns {', '.join(columns)}, each once"
            )
        values, fits = columns[name]
        if not fits(table.schema.field(name).type):
            raise ScenarioError(
                path, f"column {name}", str(table.schema.field(name).type), f"a column of {values}"
            )
        if table[name].null_count:
            raise ScenarioError(
                path, f"column {name}", None, f"no nulls; it has {table[name].null_count}"
            )
    if shape is not None and len(table) != shape[0] * shape[2]:
        count, rows, steps = shape
        raise ScenarioError(
            path, "rows", len(table), f"{count * steps}: {count} {rows} × {steps} steps"
        )
    return table
