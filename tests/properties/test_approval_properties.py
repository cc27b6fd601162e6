"""Whatever is proposed, approved, rejected and left to expire, in whatever order: nothing is
decided twice, nothing is lost."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lb_stream.contracts.commands import COMMANDS
from lb_stream.contracts.reports import BundleStats
from lb_stream.core.averages import fold
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.commands.responder import Received
from lb_stream.core.model.blocks import Shard
from lb_stream.core.model.memory import Memory
from lb_stream.core.round.decide import Inbox, Round
from lb_stream.settings.resolve import cluster_config
from tests.support.build import Report, batch_of
from tests.support.commanded_round import decide_with

BROKERS = ("a", "b", "c")
BUNDLES = [f"t/n/0x{number}0000000_0x{number + 1}0000000" for number in range(9)]
MOST, EXPIRES_MS = 4, 120_000
NEEDS_NOBODY = {"released", "unowned", "split_child", "drained", "unload_command", "split_command"}
SETTINGS = {
    "mode": "approve",
    "proposal_expires_ms": EXPIRES_MS,
    "max_proposals": MOST,
    "shedding_grace_period_ms": 0,
    "shedding_interval_ms": 0,
    "overloaded_threshold_percent": 60,
    "min_throughput_mb": 0,
    "history_ratio": 0,
    "threshold_percent": 5,
}
STRATEGIES = st.sampled_from(
    [
        {"shedding_strategy": "OverloadShedder"},
        {"shedding_strategy": "ThresholdShedder"},
        {"shedding_strategy": "LeastMoves"},
        {"load_manager": "extensible"},
        {"load_manager": "simple"},
    ]
)
RULES = st.sampled_from(["", "kind=move max_mb=3 per_hour=2", "kind=split"])

which = st.lists(st.integers(0, 11), min_size=1, max_size=4)
orders = st.one_of(
    st.tuples(st.just("approve-proposals"), which),
    st.tuples(st.just("reject-proposals"), which, st.sampled_from([0, 30_000, 600_000])),
    st.tuples(st.just("drain-broker"), st.sampled_from(BROKERS)),
    st.tuples(st.just("undrain-broker"), st.sampled_from(BROKERS)),
    st.tuples(st.just("pause-cluster")),
    st.tuples(st.just("resume-cluster")),
    st.tuples(st.just("unload"), st.sampled_from(BUNDLES), st.none() | st.sampled_from(BROKERS)),
    st.tuples(st.just("dry-run"), st.booleans()),
    st.tuples(st.just("set-config"), st.sampled_from(["approve", "act"])),
)
steps = st.tuples(
    st.lists(orders, max_size=3),
    st.booleans(),  # whether brokers obey
    st.sampled_from([1_000, 20_000, 70_000, 130_000]),
    st.sampled_from(
        [(90.0, 20.0, 20.0), (90.0, 85.0, 10.0), (40.0, 40.0, 40.0), (20.0, 95.0, 30.0)]
    ),
    st.none() | st.sampled_from(BROKERS),  # who doesn't report
    st.integers(0, 2_000),  # topics of the first bundle
)


class Played:
    """Three brokers and the balancer, whose memory goes through the log."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = SETTINGS | settings
        self.config = cluster_config(self.settings)
        self.owned = {"a": set(BUNDLES[:6]), "b": set(BUNDLES[6:8]), "c": set(BUNDLES[8:])}
        self.shard, self.memory, self.now_ms, self.sent, self.ids = (
            Shard.empty(),
            Memory(),
            1_000_000,
            0,
            list[str](),
        )

    def order(self, kind: str, *given: Any) -> Received:
        self.sent += 1
        known = [*self.ids, "c:999:p0"]
        fields: dict[str, Any] = {}
        match kind:
            case "approve-proposals" | "reject-proposals":
                fields = {"proposals": [known[-1 - number % len(known)] for number in given[0]]}
                fields |= {"why": "no", "for_ms": given[1]} if kind == "reject-proposals" else {}
            case "drain-broker" | "undrain-broker":
                fields = {"broker": given[0]}
            case "unload":
                namespace, _, bundle = given[0].rpartition("/")
                fields = {"namespace": namespace, "bundle": bundle, "destination": given[1]}
            case "dry-run":
                fields = {"on": given[0]}
            case "set-config":
                fields = {"values": {"mode": given[0]}}
        return Received.from_command(
            COMMANDS[kind](id=f"c{self.sent}", by="User:ann", **fields), self.now_ms
        )

    def round(
        self,
        commands: list[Received],
        wait_ms: int,
        usage: tuple[float, ...],
        silent: str | None,
        topics: int,
    ) -> Round:
        self.now_ms += wait_ms
        reports = [
            Report(
                name,
                self.now_ms,
                {
                    bundle: BundleStats(
                        msg_throughput_in=2e6 + 1e6 * place,
                        msg_rate_in=50.0,
                        topics=topics if bundle == BUNDLES[0] else 3,
                    )
                    for place, bundle in enumerate(sorted(owned))
                },
                {"cpu": (usage[at], 100.0)},
                offset=self.now_ms + at,
            )
            for at, (name, owned) in enumerate(self.owned.items())
            if name != silent
        ]
        self.shard, _ = fold(self.shard, batch_of(reports), self.now_ms, self.config.fold)
        view = view_of("c", [self.shard], self.now_ms, self.config.balancer.weights)
        inbox = Inbox(commands=tuple(commands))
        again = decide_with(view, self.memory, inbox, self.settings)
        logged = Memory.from_json(self.memory.to_json())
        made = decide_with(view, logged, inbox, self.settings)
        assert (
            made.decisions == again.decisions
            and made.proposals == again.proposals
            and made.memory.to_json() == again.memory.to_json()
        )
        self.memory = made.memory
        self.ids += [
            proposal.proposal.proposal_id
            for proposal in made.proposals
            if proposal.state == "waiting"
        ]
        return made

    def obey(self, made: Round) -> None:
        for decision in made.decisions:
            if decision.dry_run or (
                decision.source is not None
                and not self.owned[decision.source].issuperset(decision.bundles)
            ):
                continue
            if decision.kind == "assign":
                self.owned[str(decision.destination)].add(decision.bundle)
            elif decision.kind == "split":
                self.owned[str(decision.source)] = (
                    self.owned[str(decision.source)]
                    .difference(decision.bundles)
                    .union(decision.children)
                )
            else:
                self.owned[str(decision.source)].remove(decision.bundle)


