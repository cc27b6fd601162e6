"""Whatever operators order, in whatever order: every command is answered, and no order brings about
what may not be."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.decisions import RESHAPES
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.names import parse_bundle
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of
from tests.support.command_rounds import LOAD
from tests.support.commanded_round import decide_with

BROKERS = ["a:1", "b:1", "c:1"]
RANGES = ["0x00000000_0x80000000", "0x80000000_0xffffffff", "0x00000000_0x40000000", "LARGEST"]
CAN_MERGE = {"a:1": True, "b:1": True}
NAMESPACES = ["t/n", "t/m", "t/new"]
GIVEN = {
    "dry_run": False,
    "shedding_interval_ms": 0,
    "min_throughput_mb": 0,
    "history_ratio": 0,
    "max_moves_in_flight_per_broker": 2,
}

brokers, namespaces, ranges = (
    st.sampled_from([*BROKERS, "z:1"]),
    st.sampled_from(NAMESPACES),
    st.sampled_from(RANGES),
)
orders = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.just("unload"),
            "namespace": namespaces,
            "bundle": ranges,
            "destination": st.none() | brokers,
        }
    ),
    st.fixed_dictionaries({"kind": st.just("unload"), "namespace": namespaces}),
    st.fixed_dictionaries(
        {
            "kind": st.just("split"),
            "namespace": namespaces,
            "bundle": ranges,
            "unload": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("merge"),
            "namespace": namespaces,
            "bundles": st.lists(ranges, min_size=2, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["drain-broker", "undrain-broker"]), "broker": brokers}
    ),
    st.fixed_dictionaries({"kind": st.sampled_from(["pause-cluster", "resume-cluster"])}),
    st.fixed_dictionaries({"kind": st.just("dry-run"), "on": st.booleans()}),
    st.fixed_dictionaries(
        {"kind": st.just("create-namespace"), "namespace": namespaces, "bundles": st.integers(1, 3)}
    ),
    st.fixed_dictionaries({"kind": st.just("delete-namespace"), "namespace": namespaces}),
    st.fixed_dictionaries(
        {"kind": st.just("set-config"), "values": st.just({"loadManagerClassName": "extensible"})}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("set-config"), "values": st.just({"max_moves_in_flight": 1})}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("delete-config"), "key": st.just("loadManagerClassName")}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("set-policies"), "anti_affinity": st.just({"t/n": "g", "t/m": "g"})}
    ),
)
batches = st.lists(
    st.tuples(
        st.lists(orders, max_size=4), st.booleans(), st.sampled_from([1_000, 70_000, 400_000])
    ),
    min_size=1,
    max_size=6,
)


class Played:
    """Brokers that report what they own, and obey or don't."""

    def __init__(self) -> None:
        self.owned: dict[str, set[str]] = {
            "a:1": {f"t/n/{RANGES[0]}", f"t/n/{RANGES[1]}"},
            "b:1": {"t/m/0x00000000_0xffffffff"},
            "c:1": set(),
        }
        self.shard, self.memory, self.now_ms, self.numbers = Shard.empty(), Memory(), 1_000_000, 0

    def round(self, wanted: list[dict[str, Any]], wait_ms: int) -> tuple[list[Received], Round]:
        self.now_ms += wait_ms
        reports = [
            Report(name, self.now_ms, dict.fromkeys(sorted(owned), LOAD), offset=at)
            for at, (name, owned) in enumerate(self.owned.items())
        ]
        received = []
        for fields in wanted:
            self.numbers += 1
            command = COMMANDS[fields["kind"]].model_validate(fields | {"id": f"c{self.numbers}"})
            received.append(Received.from_command(command, self.now_ms))
        config = cluster_config(GIVEN)
        self.shard, _ = fold(self.shard, batch_of(reports), self.now_ms, config.fold)
        view = view_of("c", [self.shard], self.now_ms, config.balancer.weights)
        inbox = Inbox(commands=tuple(received), merging=CAN_MERGE)
        made = decide_with(view, self.memory, inbox, GIVEN)
        self.memory = made.memory
        return received, made

    def obey(self, made: Round) -> None:
        for decision in made.decisions:
            if decision.dry_run or (
                decision.source is not None
                and not self.owned[decision.source].issuperset(decision.bundles)
            ):
                continue
            if decision.kind == "assign":
                self.owned[str(decision.destination)].add(decision.bundle)
            elif decision.kind in RESHAPES:
                self.owned[str(decision.source)] = (
                    self.owned[str(decision.source)]
                    .difference(decision.bundles)
                    .union(decision.children)
                )
            else:
                self.owned[str(decision.source)].remove(decision.bundle)


@given(batches)
def test_every_command_is_answered_and_no_order_brings_about_what_may_not_be(
    steps: list[tuple[list[dict[str, Any]], bool, int]],
) -> None:
    played = Played()
    open_before: set[str] = set()
    for wanted, obeys, wait_ms in steps:
        before = {one.decision_id: one.bundles for one in played.memory.pending}
        received, made = played.round(wanted, wait_ms)
        config = cluster_config(
            GIVEN
            | {
                name: value
                for name, value in made.memory.operator_state.settings.items()
                if name != "loadManagerClassName"
            }
        )
        answered = Counter(answer.id for answer in made.results)
        assert all(answered[one.head["id"]] >= 1 for one in received), (
            "every command is answered in its round"
        )
        accepted = {answer.id for answer in made.results if answer.outcome == "accepted"}
        ended = {answer.id for answer in made.results if answer.outcome in ("done", "failed")}
        open_now = (open_before | accepted) - ended
        assert open_now == {one.command["id"] for one in made.memory.operator_state.waiting}, (
            "what was accepted is waited for until it has ended"
        )
        open_before = open_now

        decided_on = Counter(bundle for decision in made.decisions for bundle in decision.bundles)
        assert max(decided_on.values(), default=0) <= 1, "one decision about one bundle"
        ended_now = {outcome.decision_id for outcome in made.outcomes} | {
            move.decision_id for move in made.memory.moves.values()
        }
        under_way = {
            bundle
            for decision_id, bundles in before.items()
            if decision_id not in ended_now
            for bundle in bundles
        }
        assert not under_way & decided_on.keys(), "what is under way is not decided again"
        drained = set(made.memory.operator_state.drained)
        assert not drained & {decision.destination for decision in made.decisions}, (
            "nothing goes to a drained broker"
        )
        moves = [one for one in made.memory.pending if one.kind in ("unload", "transfer")]
        assert (
            len(
                [decision for decision in made.decisions if decision.kind in ("unload", "transfer")]
            )
            <= config.balancer.max_moves_in_flight
        )
        assert len(moves) <= GIVEN["max_moves_in_flight_per_broker"] * len(BROKERS)
        if config.balancer.dry_run:
            assert all(decision.dry_run for decision in made.decisions)
        for decision in made.decisions:
            parse_bundle(decision.bundle)
        deleted = set(made.memory.operator_state.deleted)
        assert not any(
            decision.kind == "assign" and decision.bundle.rpartition("/")[0] in deleted
            for decision in made.decisions
        )
        assert Memory.from_json(made.memory.to_json()) == made.memory
        if obeys:
            played.obey(made)
