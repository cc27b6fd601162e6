"""Grants: to whom, of which verbs, on what; and the file that holds them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.access.rights import (
    Principal,
    Rights,
    RightsError,
    matches,
    parse_rights,
)
from lb_stream.contracts.verbs import BUILT_IN_ROLES, VERBS, RequiredRight
from lb_stream.core.commands.base import Operation, operations

KEY = "3f1c22a09b7d4e10"
FILE = f"""
[roles.shopkeeper]
verbs = ["move", "pin"]

[[grants]]  # those on call
to = ["alice", "group:on-call", "key:{KEY}"]
role = "operator"
clusters = ["eu-*", "!eu-9"]

[[grants]]
to = ["shop-*"]
role = "shopkeeper"
namespaces = ["shop/*"]

[[grants]]
to = ["bob"]
verbs = ["drain", "capacity"]
brokers = ["broker-1*", "other.eu:8080"]

[[grants]]
to = ["root"]
role = "admin"

[[grants]]
to = ["carol"]
verbs = ["capacity"]
brokers = ["*1"]
"""
RIGHTS = parse_rights(FILE, "rights.toml")


def place_of(name: str, cluster: str, right: RequiredRight, **more: Any) -> int | None:
    """Return the line of the grant that gives a right; None: none does."""
    grant = RIGHTS.find_grant(Principal(name, **more), cluster, right)
    return None if grant is None else int(grant.place.rpartition(" ")[2])


DRAIN = RequiredRight("drain", "broker-3.eu:8080")
MOVE = RequiredRight("move", namespace="shop/orders")


@pytest.mark.parametrize(
    ("name", "more", "cluster", "right", "line"),
    [
        ("alice", {}, "eu-1", DRAIN, 5),
        ("alice", {}, "us-1", DRAIN, None),
        ("alice", {}, "eu-9", DRAIN, None),
        ("alice", {}, "eu-1", RequiredRight("settings"), None),
        ("eve", {"groups": frozenset({"on-call"})}, "eu-1", DRAIN, 5),
        ("eve", {"key_id": KEY}, "eu-1", DRAIN, 5),
        ("eve", {"key_id": KEY[::-1]}, "eu-1", DRAIN, None),
        # a sender's name is neither a group nor a key
        ("group:on-call", {}, "eu-1", DRAIN, None),
        (f"key:{KEY}", {}, "eu-1", DRAIN, None),
        ("on-call", {}, "eu-1", DRAIN, None),
        ("", {}, "eu-1", DRAIN, None),
        ("Alice", {}, "eu-1", DRAIN, None),
        # a namespace's operator moves its bundles, and drains no broker
        ("shop-1", {}, "us-1", MOVE, 10),
        ("shop-1", {}, "us-1", RequiredRight("move", "b:1", "shop/orders"), 10),
        ("shop-1", {}, "us-1", RequiredRight("move", namespace="shops/orders"), None),
        ("shop-1", {}, "us-1", RequiredRight("move"), None),
        ("shop-1", {}, "us-1", DRAIN, None),
        # a pattern without a colon is one of hosts
        ("bob", {}, "us-1", RequiredRight("drain", "broker-12.eu:8080"), 15),
        ("bob", {}, "us-1", RequiredRight("drain", "other.eu:8080"), 15),
        ("bob", {}, "us-1", RequiredRight("drain", "other.eu:8081"), None),
        ("bob", {}, "us-1", RequiredRight("drain"), None),
        ("bob", {}, "us-1", RequiredRight("capacity", "broker-1[12]*"), 15),
        ("bob", {}, "us-1", RequiredRight("capacity", "broker-*"), None),
        ("bob", {}, "us-1", RequiredRight("capacity", "broker-?"), None),
        # ports are no part of a host, even as a pattern
        ("carol", {}, "us-1", RequiredRight("capacity", "broker-1:*"), 24),
        ("carol", {}, "us-1", RequiredRight("capacity", "*:*1"), None),
        ("root", {}, "anywhere", RequiredRight("forget"), 20),
    ],
)
def test_a_right_is_given_by_the_first_grant_that_covers_it(
    name: str, more: dict[str, Any], cluster: str, right: RequiredRight, line: int | None
) -> None:
    assert place_of(name, cluster, right, **more) == line


def test_a_file_without_grants_gives_nothing() -> None:
    assert parse_rights("").find_missing(Principal("root"), "eu", [RequiredRight("pause")])


LETTERS = st.text("ab:*", max_size=6)


@given(LETTERS, LETTERS)
def test_a_pattern_matches_as_a_shells_pattern_does(pattern: str, text: str) -> None:
    assert matches(pattern, text) == fnmatchcase(text, pattern)


@given(LETTERS, st.text("ab?[]*", max_size=6), st.text("ab", max_size=6))
def test_what_covers_a_pattern_matches_all_that_the_pattern_matches(
    pattern: str, covered: str, text: str
) -> None:
    """So that capacities of `broker-*` need a right on all brokers that this may mean."""
    if matches(pattern, covered) and fnmatchcase(text, covered):
        assert matches(pattern, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[grants]", "rights.toml: "),
        ("[[grants]]\nto = ['a']", "line 1: grant: expected either role or verbs"),
        (
            "\n[[grants]]\nto = ['a']\nrole = 'operator'\nverbs = ['move']",
            "line 2: grant: expected either role or verbs",
        ),
        ("[[grants]]\nto = []\nrole = 'admin'", "line 1: to: expected list should have at least"),
        ("[[grants]]\nto = ['key:abc']\nrole = 'admin'", "to.0 = key:abc: expected key: and"),
        ("[[grants]]\nto = ['group:']\nrole = 'admin'", "to.0 = group:: expected a user"),
        ("[[grants]]\nto = ['a']\nrole = 'boss'", "role = boss: expected one of viewer, oper"),
        (
            "[[grants]]\nto = ['a']\nverbs = ['drian']",
            "line 1: verbs.0 = drian: expected one of approve, ",
        ),
        (
            "[[grants]]\nto = ['a']\nverbs = ['move']\nnamespaces = ['shop']",
            "namespaces.0 = shop: expected tenant/namespace",
        ),
        (
            "[[grants]]\nto = ['a']\nverbs = ['move']\nbrokers = ['http://b']",
            "brokers.0 = http://b: expected host:port or a host",
        ),
        (
            "[[grants]]\nto = ['a']\nverbs = ['move']\nbrokers = ['b-?']",
            "brokers.0 = b-?: expected a name, in which * stands for any text",
        ),
        (
            "[[grants]]\nto = ['a']\nverbs = ['move']\nclusters = ['!eu']",
            "grant: expected a pattern of clusters beside those after !",
        ),
        ("[[grants]]\nto = ['a']\nverbs = ['move']\ntopics = []", "topics: there is no such"),
        ("[roles.admin]\nverbs = []", "roles.admin: expected another name"),
        ("[rolls]", "rolls: there is no such field"),
    ],
)
def test_an_error_of_the_file_names_line_field_value_and_what_was_expected(
    text: str, words: str
) -> None:
    with pytest.raises(RightsError, match=re.escape(words)):
        parse_rights(text, "rights.toml")


def test_a_grant_without_a_line_of_its_own_is_named_by_its_number() -> None:
    rights = parse_rights("grants = [{to = ['a'], role = 'admin'}]", "rights.toml")
    assert rights.grants[0].place == "rights.toml, grant 1"


# --- all commands and roles ---

BROKER, NAMESPACE = "b-1:8080", "shop/orders"
EXAMPLES: dict[str, dict[str, Any]] = {
    "approve-proposals": {"proposals": ["eu:1:p0"]},
    "assign": {"namespace": NAMESPACE, "bundle": "0x00000000_0x40000000"},
    "create-namespace": {"namespace": NAMESPACE},
    "declare-dead": {"broker": BROKER},
    "delete-config": {"key": "mode"},
    "delete-namespace": {"namespace": NAMESPACE},
    "drain-broker": {"broker": BROKER},
    "dry-run": {"on": True},
    "forget-cluster": {},
    "import-namespaces": {"content": {"namespaces": []}},
    "merge": {"namespace": NAMESPACE, "advised": 1},
    "pause-cluster": {},
    "pin-bundles": {"bundles": [f"{NAMESPACE}/0x00000000_0x40000000"], "for_ms": 1},
    "reject-proposals": {"proposals": ["eu:1:p0"], "why": "no", "for_ms": 1},
    "resume-cluster": {},
    "rollout-abort": {},
    "rollout-next": {"broker": BROKER},
    "rollout-pause": {},
    "rollout-resume": {},
    "rollout-settle": {"broker": BROKER},
    "rollout-start": {"in_order": [BROKER]},
    "set-capacity": {"broker": BROKER, "cpu_cores": 4},
    "set-config": {"values": {"mode": "act"}},
    "set-policies": {"anti_affinity": {NAMESPACE: "g"}},
    "split": {"namespace": NAMESPACE, "bundle": "LARGEST"},
    "undrain-broker": {"broker": BROKER},
    "unload": {"namespace": NAMESPACE},
}
LIMITED = parse_rights(
    "".join(
        f"[[grants]]\nto = ['{role}-{kind}']\nrole = '{role}'\n{limits}\n"
        for role in BUILT_IN_ROLES
        for kind, limits in (
            ("all", ""),
            ("cluster", "clusters = ['own']"),
            ("broker", f"brokers = ['{BROKER}']"),
            ("namespace", f"namespaces = ['{NAMESPACE}']"),
        )
    )
)


def example(model: type[Operation]) -> Operation:
    return model(id="c1", **EXAMPLES[model.spec.kind])


@pytest.mark.parametrize("model", operations(), ids=lambda model: model.spec.kind)
@pytest.mark.parametrize("role", BUILT_IN_ROLES)
def test_a_role_may_send_a_command_where_all_that_it_concerns_is_granted(
    model: type[Operation], role: str
) -> None:
    rights = example(model).required_rights()
    has_verbs = all(right.verb in BUILT_IN_ROLES[role] for right in rights)
    own_broker = all(right.broker == BROKER for right in rights)
    own_namespace = all(right.namespace == NAMESPACE for right in rights)
    expected = {
        ("all", "own"): has_verbs,
        ("all", "other"): has_verbs,
        ("cluster", "own"): has_verbs,
        ("cluster", "other"): False,
        ("broker", "own"): has_verbs and own_broker,
        ("namespace", "own"): has_verbs and own_namespace,
    }
    assert {
        (kind, cluster): LIMITED.find_missing(Principal(f"{role}-{kind}"), cluster, rights) is None
        for kind, cluster in expected
    } == expected


CONCERNS = {
    "declare-dead": "b",
    "drain-broker": "b",
    "rollout-next": "b",
    "rollout-settle": "b",
    "rollout-start": "b",
    "set-capacity": "b",
    "undrain-broker": "b",
    "assign": "n",
    "create-namespace": "n",
    "delete-namespace": "n",
    "merge": "n",
    "pin-bundles": "n",
    "set-policies": "n",
    "split": "n",
    "unload": "n",
}
"""The commands that concern one broker (b) or one namespace (n); all others a whole cluster."""


@pytest.mark.parametrize("model", operations(), ids=lambda model: model.spec.kind)
def test_a_command_requires_its_verb_on_what_it_concerns(model: type[Operation]) -> None:
    first = example(model).required_rights()[0]
    concerns = CONCERNS.get(model.spec.kind)
    assert first == RequiredRight(
        model.spec.verb,
        BROKER if concerns == "b" else "*",
        NAMESPACE if concerns == "n" else "*",
    )


@pytest.mark.parametrize(
    ("kind", "fields", "required"),
    [
        ("declare-dead", {}, ["declare-dead"]),
        ("rollout-next", {}, ["rollout"]),
        ("rollout-start", {"of": ["b-1.*"]}, ["rollout"]),
        ("rollout-start", {"canary": BROKER}, ["rollout"]),
        ("drain-broker", {"broker": f"http://{BROKER}"}, [f"drain {BROKER}"]),
        ("set-capacity", {"broker": "b-*", "unset": True}, ["capacity b-*"]),
        # a bracket of a grant's pattern would be found in the pattern's own
        ("set-capacity", {"broker": "b[-eu-]1", "unset": True}, ["capacity b*1"]),
        (
            "unload",
            {"namespace": NAMESPACE, "bundle": "0x00000000_0x40000000", "destination": BROKER},
            [f"move {NAMESPACE} {BROKER}"],
        ),
        (
            "set-policies",
            {
                "anti_affinity": {"a/b": None},
                "failure_domains": {BROKER: "east"},
                "remove_isolation": ["p"],
            },
            [f"policies {BROKER}", "policies a/b", "policies"],
        ),
        ("import-namespaces", EXAMPLES["import-namespaces"], ["namespaces", "policies"]),
        (
            "pin-bundles",
            {"bundles": ["a/b/0x0_0x1", "a/b/0x1_0x2", "c/d/0x0_0x1"], "for_ms": 0},
            ["pin a/b", "pin c/d"],
        ),
    ],
)
def test_a_command_about_several_things_requires_the_right_on_each(
    kind: str, fields: dict[str, Any], required: list[str]
) -> None:
    (model,) = (model for model in operations() if model.spec.kind == kind)
    command = model(id="c1", **fields)
    assert [right.describe() for right in command.required_rights()] == required


def test_each_verb_is_one_of_a_command_and_each_role_has_those_of_the_roles_before_it() -> None:
    assert {model.spec.verb for model in operations()} == set(VERBS)
    viewer, operator, admin = BUILT_IN_ROLES.values()
    assert viewer < operator < admin == set(VERBS)


def test_rights_of_no_file_are_those_of_nobody() -> None:
    assert Rights().grants_to(Principal("root"), "eu") == []