@given(st.lists(steps, min_size=1, max_size=7), STRATEGIES, RULES)
def test_no_proposal_is_decided_twice_and_none_is_lost(
    played_steps: list[Any], strategy: dict[str, Any], rule: str
) -> None:
    played = Played({**strategy, "auto_approve": rule})
    waiting, over, decided = set[str](), set[str](), set[str]()
    for wanted, obeys, wait_ms, usage, silent, topics in played_steps:
        commands = [played.order(*one) for one in wanted]
        made = played.round(commands, wait_ms, usage, silent, topics)
        if obeys:
            played.obey(made)
        for proposal in made.proposals:
            name = proposal.proposal.proposal_id
            assert name not in over, "the end is told once"
            if proposal.state == "waiting":
                assert name not in waiting, "an id is never used twice"
                waiting.add(name)
            else:
                waiting.discard(name)
                over.add(name)
        assert waiting == {proposal.proposal_id for proposal in made.memory.proposals}, (
            "what has not ended waits, and nothing else does"
        )
        assert len(waiting) <= MOST and all(
            proposal.expires_ms > played.now_ms for proposal in made.memory.proposals
        )
        assert len({proposal.bundle for proposal in made.memory.proposals}) == len(waiting), (
            "one proposal about one bundle"
        )

        approved = {
            proposal.decision_id: proposal.proposal.proposal_id
            for proposal in made.proposals
            if proposal.state == "approved"
        }
        by_approval = {
            decision.decision_id: decision.proposal_id
            for decision in made.decisions
            if decision.proposal_id is not None
        }
        assert approved == by_approval and not decided & set(approved.values()), (
            "one decision for one approval"
        )
        decided |= set(approved.values())
        mode = cluster_config(
            SETTINGS | {name: value for name, value in made.memory.operator_state.settings.items()}
        ).balancer.mode
        if mode == "approve":
            assert all(
                decision.approved_by
                for decision in made.decisions
                if decision.rule not in NEEDS_NOBODY
            ), "nothing else goes out without a yes"
        rejected = {
            (rejection.bundle, rejection.is_move)
            for rejection in made.memory.operator_state.rejections
        }
        new = [proposal.proposal for proposal in made.proposals if proposal.state == "waiting"]
        assert not {(one.bundle, one.is_move) for one in new} & rejected, (
            "what was rejected is not proposed again"
        )
        answered = {answer.id for answer in made.results}
        assert {command.head["id"] for command in commands} <= answered
