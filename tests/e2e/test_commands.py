"""Every command of `lbctl` against a running job whose simulated brokers obey: answered, done,
logged, and replayed to the byte."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lb_stream.agent import Agent, AgentConfig
from lb_stream.contracts.settings import TopicSettings
from lb_stream.core.model.names import parse_bundle
from lb_stream.io.lookup import Lookup, LookupConfig
from lb_stream.kit.embedded_kafka import EmbeddedKafka
from lb_stream.sim import SimBroker, build_cluster
from lb_stream.sim.brokers import wall_clock_ms
from tests.e2e.operator import CLUSTER, Operator
from tests.e2e.pipeline import Pipeline, wait_until
from tests.support.pages import blocks, lines, words

pytestmark = [pytest.mark.jvm, pytest.mark.e2e]

A, B, C = "broker-1:8080", "broker-2:8080", "broker-3:8080"
NAMESPACE, RANGE = "shop/app-01", "0x00000000_0x40000000"
"""The first bundle: it is A's."""
SETTINGS = {
    "shedding_enabled": "false",
    "split_enabled": "false",
    "namespace_default_bundles": 2,
    "stream.tick_interval_ms": 500,
    "stream.keep_views": 2_000,
}


@pytest.fixture
def operator(
    kafka: EmbeddedKafka, topic_names: TopicSettings, tmp_path: Path
) -> Iterator[Operator]:
    run = Pipeline(kafka.bootstrap, topic_names, tmp_path, SETTINGS)
    run.create_topics(reports=2, decisions=2, ownership=2)
    cluster = build_cluster(3, 12, "steady", start_ms=wall_clock_ms())
    config = AgentConfig(
        kafka.bootstrap,
        CLUSTER,
        topic_names.reports,
        topic_names.decisions,
        topic_names.ownership,
        1.0,
        heartbeat_interval_s=2.0,
    )
    agent = Agent(config, [SimBroker(cluster, name) for name in cluster.brokers])
    with run.running():
        agent.start()
        try:
            wait_until(lambda: run.table("broker_loads").num_rows >= 3, "the first round")
            yield Operator(run, cluster)
        finally:
            agent.stop()


def watch_then_enable(operator: Operator) -> None:
    """A cluster is only watched until it is enabled."""
    done, rows = operator.done, operator.rows
    assert [row["dry_run"] for row in rows("clusters", "list")] == [True]
    assert done("namespaces", "unload", NAMESPACE, "-b", RANGE, "-d", B).startswith(
        "dry run, nothing is published"
    )
    assert "published from now on" in done("clusters", "enable", CLUSTER)
    assert operator.run.decisions() == []


def unload(operator: Operator) -> None:
    """Unloads: to a destination, to anybody, of a namespace; and what can't be."""
    ctl, done, refused, rows, cluster = (
        operator.ctl,
        operator.done,
        operator.refused,
        operator.rows,
        operator.cluster,
    )
    assert "reports show it" in done(
        "namespaces", "unload", NAMESPACE, "-b", RANGE, "-d", f"http://{B}"
    )
    assert cluster.owns(B, f"{NAMESPACE}/{RANGE}")
    assert "inactive_destination" in refused(
        "namespaces", "unload", NAMESPACE, "-b", RANGE, "-d", "nobody:1"
    )
    assert "destination_is_owner" in refused(
        "namespaces", "unload", NAMESPACE, "-b", RANGE, "-d", B
    )
    assert "unknown_namespace" in refused("namespaces", "unload", "shop/none")
    assert ctl("namespaces", "unload", NAMESPACE, "-d", B).code == 2
    assert done("namespaces", "unload", NAMESPACE).startswith("4 of 4 bundles leave their brokers")
    wait_until(
        lambda: {row["state"] for row in rows("namespaces", "bundles", NAMESPACE)} == {"Owned"},
        "all bundles to be owned",
    )
    assert len(rows("namespaces", "bundles", NAMESPACE)) == 4


def split(operator: Operator) -> None:
    """Splits, and a merge of what was split."""
    done, refused, cluster = operator.done, operator.refused, operator.cluster
    before = set(cluster.bundles)
    done("namespaces", "split", NAMESPACE, "-b", "LARGEST")
    assert len(cluster.bundles) == len(before) + 1
    whole = min(set(cluster.bundles) & before)
    _, lower, upper = parse_bundle(whole)
    here = (whole.rpartition("/")[0], "-b", whole.rpartition("/")[2])
    boundary = lower + (upper - lower) // 4
    done("namespaces", "split", *here, "-san", "specified_positions_divide", "-sb", hex(boundary))
    parts = f"0x{lower:08x}_0x{boundary:08x}", f"0x{boundary:08x}_0x{upper:08x}"
    assert {f"{here[0]}/{part}" for part in parts} <= set(cluster.bundles)
    done("namespaces", "merge", here[0], "-b", parts[0], "-b", parts[1])
    assert whole in cluster.bundles and f"{here[0]}/{parts[0]}" not in cluster.bundles
    assert "not_adjacent" in refused("namespaces", "merge", here[0], "-b", here[2], "-b", here[2])
    assert "precondition_failed" in refused(
        "namespaces", "split", NAMESPACE, "-bt", "HOT", "-san", "in_three"
    )


