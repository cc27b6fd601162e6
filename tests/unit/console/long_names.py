"""A site whose names are as long and as odd as they may be, and the addresses of all its pages.

Two clusters have brokers of the same names; some names are written from right to left, and some
have combining characters.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic_core import PydanticUndefined

from lb_stream.console.address import link
from lb_stream.console.command_forms import COMMAND_FORMS
from lb_stream.console.routes import SCREENS
from lb_stream.contracts.decisions import example_decision
from lb_stream.contracts.tables import (
    AUDIT,
    BROKER_LOADS,
    COMMANDS,
    DECISIONS,
    PROPOSALS,
    ROUNDS,
)
from lb_stream.core.model.memory import Memory, Pending, Proposal, Suspension
from lb_stream.core.model.operator_state import RejectedProposal
from lb_stream.core.model.rollout import BrokerProgress
from lb_stream.query.lake import open_lake, records, run
from lb_stream.store import Store
from tests.support.table_rows import NOW, decided, fill, load
from tests.unit.console.site import add_rollout, fleet

CLUSTER, OTHER = "eu-1", "eu-1-" + "staging" * 24
BROKER = "pulsar-" + "broker" * 28 + ".eu:8080"
RIGHT_TO_LEFT = "שרת-ראשי-" + "א" * 60 + ":8080"
COMBINING = "b\u0301r\u0308o\u0302k\u0323e\u030ar" * 12 + ":8080"
NAMESPACE = "חנות-מרכזית/" + "orders" * 28
BUNDLE = f"{NAMESPACE}/0x00000000_0x10000000"
LATER = NOW + 90 * 60_000
WHY = "טקסט ארוך " + "why" * 60


def write_long_names(tables: Path) -> None:
    """Write the tables."""
    fleet(tables, BROKER, BUNDLE, more=3)
    odd = [RIGHT_TO_LEFT, COMBINING]
    fill(tables, BROKER_LOADS, [load(CLUSTER, 1, broker, 3.0) for broker in odd])
    fill(tables, BROKER_LOADS, [load(OTHER, 1, broker, 2.0) for broker in [BROKER, *odd]])
    phases = {BROKER: BrokerProgress("draining", NOW - 60_000, note=WHY)}
    phases |= {broker: BrokerProgress("waiting", NOW) for broker in odd}
    add_rollout(tables, phases, tuple(odd))
    moves = example_decision(
        cluster=OTHER, decision_id=f"{OTHER}:1:0", bundle=BUNDLE, source=BROKER
    )
    fill(tables, DECISIONS, [decided(moves)])
    command = {"cluster": OTHER, "id": "c-" + "9" * 80, "by": "ann" * 60, "kind": "drain-broker"}
    given = {"arguments": f'{{"broker": "{BROKER}"}}', "outcome": "refused", "text": WHY}
    fill(tables, COMMANDS, [command | given | {"at_ms": NOW, "log_seq": 3}])
    audited = {"cluster": OTHER, "now_ms": NOW, "by": "ann" * 60, "key_id": "9" * 64, "text": WHY}
    audited |= {"kind": "drain-broker", "right": f"drain {BROKER}", "outcome": "refused"}
    odd_rows = [
        {
            "objects": [f"broker {name}", f"bundle {BUNDLE}"],
            "new_value": f'{{"drained": ["{name}"]}}',
        }
        for name in (BROKER, *odd)
    ]
    ids = {"command_id": command["id"], "decision_ids": [f"{OTHER}:1:0"] * 5}
    numbered = [{"number": at, "log_seq": at} | row for at, row in enumerate(odd_rows, 1)]
    fill(tables, AUDIT, [audited | ids | row for row in numbered])
    _write_last_rounds(tables)


def _write_last_rounds(tables: Path) -> None:
    """Both clusters are paused and suspended; bundles are pinned, proposed, pending, rejected."""
    with open_lake(Store.at(tables)) as lake:
        (row,) = records(run(lake, "FROM rounds ORDER BY log_seq DESC LIMIT 1"))
    memory = Memory.from_json(row["memory"])
    state = replace(
        memory.operator_state,
        paused=True,
        drained=(BROKER, RIGHT_TO_LEFT),
        pins={BUNDLE: LATER},
        rejections=(RejectedProposal("eu-1:1:p0", "eu-1:1:p0", BUNDLE, True, LATER, "ann", WHY),),
        settings={"max_moves_in_flight": 1},
        isolation={
            "policy-" * 25: {"name": "policy-" * 25, "namespaces": [".*"], "primary": ["none.*"]}
        },
    )
    move = Pending("eu-1:1:0", "unload", BUNDLE, BROKER, RIGHT_TO_LEFT, NOW, LATER, 1)
    reason = {"reason": "Overloaded", "rule": "above_average", "strategy": "LeastMoves"}
    waits = Proposal(
        "eu-1:2:p0",
        "eu-1:2:p0",
        "unload",
        BUNDLE,
        BROKER,
        COMBINING,
        explain={"saw": 0.9, "limit": 0.8, "unit": "ratio"},
        bytes_per_s=2e6,
        proposed_ms=NOW,
        expires_ms=LATER,
        plan="eu-1:2",
        step=1,
        source_usage=0.9,
        max_usage=0.9,
        usage_alone=0.95,
        usage_in_order=0.7,
        **reason,
    )
    split = replace(waits, proposal_id="eu-1:2:p1", kind="split", plan=None, destination=None)
    memory = replace(
        memory,
        operator_state=state,
        pending=(move,),
        proposals=(waits, replace(split, together="eu-1:2:p1")),
        suspension=Suspension("mass_disappearance", NOW, LATER, (BROKER, COMBINING)),
    )
    changed = {"log_seq": 4, "seq": 3, "memory": memory.to_json(), "error": f"{BROKER}: {WHY}"}
    settings = {"inputs": '{"settings": {"mode": "approve"}}'}
    fill(
        tables, ROUNDS, [row | settings | changed | {"cluster": name} for name in (CLUSTER, OTHER)]
    )
    ended = {"proposal_id": "eu-1:1:p0", "cluster": CLUSTER, "state": "rejected", "by": "ann" * 60}
    ended |= {"why": WHY, "kind": "unload", "bundle": BUNDLE, "source": BROKER, "together": "x"}
    ended |= {"destination": COMBINING, "until_ms": LATER, "now_ms": NOW, "log_seq": 2, "seq": 1}
    ended |= {"rule": "above_average", "reason": "Overloaded", "step": 1}
    fill(tables, PROPOSALS, [ended])


_GIVEN = {
    "cluster": CLUSTER,
    "broker": BROKER,
    "bundle": BUNDLE,
    "proposals": "eu-1:2:p0",
    ("cluster", "name"): CLUSTER,
    ("broker", "name"): BROKER,
    ("bundle", "name"): BUNDLE,
    ("namespace", "name"): NAMESPACE,
    ("tenant", "name"): NAMESPACE.partition("/")[0],
    ("decision", "id"): "eu-1:1:0",
    ("command", "id"): "c",
    ("undo", "id"): "eu-1:1:0",
}
"""What an address needs: a field's value, or that of a page's field."""
_MORE = {"search": {"q": "b"}, "what-if": {"drain": BROKER}}
"""Fields that make a page show more."""


def list_pages() -> list[str]:
    """Return the address of each page in the table of routes, and of each form."""
    pages = []
    for screen in SCREENS:
        if screen.template is None:
            continue
        name = screen.path.lstrip("/")
        given = {
            field: _GIVEN.get((name, field)) or _GIVEN[field]
            for field, info in screen.query.model_fields.items()
            if info.is_required() and info.default is PydanticUndefined
        }
        pages.append(link(name, **given, **_MORE.get(name, {})))
    for name, form in COMMAND_FORMS.items():
        on = {field: _GIVEN.get((name, field)) or _GIVEN[field] for field in form.on}
        pages.append(link(f"send/{name}", cluster=CLUSTER, **on))
    other = (
        link("cluster", name=OTHER),
        link("history"),
        link("broker", cluster=OTHER, name=BROKER),
    )
    return [*pages, *other, link("round", cluster="none")]
