"""`lbctl brokers`, `decisions` and `sql` over Delta tables, without a JVM."""

import csv
import io
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import SubTreeFileSystem

from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.table_spec import TableSpec
from lb_stream.contracts.tables import BROKER_LOADS, BUNDLE_AVERAGES, DECISIONS, OUTCOMES, TABLES
from lb_stream.query.lake import _find_rows, open_lake, records
from lb_stream.store import Store
from tests.support.lbctl_runner import Result, lbctl
from tests.support.recorded_tables import Recorder
from tests.support.table_rows import NOW, decided, fill, load
from tests.support.wordings import check_wording

HOT = "shop/hot/0x00000000_0x10000000"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters: eu-1 with three brokers and two rounds, us-1 with one; an unload and an
    assignment in each of three rounds."""
    folder = tmp_path_factory.mktemp("tables")
    fill(
        folder,
        BROKER_LOADS,
        [load("eu-1", 1, f"b-{number}:80", 100.0) for number in range(3)]
        + [load("us-1", 1, "u-0:80", 7.0)],
    )
    fill(
        folder,
        BROKER_LOADS,
        [load("eu-1", 2, "b-0:80", 300.0), load("eu-1", 2, "b-2:80", 0.0, alive=False)],
    )
    made = [
        example_decision(
            decision_id=f"eu-1:{seq}:{ordinal}",
            seq=seq,
            kind=kind,
            bundle=HOT,
            issued_ms=NOW + seq,
            source="b-0:80",
            destination="b-1:80",
        )
        for seq in (1, 2, 10)
        for ordinal, kind in enumerate(("unload", "assign"))
    ]
    other = example_decision(decision_id="us-1:1:0", cluster="us-1", issued_ms=NOW, dry_run=True)
    fill(folder, DECISIONS, [decided(decision) for decision in (*made[::-1], other)])
    outcomes = [("eu-1:1:0", "confirmed"), ("eu-1:1:1", "expired")]
    fill(
        folder,
        OUTCOMES,
        [
            {"decision_id": name, "cluster": "eu-1", "seq": 2, "outcome": how, "took_ms": 1200}
            for name, how in outcomes
        ],
    )
    fill(
        folder,
        BUNDLE_AVERAGES,
        [{"cluster": cluster, "bundle": HOT, "short_samples": 3} for cluster in ("eu-1", "us-1")],
    )
    return folder


@pytest.fixture
def ask(tables: Path, tmp_path: Path) -> Any:
    """Calls lbctl with these tables."""

    def call(*arguments: str, **more: Any) -> Result:
        return lbctl(*arguments, "--set", f"stream.tables={tables}", cwd=tmp_path, **more)

    return call


# --- brokers ---


def test_brokers_shows_each_brokers_latest_row(ask: Any) -> None:
    rows = ask("brokers", "--json").objects
    assert [(row["cluster"], row["broker"], row["alive"], row["msgs_per_s"]) for row in rows] == [
        ("eu-1", "b-0:80", True, 600.0),
        ("eu-1", "b-1:80", True, 200.0),
        ("eu-1", "b-2:80", False, 0.0),
        ("us-1", "u-0:80", True, 14.0),
    ]
    assert rows[0]["bytes_per_s"] == 600_000.0


def test_brokers_sums_each_cluster_up_over_its_living_brokers(ask: Any) -> None:
    out = ask("brokers").out
    assert "eu-1: 2 of 3 brokers alive, 12 bundles, busiest ÷ mean 1.50 by throughput" in out
    assert "us-1: 1 of 1 brokers alive" in out
    assert max(map(len, out.splitlines())) <= 80


def test_brokers_of_one_cluster_are_only_its_own(ask: Any) -> None:
    assert {row["cluster"] for row in ask("brokers", "--cluster", "us-1", "--json").objects} == {
        "us-1"
    }
    silent = ask("brokers", "--cluster", "nowhere")
    assert (silent.code, silent.out) == (2, "")
    check_wording(silent.err)


def test_a_cluster_name_with_a_slash_is_wrong_usage(ask: Any) -> None:
    assert ask("brokers", "--cluster", "a/b").code == 2


# --- decisions ---


def test_decisions_come_in_the_order_they_were_made_with_their_outcomes(ask: Any) -> None:
    rows = ask("decisions", "--json", "--cluster", "eu-1").objects
    assert [row["decision_id"] for row in rows] == [
        "eu-1:1:0",
        "eu-1:1:1",
        "eu-1:2:0",
        "eu-1:2:1",
        "eu-1:10:0",
        "eu-1:10:1",
    ]
    assert [row["outcome"] for row in rows] == ["confirmed", "expired", None, None, None, None]
    assert rows[0]["explain"]["saw"] == 0.62
    assert "ordinal" not in rows[0]


def test_a_split_and_a_merge_are_told_without_a_way() -> None:
    from lb_stream.cli.inspect.decisions import _describe_place

    row = {"source": "b-0:80", "destination": None, "algorithm": "range_equally_divide"}
    assert _describe_place(row | {"kind": "split"}) == "at b-0:80, range_equally_divide"
    check_wording(
        _describe_place(row | {"kind": "merge", "neighbour": "t/n/0x80000000_0xffffffff"})
    )
    check_wording(_describe_place(row | {"kind": "unload"}))


def test_the_last_decisions_are_the_newest(ask: Any) -> None:
    assert [row["decision_id"] for row in ask("decisions", "-n", "3", "--json").objects] == [
        "eu-1:2:1",
        "eu-1:10:0",
        "eu-1:10:1",
    ]
    assert ask("decisions", "--last", "0", "--json").objects == []


def test_decisions_tell_people_what_why_and_what_came_of_it(ask: Any) -> None:
    out = ask("decisions", "--cluster", "eu-1").out
    for words in (
        f"unload {HOT}",
        "b-0:80 → b-1:80",
        "above_average",
        "62.0%, limit 51.0%",
        "confirmed",
        "expired",
        "in 1.2 s",
        "pending",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80
    assert "dry run" in ask("decisions", "--cluster", "us-1").out


def test_every_decision_has_its_id_and_where_there_are_several_clusters_its_cluster(
    ask: Any,
) -> None:
    for arguments in ((), ("--cluster", "eu-1"), ("-n", "1")):
        out = ask("decisions", *arguments).out
        shown = re.findall(r"(?<= )(?:eu|us)-1:\d+:\d+", out)
        assert shown == [
            row["decision_id"] for row in ask("decisions", *arguments, "--json").objects
        ]
        assert len(re.findall(r"^(?:eu|us)-1 ", out, re.MULTILINE)) == len(shown)


def test_a_bundles_name_stays_in_one_piece_on_eighty_columns(
    recorded: Recorder, tmp_path: Path
) -> None:
    out = lbctl("decisions", "--set", f"stream.tables={recorded.root}", cwd=tmp_path).out
    made = [decision for one in recorded.rounds for decision in one.decisions][-20:]
    assert [line.split()[-1] for line in re.findall(r"(?:unload|assign) shop/\S+", out)] == [
        decision.bundle for decision in made
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_none_of_the_past_is_not_called_nothing(ask: Any) -> None:
    assert "nothing" not in ask("decisions", "--last", "0").err
    check_wording(ask("decisions", "--cluster", "nowhere").err)


# --- sql ---


def test_sql_reads_a_partitioned_table_with_its_partition_column(ask: Any) -> None:
    rows = ask(
        "sql",
        "select bundle, cluster, short_samples from bundle_averages where cluster = 'us-1'",
        "--json",
    ).objects
    assert rows == [{"bundle": HOT, "cluster": "us-1", "short_samples": 3}]


def test_sql_finds_partitions_whatever_the_clusters_are_called(tmp_path: Path) -> None:
    names = ["a/b", "eu 1", "x%y", "ü"]
    fill(tmp_path, BUNDLE_AVERAGES, [{"cluster": name, "bundle": HOT} for name in names])
    rows = records(
        open_lake(Store.at(tmp_path)).execute(
            "select cluster from bundle_averages where bundle is not null order by cluster"
        )
    )
    assert [row["cluster"] for row in rows] == names


def test_tables_are_scanned_without_calling_back_into_python(tables: Path) -> None:
    """Else a query that stops early (a limit) crashes the process at its end, one time in three."""
    assert isinstance(_find_rows(Store.at(tables), DECISIONS).filesystem, SubTreeFileSystem)


def test_sql_counts_every_row_of_every_table_and_missing_tables_are_empty(ask: Any) -> None:
    query = " union all ".join(
        f"select '{spec.name}' as name, count(*) as n from {spec.name}" for spec in TABLES
    )
    counted = {row["name"]: row["n"] for row in ask("sql", query, "--json").objects}
    filled = {"decisions": 7, "outcomes": 2, "bundle_averages": 2, "broker_loads": 6}
    assert counted == {spec.name: 0 for spec in TABLES} | filled


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_every_table_has_its_columns_whether_it_exists_or_not(ask: Any, spec: TableSpec) -> None:
    assert (
        ask("sql", f"select * from {spec.name} limit 0", "--format", "csv").out.strip().split(",")
        == spec.schema.names
    )


def test_sql_writes_json_that_is_json_whatever_the_types(ask: Any) -> None:
    query = (
        "select 'nan'::double as a, [1, 2] as b, {'c': 1} as d, 1.5::decimal(4, 1) as e, date "
        "'2026-01-02' as f, true as g, null as h"
    )
    assert ask("sql", query, "--json").objects == [
        {"a": None, "b": [1, 2], "d": {"c": 1}, "e": 1.5, "f": "2026-01-02", "g": True, "h": None}
    ]


def test_sql_writes_csv_that_reads_back(ask: Any) -> None:
    result = ask(
        "sql",
        "select 'a,\"b\"' as x, [1, 2] as y union all select null, null order by x",
        "--format",
        "csv",
    )
    assert list(csv.reader(io.StringIO(result.out))) == [["x", "y"], ['a,"b"', "[1, 2]"], ["", ""]]


def test_a_narrow_result_is_a_table_and_a_wide_one_stands_upright(ask: Any) -> None:
    narrow = ask(
        "sql", "select kind, count(*) as n from decisions group by all order by kind"
    ).out.splitlines()
    assert [line.split() for line in narrow[0:1] + narrow[2:]] == [
        ["kind", "n"],
        ["assign", "3"],
        ["unload", "4"],
    ]
    wide = ask(
        "sql", "select * from broker_loads order by cluster, broker, seq limit 2"
    ).out.splitlines()
    assert len(wide) == 2 * (1 + len(BROKER_LOADS.schema))
    assert wide[0].startswith("-- 1 ---")
    assert wide[1].split() == ["cluster", "eu-1"]
    assert max(map(len, wide)) <= 80


def test_beside_each_table_a_view_has_its_times_as_timestamps(ask: Any) -> None:
    query = (
        "select epoch_ms(issued_at) = issued_ms as same, typeof(issued_at) as kind from "
        "decisions_at join decisions using (decision_id)"
    )
    assert {(row["same"], row["kind"]) for row in ask("sql", query, "--json").objects} == {
        (True, "TIMESTAMP")
    }
    for spec in TABLES:
        found = ask("sql", f"describe {spec.name}_at", "--json").objects
        told = ask("sql", "--describe", f"{spec.name}_at", "--json").objects
        assert [row["column_name"] for row in found] == [row["column"] for row in told], spec.name
        assert [row["column_name"] for row in found if row["column_type"] == "TIMESTAMP"] == [
            row["column"] for row in told if row["type"] == "TIMESTAMP"
        ]


def test_what_each_column_is_can_be_asked_without_tables(tmp_path: Path) -> None:
    rows = {
        row["column"]: row
        for row in lbctl("sql", "--describe", "outcomes", "--json", cwd=tmp_path).objects
    }
    assert list(rows) == OUTCOMES.schema.names
    assert rows["took_ms"] == {
        "column": "took_ms",
        "type": "BIGINT",
        "meaning": OUTCOMES.comment("took_ms"),
    }
    shown = lbctl("sql", "--describe", "outcomes_at", cwd=tmp_path)
    assert (
        shown.code == 0
        and re.search(rf"happened_at +TIMESTAMP +{OUTCOMES.comment('at_ms')}", shown.out)
        and "took_ms" in shown.out
    )
    wrong = lbctl("sql", "--describe", "outcome", cwd=tmp_path)
    assert (wrong.code, wrong.out) == (2, "") and "The tables:" in wrong.err
    check_wording(wrong.err)


def test_sql_reads_its_query_from_stdin(ask: Any) -> None:
    assert ask("sql", "-", "--json", stdin=b"select count(*) as n from outcomes").objects == [
        {"n": 2}
    ]


def test_nothing_but_json_is_on_stdout_even_when_nothing_is_found(ask: Any) -> None:
    assert ask("sql", "select * from refusals", "--json").out == ""
    assert ask("decisions", "--cluster", "nowhere", "--json").out == ""


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select owner from decisions", ['"owner"', "decisions has: decision_id, cluster, seq"]),
        (
            "select issued_ms from decisions_at",
            ["issued_ms", "decisions_at has: decision_id", "issued_at", "--describe decisions_at"],
        ),
        (
            "select * from decision",
            ["decision does not exist", "The tables:", "outcomes", "a view NAME_at"],
        ),
        ("select nonsense(kind) from decisions", ["nonsense", "decisions has:"]),
        ("selec 1", ["syntax error"]),
        ("select * from existing", ["existing does not exist"]),
    ],
)
def test_a_wrong_query_names_what_there_is(ask: Any, query: str, words: list[str]) -> None:
    result = ask("sql", query)
    assert (result.code, result.out) == (2, "")
    assert [word for word in words if word not in result.err] == []


@pytest.mark.parametrize(
    "query",
    [
        "copy decisions to 'made'",
        "copy (select 1) to 'made' (format parquet)",
        "export database 'made'",
        "attach 'made'",
        "install httpfs",
        "load 'made'",
        "select * from read_text('there')",
        "from read_csv('there')",
        "from glob('*')",
        "set enable_external_access = true",
        "pragma profiling_output = 'made'",
        "call enable_logging(storage = 'file', storage_path = 'made')",
    ],
)
def test_sql_neither_writes_a_file_nor_reads_one_that_is_no_table(
    ask: Any, tmp_path: Path, query: str
) -> None:
    (tmp_path / "there").write_text("secret")
    result = ask("sql", query)
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_table_with_column_mapping_is_read_under_its_logical_names(tmp_path: Path) -> None:
    """As delta-spark writes it with delta.columnMapping.mode = name: physical names in the Parquet
    files and the partition values."""
    table = tmp_path / "outcomes"
    (table / "_delta_log").mkdir(parents=True)
    (table / "part").mkdir()
    columns = [("bundle", "col-b"), ("cluster", "col-a"), ("outcome", "col-c")]
    columns += [
        (name, f"col-{name}")
        for name in OUTCOMES.schema.names
        if name not in ("bundle", "cluster", "outcome")
    ]
    nothing = {physical: ["", ""] for _, physical in columns[3:]}
    pq.write_table(
        pa.table({"col-b": [HOT, HOT], "col-c": ["confirmed", "expired"]} | nothing),
        table / "part" / "f.parquet",
    )
    fields = [
        {
            "name": name,
            "type": "string",
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": physical,
            },
        }
        for number, (name, physical) in enumerate(columns, start=1)
    ]
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["cluster"],
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": str(len(columns)),
        },
        "createdTime": NOW,
    }
    size = (table / "part" / "f.parquet").stat().st_size
    add = {
        "path": "part/f.parquet",
        "partitionValues": {"col-a": "eu-1"},
        "size": size,
        "modificationTime": NOW,
        "dataChange": True,
    }
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {"metaData": metadata},
        {"add": add},
    ]
    (table / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    rows = records(
        open_lake(Store.at(tmp_path)).execute(
            "select cluster, bundle, outcome from outcomes order by outcome"
        )
    )
    assert rows == [
        {"cluster": "eu-1", "bundle": HOT, "outcome": how} for how in ("confirmed", "expired")
    ]


# --- which tables ---


@pytest.mark.parametrize("command", [("brokers",), ("decisions",), ("sql", "select 1")])
def test_no_tables_yet_says_what_to_run(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = lbctl(*command, cwd=tmp_path)
    assert (result.code, result.out) == (1, "")
    check_wording(result.err)


def test_the_demos_tables_are_read_when_there_are_no_others_and_none_were_named(
    tmp_path: Path,
) -> None:
    demo = tmp_path / ".lb" / "demo" / "tables"
    fill(demo, OUTCOMES, [{"decision_id": "demo:1:0"}])
    query = ("sql", "select decision_id from outcomes", "--json")
    result = lbctl(*query, cwd=tmp_path)
    assert result.objects == [{"decision_id": "demo:1:0"}]
    check_wording(result.err)
    assert lbctl(*query, "--set", "stream.tables=elsewhere", cwd=tmp_path).code == 1
    fill(tmp_path / ".lb" / "tables", OUTCOMES, [{"decision_id": "own:1:0"}])
    own = lbctl(*query, cwd=tmp_path)
    assert (own.objects, own.err) == ([{"decision_id": "own:1:0"}], "")