def settings(operator: Operator) -> None:
    """Dynamic settings, in both spellings."""
    done, refused, rows = operator.done, operator.refused, operator.rows
    done("config", "set", "loadBalancerSheddingIntervalMinutes", "2")
    done("config", "set", "loadManagerClassName", "extensible")
    assert "setting" in refused("config", "set", "loadManagerClassName", "org.example.None")
    assert "setting" in refused("config", "set", "loadBalancerEnabled", "false")
    assert {row["setting"]: row["value"] for row in rows("config", "overrides")} == {
        "dry_run": False,
        "loadBalancerSheddingIntervalMinutes": "2",
        "loadManagerClassName": "extensible",
    }
    done("config", "unset", "loadManagerClassName")
    done("clusters", "limit", CLUSTER, "--in-flight-per-broker", "50")


def namespaces(operator: Operator) -> None:
    """Namespaces and policies."""
    done, refused, rows, cluster = operator.done, operator.refused, operator.rows, operator.cluster
    assert done("namespaces", "create", "shop/new") == "shop/new has 2 bundles"
    wait_until(
        lambda: all(row["owner"] for row in rows("namespaces", "bundles", "shop/new")),
        "the new bundles to be owned",
    )
    assert "namespace_exists" in refused("namespaces", "create", "shop/new", "--bundles", "4")
    done("namespaces", "set-policies", "shop/new", "--anti-affinity-group", "apart")
    done(
        "namespaces",
        "set-policies",
        "--isolation",
        "only-a",
        "--namespaces",
        "shop/new",
        "--primary",
        "broker-1",
    )
    done("namespaces", "unload", "shop/new")
    wait_until(
        lambda: {row["owner"] for row in rows("namespaces", "bundles", "shop/new")} == {A},
        "the isolated namespace to be at broker-1",
    )
    done("namespaces", "set-policies", "--remove-isolation", "only-a")
    done("namespaces", "delete", "shop/new")
    wait_until(
        lambda: not any(name.startswith("shop/new/") for name in cluster.owned(A)),
        "the deleted namespace to leave",
    )
    (operator.run.folder / "more.json").write_text(
        json.dumps({"namespaces": [{"name": "shop/idle", "boundaries": [0, 7, 0xFFFFFFFF]}]})
    )
    assert done("namespaces", "import", "more.json").startswith("1 namespaces with 2 bundles")


def lookups(operator: Operator) -> None:
    """Bundles that wait for a client's lookup: it asks for an owner, and soon answers with it."""
    done, topics, topic = operator.done, operator.run.topics, "persistent://shop/lazy/first"
    done("config", "set", "assign_unowned", "on_lookup")
    done("namespaces", "create", "shop/lazy")
    with Lookup(
        LookupConfig(operator.run.bootstrap, topics.ownership, topics.commands, topics.results)
    ) as lookup:
        first = lookup.find(topic, CLUSTER)
        assert (first.broker, first.owner_request is not None) == (None, True)
        wait_until(
            lambda: lookup.find(topic, CLUSTER).state == "Owned",
            "the bundle that was looked up to be owned",
        )
        found = lookup.find(topic, CLUSTER)
        assert operator.cluster.owns(found.broker or "", found.bundle or "")
    served = [
        name
        for broker in operator.cluster.brokers
        for name in operator.cluster.owned(broker)
        if name.startswith("shop/lazy/")
    ]
    assert served == [found.bundle], "nobody has looked up the other one"
    done("config", "unset", "assign_unowned")


def brokers_and_clusters(operator: Operator) -> None:
    """Brokers and clusters."""
    done, refused, rows, cluster = operator.done, operator.refused, operator.rows, operator.cluster
    assert "unknown_broker" in refused("brokers", "drain", "nobody:1")
    assert done("brokers", "drain", C) == f"{C} has no bundle any more, and none is moving to it"
    assert not cluster.owned(C)
    assert [row["drained"] for row in rows("clusters", "list")] == [[C]]
    done("brokers", "undrain", C)
    plan(operator)
    done("clusters", "pause", CLUSTER)
    assert [row["paused"] for row in rows("clusters", "list")] == [True]
    done("clusters", "resume", CLUSTER)
    assert "not published" in done("clusters", "disable", "--all-clusters")
    done("clusters", "enable", "--id", "off-1")
    done("clusters", "disable", CLUSTER)
    assert "published" in done("clusters", "enable", "--id", "off-1"), (
        "a command that is sent again is answered again"
    )
    assert [row["dry_run"] for row in rows("clusters", "list")] == [True], "and not done again"


