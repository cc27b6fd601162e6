"""What was split, merged or deleted, or ended with its broker, is no load on any screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lb_stream.contracts.tables import BUNDLE_AVERAGES, OWNERSHIP, ROUNDS
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import bundle_name, namespace_of, parse_bundle
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.operations.merge import Merge
from lb_stream.operations.split import Split
from lb_stream.query.health import Facts, JobFacts
from lb_stream.query.lake import find_ended_bundles, open_lake
from lb_stream.query.past.report_figures import load_cluster_figures
from lb_stream.query.screens import load_shares
from lb_stream.query.screens.lists import ListRequest
from lb_stream.sim import build_cluster
from lb_stream.store import Store
from tests.support.lbctl_runner import lbctl
from tests.support.recorded_tables import DEMO, START_MS, Recorder
from tests.support.sim_loop import ClosedLoop
from tests.support.table_rows import fill

NO_JOB = Facts(0, JobFacts("p"))


@pytest.fixture(scope="module")
def reshaped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorder, set[str]]:
    """A cluster of which a bundle has been split, and then its children have been merged again.

    Another one was split, and stays so. Then the names of those that are gone.
    """
    quiet = {"shedding_enabled": False, "split_enabled": False, "mode": "act"}
    settings = json.loads(json.dumps(dict(DEMO) | quiet))
    cluster = build_cluster(4, 32, "hot_spot", 1, START_MS, at_s=5.0)
    loop = ClosedLoop(cluster, settings, START_MS, Memory(epoch=1))
    recorder = Recorder(tmp_path_factory.mktemp("reshaped") / "tables", loop, settings)
    recorder.run(5)
    assert loop.view is not None
    throughput = loop.view.bundles.short.throughput
    heaviest, second = (
        loop.view.bundles.name(row) for row in throughput.argsort()[::-1][:2].tolist()
    )
    for name in (heaviest, second):
        namespace, _, bundle = name.rpartition("/")
        split = Split(id=name, namespace=namespace, bundle=bundle, algorithm="range_equally_divide")
        loop.commands.append(Received.from_command(split, loop.now_ms))
    recorder.run(5)
    parts = halves(second)
    ranges = [name.rpartition("/")[2] for name in parts]
    merge = Merge(id="merge", namespace=namespace_of(second), bundles=ranges)
    loop.commands.append(Received.from_command(merge, loop.now_ms))
    recorder.run(5)
    return recorder, {heaviest, *parts}


def halves(bundle: str) -> tuple[str, str]:
    namespace, lower, upper = parse_bundle(bundle)
    middle = lower + (upper - lower) // 2
    return bundle_name(namespace, lower, middle), bundle_name(namespace, middle, upper)


def test_what_was_split_or_merged_is_no_load_on_any_screen(
    reshaped: tuple[Recorder, set[str]],
) -> None:
    recorder, gone = reshaped
    view = recorder.loop.view
    assert view is not None
    owned = view.bundles.owner >= 0
    really = float(view.bundles.short.throughput[owned].sum())
    with open_lake(Store.at(recorder.root)) as lake:
        assert find_ended_bundles(lake, "demo") == gone
        listed = load_shares.list_bundles(lake, "demo", ListRequest())
        assert listed.total == owned.sum() and all(row["owner"] for row in listed.rows)
        for by in ("namespace", "tenant"):
            groups = load_shares.list_groups(lake, "demo", by, ListRequest()).rows
            assert sum(row["bytes_per_s"] for row in groups) == pytest.approx(really)
        for name in gone:
            namespace = namespace_of(name)
            rows = view.bundles.rows_of_namespace(namespace)
            share = view.bundles.short.throughput[rows][owned[rows]].sum() / really
            whole = load_shares.find_group(lake, "demo", namespace=namespace)
            assert whole is not None and whole["share"] == pytest.approx(share)
            assert load_shares.find_bundle_load(lake, "demo", name) is None
        now_ms = recorder.loop.now_ms
        heaviest = load_cluster_figures(lake, "demo", now_ms, now_ms, 5, NO_JOB).bundles
        assert not gone & {row["bundle"] for row in heaviest}
    for name in gone:
        told = lbctl(
            *("namespaces", "bundles", namespace_of(name), "--json"),
            *("--set", f"stream.tables={recorder.root}"),
            cwd=recorder.root,
        )
        assert told.code == 0 and "unowned" not in told.out and name not in told.out


def test_the_core_and_the_screens_agree_on_what_is_gone(
    reshaped: tuple[Recorder, set[str]],
) -> None:
    recorder, gone = reshaped
    kept = recorder.loop.view
    assert kept is not None
    seen = recorder.rounds[-1].view.bundles
    rows = seen.rows_of(gone)
    assert (kept.bundles.short.throughput[kept.bundles.rows_of(gone)] > 0).all(), (
        "averages are kept"
    )
    idle = {
        name
        for name, load in zip(seen.names.to_pylist(), seen.short.throughput, strict=True)
        if not load
    }
    assert idle == gone
    assert not seen.topics[rows].any() and not seen.sessions[rows].any()


def test_deleted_namespaces_and_what_ended_with_its_broker_are_no_load(tmp_path: Path) -> None:
    memory = Memory(dead=("b2:80",), operator_state=OperatorState(deleted=("shop/old",)))
    inputs = {"cluster": "eu", "log_seq": 1, "seq": 1, "now_ms": 1, "inputs": '{"settings": {}}'}
    fill(tmp_path, ROUNDS, [inputs | {"memory": memory.to_json()}])
    bundles = {
        "shop/old/0x00000000_0xffffffff": None,  # its namespace is deleted
        "shop/new/0x00000000_0xffffffff": None,  # on its way
        "shop/app/0x00000000_0x80000000": "b2:80",  # waits for another broker
        "shop/app/0x80000000_0xffffffff": "b1:80",
        "shop/gone/0x00000000_0xffffffff": None,  # its record says that it is deleted
        "pulsar/eu/b2:80/0x00000000_0xffffffff": "b2:80",
        "pulsar/eu/b1:80/0x00000000_0xffffffff": "b1:80",
    }
    of = {"cluster": "eu", "owner_since_ms": 5, "part": "00", "topics": 1}
    rows = [of | {"bundle": name, "owner": owner} for name, owner in bundles.items()]
    fill(tmp_path, BUNDLE_AVERAGES, rows)
    record = {"cluster": "eu", "bundle": "shop/gone/0x00000000_0xffffffff", "state": "Deleted"}
    fill(tmp_path, OWNERSHIP, [record])
    with open_lake(Store.at(tmp_path)) as lake:
        assert {name.split("/0x")[0] for name in find_ended_bundles(lake, "eu")} == {
            "shop/old",
            "shop/gone",
            "pulsar/eu/b2:80",
        }
        assert load_shares.list_bundles(lake, "eu", ListRequest()).total == 4
