"""Which brokers a policy's expressions match, and what is said of those that match none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lb_stream.core.commands.responder import Received
from lb_stream.core.filters import domains_of
from lb_stream.core.model.policies import IsolationPolicy, Policies, matching
from lb_stream.operations.set_policies import SetPolicies
from lb_stream.settings.resolve import cluster_config
from lb_stream.sim.scenario.scenario import ScenarioIsolation, ScenarioPolicies
from lb_stream.sim.simulation.commands import build_first_commands
from tests.support.scenario import Cluster

BROKERS = ("broker-1:8080", "broker-1:8081", "broker-10:8080", "[::1]:8080")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("broker-1", ["broker-1:8080", "broker-1:8081"]),
        ("broker-1:8080", ["broker-1:8080"]),
        (r"broker-1:808\d", ["broker-1:8080", "broker-1:8081"]),
        (".*:8080", ["broker-1:8080", "broker-10:8080", "[::1]:8080"]),
        (r"broker-\d", ["broker-1:8080", "broker-1:8081"]),
        (r"\[::1\]:8080", ["[::1]:8080"]),
        (r"broker-1.*0", ["broker-10:8080"]),  # without a colon it is about hosts
        ("broker-1:80", []),
        ("http://broker-1:8080", []),
    ],
)
def test_an_expression_matches_a_whole_host_or_with_a_colon_a_whole_name(
    pattern: str, found: list[str]
) -> None:
    assert matching(pattern, BROKERS) == found
    policy = IsolationPolicy(("t/n",), (pattern,))
    assert [broker for broker in BROKERS if policy.is_primary(broker)] == found


def test_the_answer_to_a_policy_counts_live_brokers_and_warns_of_none() -> None:
    cluster = Cluster()
    brokers = "brokers b-1:1=0.1 b-1:2=0.1 b-2:1=0.1 b-3:1=0.1"
    for line in (brokers, "round", "goodbye b-3:1", "wait 3600s", "round"):
        list(cluster.do(line))
    policy = {"name": "p", "namespaces": ["t/n"], "primary": ["b-1", "b-3:1"]}
    given = {
        "isolation": [policy | {"secondary": ["b-1:2"]}],
        "failure_domains": {"b-1": "east", "b-3:1": "west"},
    }
    command = SetPolicies.model_validate({"id": "c1"} | given)
    cluster.commands.append(Received.from_command(command, cluster.now_ms))
    (answer,) = [line for line in cluster.do("round") if line.startswith("set-policies")]
    assert answer.endswith(
        "; warning: p: primary 'b-3:1' matches none of 3 live brokers (b-1:1, b-1:2, b-2:1)"
        "; warning: failure domains name b-3:1, which are not alive"
        "; p: primary 'b-1' matches 2 of 3 live brokers"
        "; p: secondary 'b-1:2' matches 1 of 3 live brokers"
    )


def test_a_failure_domain_is_a_brokers_or_its_hosts() -> None:
    cluster = Cluster()
    for line in ("brokers b-1:1=0.1 b-1:2=0.1 b-2:1=0.1", "round"):
        list(cluster.do(line))
    view = cluster._next_view(cluster_config({}))
    domains = domains_of(
        replace(view, policies=Policies(failure_domains={"b-1": "x", "b-1:2": "y"}))
    )
    assert domains is not None and len(set(domains.tolist())) == 3


def test_a_scenario_tells_brokers_of_one_host_apart() -> None:
    brokers = ("b-1:1", "b-1:2")
    rules = ScenarioPolicies(isolation=(ScenarioIsolation("p", ("t/n",), (1,), (), 1),))
    (order,) = build_first_commands(rules, brokers)
    (policy,) = order.record["isolation"]
    assert [matching(pattern, brokers) for pattern in policy["primary"]] == [["b-1:2"]]
