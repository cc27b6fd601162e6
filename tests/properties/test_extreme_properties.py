"""Numbers at the edge of what floats and columns hold, in reports and commands: refused with the
field, or decided on. No round fails."""

import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.base import canonical_json
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import EVENT_SCHEMA, REPORT_SCHEMA, SAMPLE_SCHEMA, Batch, Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.core.shedding import shedder
from lb_stream.settings.overrides import dynamic_keys
from lb_stream.settings.resolve import cluster_config
from lb_stream.stream.context import DecodeConfig
from lb_stream.stream.shards.directory import ShardMap
from tests.support.commanded_round import decide_with
from tests.support.decoding import decoded, record

KNOWN = DecodeConfig("home", "commands", {"eu": ShardMap()})
BUNDLES = {
    "a:1": ["t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"],
    "b:1": ["t/m/0x00000000_0xffffffff"],
    "c:1": ["t/o/0x00000000_0xffffffff"],
}
RAW = (
    "1.7e308",
    "-1.7e308",
    "5e-324",
    "1e300",
    "1e18",
    "1.1e18",
    "0",
    "-0.0",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
)
WHOLE = (
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "9" * 400,
    "9" * 5_000,
    "-1",
    "1.5",
)

SOUND: dict[str, Any] = {
    "bundles": [{"msgRateIn": "10.0"}] * 2,
    "cpu": {"usage": "90.0", "limit": "100.0"},
    "bandwidthIn": {},
    "own": {},
}

numbers = st.sampled_from(RAW + WHOLE) | st.floats(allow_nan=False, allow_infinity=False).map(repr)
figures = st.fixed_dictionaries(
    {},
    optional={
        name: numbers for name in ("msgRateIn", "msgThroughputIn", "msgThroughputOut", "topics")
    },
)
usages = st.fixed_dictionaries({}, optional={name: numbers for name in ("usage", "limit")})
loads = st.fixed_dictionaries(
    {
        "bundles": st.lists(figures, min_size=2, max_size=2),
        "cpu": usages,
        "bandwidthIn": usages,
        "own": figures,
    }
)
settings = st.tuples(st.sampled_from(sorted(dynamic_keys())), numbers)


def raw_json(fields: Any) -> str:
    """JSON in which every text that stands for a number is one."""
    if isinstance(fields, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(name)}:{raw_json(value)}" for name, value in fields.items())
            + "}"
        )
    return str(fields)


def report(broker: str, load: dict[str, Any]) -> bytes:
    """A modular report with these figures."""
    stats = dict(zip(BUNDLES[broker], load["bundles"], strict=False))
    return raw_json(
        {"lastStats": stats, "cpu": load["cpu"], "bandwidthIn": load["bandwidthIn"]} | load["own"]
    ).encode()


class Played:
    """One cluster's batches, from records to rounds, without Spark."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = {"dry_run": False, "shedding_interval_ms": 0, **given}
        self.shard, self.memory, self.number = Shard.empty(), Memory(), 0

    def batch(
        self, loads_of: dict[str, dict[str, Any]], command: bytes | None
    ) -> tuple[int, int, Round]:
        """Commands sent and answered, and the round."""
        start = 100_000 * self.number
        records = [
            record(f"eu/{name}".encode(), report(name, load), start + at)
            for at, (name, load) in enumerate(loads_of.items())
        ]
        records += (
            [record(b"eu", command, start + 50, topic="commands")] if command is not None else []
        )
        self.number += 1
        block = decoded(records, KNOWN)["eu", 0]
        events = [event for event in block["events"] if event["kind"] == "command"]
        received = [
            Received(event["append_ms"], **json.loads(event["payload"])) for event in events
        ]
        now_ms = 1_000 + start + 50
        config = cluster_config(self.given)
        tables = (
            pa.Table.from_pylist(block[name], schema)
            for name, schema in (("reports", REPORT_SCHEMA), ("samples", SAMPLE_SCHEMA))
        )
        self.shard, _ = fold(
            self.shard, Batch(*tables, EVENT_SCHEMA.empty_table()), now_ms, config.fold
        )
        view = view_of("eu", [self.shard], now_ms, config.balancer.weights)
        made = decide_with(view, self.memory, Inbox(commands=tuple(received)), self.given)
        self.memory = Memory.from_json(made.memory.to_json())
        return int(command is not None), len(made.results), made


def check(made: Round) -> None:
    """All that is logged of a round can be written."""
    for decision in made.decisions:
        decision.to_json()
    canonical_json(
        [[one.to_dict() for one in kind] for kind in (made.refusals, made.outcomes, made.results)]
    )
    canonical_json([asdict(one) for one in made.memory.pending])


@given(
    st.sampled_from(["modular", "simple", "extensible"]),
    st.sampled_from(shedder.names),
    st.lists(st.fixed_dictionaries(dict.fromkeys(BUNDLES, loads)), min_size=1, max_size=3),
)
def test_no_figure_of_a_report_makes_a_round_fail(
    manager: str, strategy: str, batches: list[dict[str, Any]]
) -> None:
    placement = {"placement_strategy": "AvgShedder"} if strategy == "AvgShedder" else {}
    played = Played({"load_manager": manager, "shedding_strategy": strategy, **placement})
    played.batch(dict.fromkeys(BUNDLES, SOUND), None)
    for loads_of in batches:
        check(played.batch(loads_of, None)[2])


@given(
    st.sampled_from(["modular", "simple", "extensible"]),
    settings,
    st.sampled_from(["0x00000000_0x80000000", "LARGEST"]),
)
def test_every_command_with_a_number_is_answered_and_no_later_round_fails(
    manager: str, setting: tuple[str, str], bundle: str
) -> None:
    played = Played({"load_manager": manager})
    values = raw_json(
        {"id": '"s"', "kind": '"set-config"', "values": {setting[0]: setting[1]}}
    ).encode()
    sent, answered, made = played.batch(dict.fromkeys(BUNDLES, SOUND), values)
    if "9" * 4_301 not in setting[1]:  # JSON that Python's reader refuses has no id
        assert sent == answered
    check(made)
    move = json.dumps(
        {"id": "m", "kind": "unload", "namespace": "t/n", "bundle": bundle, "destination": "b:1"}
    ).encode()
    for _ in range(2):
        sent, answered, made = played.batch(dict.fromkeys(BUNDLES, SOUND), move)
        assert sent <= answered
        check(made)