def plan(operator: Operator) -> None:
    """The best next moves, done by hand: a broker that was drained is empty, and takes bundles
    again."""
    ctl, rows, cluster = operator.ctl, operator.rows, operator.cluster
    wait_until(lambda: rows("plan")[0]["moves"], "moves to the empty broker")
    result = ctl("plan", "--apply", "--yes", "--json")
    *answers, planned = result.objects
    assert result.code == 0 and [
        answer["outcome"] for answer in answers if answer["outcome"] != "accepted"
    ] == ["done"] * len(planned["moves"]), result
    assert planned["moves"][0]["to"] == C and C not in {move["from"] for move in planned["moves"]}
    assert planned["max_over_even_after"] < planned["max_over_even_before"]
    assert all(cluster.owns(one["to"], one["bundle"]) for one in planned["moves"])


def questions(operator: Operator) -> None:
    """Who leads, who has a topic."""
    rows, cluster = operator.rows, operator.cluster
    (leader,) = rows("leader")
    assert leader["epoch"] == 1 and leader["host"]
    (found,) = rows("lookup", f"persistent://{NAMESPACE}/some-topic")
    assert cluster.owns(found["owner"], found["bundle"])


def unreadable(operator: Operator) -> None:
    """What can't be read is answered, too."""
    operator.send({"id": "odd-1", "kind": "fly"})
    operator.send(
        {"id": "odd-2", "kind": "unload", "namespace": "shop/app-01", "destination": "b:1"}
    )
    operator.send({"id": "odd-3", "kind": "pause-cluster", "schema_version": 99})
    operator.send({"id": "odd-4", "kind": "pause-cluster"}, key="nowhere")
    wait_until(
        lambda: all(operator.answers(f"odd-{number}") for number in (1, 2, 3, 4)), "the answers"
    )
    assert [operator.answers(f"odd-{number}") for number in (1, 2, 3)] == [
        [("refused", "unreadable")]
    ] * 3
    assert operator.answers("odd-4") == [("refused", "unknown_cluster")]


def tables(operator: Operator) -> None:
    """Everything is in the tables: who, when, what came of it."""
    rows = operator.rows
    told = operator.run.table("commands").to_pylist()
    assert {row["outcome"] for row in told} == {"done", "accepted", "refused"}
    assert all(row["by"] and row["at_ms"] for row in told if not row["id"].startswith("odd"))
    assert operator.answers("off-1") == [("done", None)]
    decided = {row["decision_id"]: row for row in operator.run.table("decisions").to_pylist()}
    assert {row["reason"] for row in decided.values()} <= {"Admin", "Unowned"}
    assert {name for row in told for name in row["decision_ids"]} <= set(decided)
    assert len(rows("commands", "--last", "100")) == len(
        {(row["cluster"], row["id"]) for row in told}
    )


def replay(operator: Operator) -> None:
    """And what was decided on them can be decided once more, to the byte."""
    rows = operator.rows
    results = [row["result"] for row in rows("replay")]
    assert len(results) > 20 and set(results) == {"equal"}


def test_every_command_is_answered_done_and_in_the_tables(operator: Operator) -> None:
    watch_then_enable(operator)
    unload(operator)
    split(operator)
    settings(operator)
    namespaces(operator)
    lookups(operator)
    brokers_and_clusters(operator)
    questions(operator)
    unreadable(operator)
    tables(operator)
    replay(operator)


PAGE = "docs/commands.md"


def test_every_command_of_the_page_runs_as_printed(
    operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page from its top to its end, with ids of this run in the place of its own."""
    operator.done("clusters", "enable", CLUSTER)
    operator.done("namespaces", "create", "shop/orders", "--bundles", "4")
    first = f"shop/orders/{RANGE}"
    wait_until(lambda: any(operator.cluster.owns(name, first) for name in (A, B, C)), "an owner")
    if not operator.cluster.owns(A, first):
        operator.done("namespaces", "unload", "shop/orders", "-b", RANGE, "-d", A)
    for line in (line for block in blocks(PAGE) for line in lines(block)):
        match words(line):
            case ["lbctl", "undo", name]:
                arguments = ["undo", id_of(operator, ":" in name)]
            case ["lbctl", *arguments]:
                pass
        result = operator.ctl(*arguments, stdin=b"y\n")
        assert result.code == 0, (line, result)
    assert operator.cluster.owned(C), "the drain was undone"
    (code,) = blocks("docs/lookups.md", "python")
    topics = operator.run.topics
    names = operator.run.bootstrap, topics.ownership, topics.commands, topics.results
    assert '"kafka-1:9092"' in code
    here = code.replace('"kafka-1:9092"', ", ".join(map(repr, names)))
    capsys.readouterr()
    exec(compile(here, "docs/lookups.md", "exec"), {})
    assert capsys.readouterr().out.strip() in (A, B, C)


def id_of(operator: Operator, decision: bool) -> str:
    """Of the newest unload that an operator has ordered, or of the newest drain."""
    if decision:
        decided = operator.rows("decisions", "--last", "50")
        return str([row["decision_id"] for row in decided if row["rule"] == "unload_command"][-1])
    commands = operator.rows("commands", "--last", "50")
    return str([row["id"] for row in commands if row["kind"] == "drain-broker"][-1])
