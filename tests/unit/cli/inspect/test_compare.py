"""`lbctl compare`: a real leader's log beside what we decide on the reports that its cluster wrote
meanwhile."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lb_stream.agent.pulsar.leader_log import LeaderPass, parse_passes, read_leader_log
from lb_stream.agent.pulsar.log_lines import parse_line
from lb_stream.contracts.decisions import Candidate
from lb_stream.core.averages.cluster_view import view_of
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.view import ClusterView
from lb_stream.core.round.decide import Round
from lb_stream.query.leader_differences import explain_difference
from lb_stream.settings.resolve import cluster_config
from tests import captured
from tests.support.lbctl_runner import Result, lbctl
from tests.support.recorded_tables import Recorder

LOG = captured.LOG


class CapturedRounds:
    """Stands where a simulated cluster's loop does: each step is our round at the moment of the
    leader's next pass."""

    def __init__(self, mode: captured.Mode) -> None:
        self._mode = mode
        self._reports = [(report, captured.decoded(report)) for report in captured.stored_reports()]
        self._rounds = [
            one for one in captured.leader_rounds() if one.at_ms >= self._reports[0][0].at_ms
        ]
        self._memory = Memory(epoch=1, strategies=captured.memory_before().strategies)
        self._moments = self._order()
        self.view: ClusterView | None = None
        self.now_ms = 0

    @property
    def shard(self) -> Any:
        return self._mode.shard

    def __len__(self) -> int:
        return len(self._rounds)

    def _order(self) -> Iterator[captured.LeaderRound]:
        moments: list[tuple[int, Any]] = [(report.at_ms, report) for report, _ in self._reports]
        moments += [
            (average.at_ms - captured.WRITES_AFTER_MS, average)
            for average in captured.leader_averages()
        ]
        moments += [(one.at_ms, one) for one in self._rounds]
        for at_ms, what in sorted(moments, key=lambda moment: moment[0]):
            if isinstance(what, captured.LeaderRound):
                yield what
            elif isinstance(what, captured.LeaderAverages):
                self._mode.resample(at_ms)
            elif isinstance(self._mode, captured.Reference):
                together = at_ms + captured.READ_TOGETHER_MS
                self._mode.take(
                    [
                        (report, batch)
                        for report, batch in self._reports
                        if at_ms <= report.at_ms <= together
                    ],
                    at_ms,
                )
            else:
                self._mode.take(
                    [(report, batch) for report, batch in self._reports if report is what], at_ms
                )

    def step(self, _step_ms: int) -> Round:
        leader = next(self._moments)
        spared = captured.in_grace(leader, self._rounds)
        made = captured.decide_beside(self._mode.shard, self._memory, leader, spared)
        self._memory = replace(self._memory, seq=made.memory.seq, strategies=made.memory.strategies)
        self.view = view_of("captured", [self._mode.shard], leader.at_ms, {"cpu": 1.0})
        self.now_ms = leader.at_ms
        return made


def recorded_beside(root: Path, mode: captured.Mode, sample_mode: str) -> Recorder:
    rounds = CapturedRounds(mode)
    at_last = captured.settings_at(captured.leader_rounds()[-1].at_ms)
    recorder = Recorder(
        root,
        rounds,
        json.loads(json.dumps({**at_last, "dry_run": True, "sample_mode": sample_mode})),
    )
    recorder.run(len(rounds))
    return recorder


@pytest.fixture(scope="module")
def per_report(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return recorded_beside(
        tmp_path_factory.mktemp("per_report") / "tables", captured.PerReport(), "per_report"
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return recorded_beside(
        tmp_path_factory.mktemp("reference") / "tables", captured.Reference(), "reference"
    )


def compared(recorder: Recorder, log: Path = LOG, *more: str) -> Result:
    return lbctl(
        "compare",
        "--with-log",
        str(log),
        *more,
        "--set",
        f"stream.tables={recorder.root}",
        cwd=recorder.root.parent,
    )


def test_sampled_as_the_leader_does_what_is_not_alike_was_being_split_there_or_is_refused_here(
    reference: Recorder,
) -> None:
    result = compared(reference, LOG, "--json")
    (found,) = result.objects
    assert result.code == 0, result.err
    assert found["totals"] == {
        "moves": 6,
        "pass": 6,
        "source": 5,
        "bundle": 4,
        "destination": 4,
        "only_ours": 0,
        "unexplained": 0,
        "unwatched": 0,
    }
    others = {move["leader"]["bundle"]: move for move in found["moves"] if len(move["alike"]) < 4}
    assert {bundle: [why["code"] for why in move["why"]] for bundle, move in others.items()} == {
        "lab/skew16/0xc0000000_0xc8000000": ["splitting"],
        "lab/skew16/0xf0000000_0xf3ffffff": ["refused:shifts_overload"],
    }


def test_sampled_report_by_report_the_command_says_that_another_choice_comes_from_the_samples(
    per_report: Recorder,
) -> None:
    result = compared(per_report, LOG, "--json")
    (found,) = result.objects
    totals = found["totals"]
    assert (totals["source"], totals["bundle"], totals["unexplained"]) == (5, 3, 0)
    others = {
        move["leader"]["bundle"]: {why["code"] for why in move["why"]}
        for move in found["moves"]
        if len(move["alike"]) < 4
    }
    assert others["lab/fan8/0x00000000_0x20000000"] == {"sampling"}
    assert "splitting" in others["lab/skew16/0xc0000000_0xc8000000"]


def test_both_sides_of_each_move_are_shown_and_the_totals_end_it(reference: Recorder) -> None:
    lines = compared(reference).out.splitlines()
    move = "leader  lab/skew16/0x10000000_0x20000000  127.0.0.1:26202 → 127.0.0.1:26203"
    (first,) = (at for at, line in enumerate(lines) if line.endswith(move))
    assert lines[first + 1].split() == ["ours", "the", "same"]
    assert sum("alike   pass" in line for line in lines) == 2
    assert lines[-1].endswith(
        "6 moves of the leader's: alike in pass 6, source 5, bundle 4, destination 4"
    )


def test_moves_of_a_time_without_rounds_are_left_out_and_nothing_to_compare_is_no_success(
    reference: Recorder, tmp_path: Path
) -> None:
    early = tmp_path / "early.log"
    lines = gzip.decompress(LOG.read_bytes()).decode().replace("2026-11-21T08:", "2026-11-21T02:")
    early.write_text(lines)
    result = compared(reference, early, "--json")
    assert result.code == 1
    assert (result.objects[0]["totals"]["moves"], result.objects[0]["totals"]["unwatched"]) == (
        0,
        6,
    )


def test_since_leaves_earlier_moves_out(reference: Recorder) -> None:
    (found,) = compared(reference, LOG, "--json", "--since", "2026-11-21T08:26:00Z").objects
    assert found["totals"]["moves"] == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), ("nothing with a time\n", "no line with a time")],
    ids=["missing", "without times"],
)
def test_a_log_that_cannot_be_read_is_wrong_usage(
    reference: Recorder, tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "leader.log"
    if content is not None:
        path.write_text(content)
    result = compared(reference, path)
    assert result.code == 2 and words in result.err and str(path) in result.err


def test_a_destination_that_was_drawn_or_taken_out_is_told_so(reference: Recorder) -> None:
    (theirs,) = (
        one for one in read_leader_log([LOG]).passes if len(one.moves) == 2 and not one.splitting
    )
    move = theirs.moves[0]
    rounds = Quiet(cluster_config({"sample_mode": "reference"}))

    def codes(*candidates: Candidate, rates: dict[str, float] | None = None) -> list[str]:
        ours = {
            "bundle": move.bundle,
            "source": move.source,
            "destination": "x:1",
            "issued_ms": move.at_ms,
        }
        ours["explain"] = {"candidates": [candidate.model_dump() for candidate in candidates]}
        asked = replace(move, rates=rates or {})
        found = explain_difference(rounds, theirs, asked, ours, move.at_ms)
        return [why.code for why in found]

    there = str(move.destination)
    assert codes(Candidate(broker="x:1", score=7.0), Candidate(broker=there, score=7.0)) == [
        "drawn"
    ]
    assert codes(
        Candidate(broker="x:1", score=7.0),
        Candidate(broker=there, score=8.0),
        rates={"x:1": 5.0, there: 5.0},
    ) == ["drawn"]
    assert codes(Candidate(broker="x:1", score=7.0), Candidate(broker=there, score=8.0)) == [
        "ranked"
    ]
    out = Candidate(broker=there, refused_by="being_relieved")
    assert codes(Candidate(broker="x:1", score=7.0), out) == ["refused:being_relieved"]
    assert codes(Candidate(broker="x:1", score=7.0), out, rates={there: 3.0}) == [
        "candidates",
        "refused:being_relieved",
    ]


def test_a_first_pass_that_sheds_where_the_leader_with_its_past_does_not_is_told_so() -> None:
    """As it was seen: 56.1 % was above what our first pass could know, and not above what the
    leader remembered."""
    calm = (
        "ThresholdShedder - [{}] broker is not overloaded, ignoring at this point (cpu: 56.06%, "
        "memory: 24.57%)"
    )
    (theirs,) = parse_passes((1_000_000, calm.format(broker)) for broker in ("a:1", "b:1"))
    ours = {
        "bundle": "t/n/0x00000000_0x40000000",
        "source": "a:1",
        "destination": "b:1",
        "issued_ms": 994_000,
    }
    found = explain_difference(
        Quiet(cluster_config({}), first_ms=994_000),
        theirs,
        None,
        ours | {"explain": {"saw": 0.561, "unit": "ratio"}},
    )
    assert [why.code for why in found] == ["usage", "young", "sampling"]
    assert "history_ratio 0.9" in found[1].text
    later = ours | {"issued_ms": 994_000 + 60 * 60_000, "explain": {"saw": 0.561, "unit": "ratio"}}
    assert "young" not in [
        why.code
        for why in explain_difference(
            Quiet(cluster_config({}), first_ms=994_000), theirs, None, later
        )
    ]


def test_all_moves_of_the_leaders_pass_were_chosen_at_its_begin_however_long_it_unloads() -> None:
    """As it was seen on a busy machine: the leader unloaded one bundle after another for 3 s, and a
    report came meanwhile."""
    line = (
        "ThresholdShedder - [Modular] Unloading bundle: t/n/0x{}0000000_0x{}0000000 from broker a:1"
    )
    (theirs,) = parse_passes([(1_000_000, line.format(0, 1)), (1_002_900, line.format(1, 2))])
    rounds = Quiet(cluster_config({"sample_mode": "reference"}), reported={"b:1": 1_001_500})
    for move in theirs.moves:
        (why,) = explain_difference(rounds, theirs, move, None, 1_002_500)
        assert (why.code, "b:1" in why.text) == ("leaders_report_older", True)


def test_a_leader_that_knows_older_reports_than_ours_is_told_so() -> None:
    """As it was seen: brokers had written nothing for 39 s when the leader passed; the agents had
    asked them meanwhile."""
    written = (
        "ModularLoadManagerImpl - Writing local data to metadata store because maximum "
        "change 25.0% exceeded threshold 10%"
    )
    unloading = (
        "ThresholdShedder - [Modular] Unloading bundle: t/n/0x00000000_0x10000000 from broker a:1"
    )
    (theirs,) = parse_passes([(961_000, written), (1_000_000, unloading), (1_000_500, written)])
    rounds = Quiet(cluster_config({"sample_mode": "reference"}), reported={"a:1": 999_000})
    move = theirs.moves[0]
    (why,) = explain_difference(rounds, theirs, move, None, 1_000_800)
    assert (why.code, why.text) == (
        "other_reports",
        "the newest report was 39 s old for the leader and 2 s old here",
    )
    rounds.reported = {"a:1": 961_400}
    found = explain_difference(rounds, theirs, move, None, 1_000_800)
    assert found == ()


AVG = {
    "profile": "pulsar-5.0",
    "shedding_strategy": "AvgShedder",
    "placement_strategy": "AvgShedder",
}
LOW = "t/n/0x00000000_0x40000000"


def avg_pass(hits: str = "a:1=8, b:1=8", destination: str = "b:1") -> LeaderPass:
    """One pass of a leader under AvgShedder that moves a bundle from a:1, as 5.0 logs it."""
    texts = (
        "AvgShedder - broker:a:1, scores:60.0, throughput:5.0",
        f"AvgShedder - Broker hit counts {{brokerHitCountForHigh={{a:1=0, b:1=0}}, "
        f"brokerHitCountForLow={{{hits}}}}}",
        "AvgShedder - broker:[a:1] is planning to shed bundles to broker:[b:1]. maxBroker stat:",
        f"ModularLoadManagerImpl - Unloading bundle from source broker to dest broker {{bundle="
        f"{LOW}, class=AvgShedder, destBroker={destination}, sourceBroker=a:1}}",
    )
    lines = [parse_line(f"2026-11-27T16:10:00.000Z [x] INFO  {text}") for text in texts]
    (only,) = parse_passes((line.at_ms, line.text) for line in lines if line is not None)
    return only


def our_move(destination: str) -> dict[str, Any]:
    return {
        "bundle": LOW,
        "source": "a:1",
        "destination": destination,
        "issued_ms": avg_pass().at_ms,
        "explain": {"saw": 40.0, "unit": "points", "candidates": []},
    }


def test_a_leader_that_has_counted_longer_than_ours_moves_first_and_the_reason_says_so() -> None:
    theirs = avg_pass()
    rounds = Quiet(cluster_config(AVG), hits={"hits_low": {"a:1": 3, "b:1": 3}, "hits_high": {}})
    (why,) = explain_difference(rounds, theirs, theirs.moves[0], None, theirs.at_ms)
    assert why.code == "hits"
    assert "3 of 8 rounds" in why.text and "8 of 8 rounds" in why.text
    # where we had counted enough, that is no reason
    rounds.hits = {"hits_low": {"a:1": 8, "b:1": 8}, "hits_high": {}}
    assert not explain_difference(rounds, theirs, theirs.moves[0], None, theirs.at_ms)


def test_a_move_of_ours_before_the_leader_has_counted_enough_is_explained_by_its_count() -> None:
    calm = avg_pass(hits="a:1=5, b:1=5")
    calm.moves.clear()
    found = explain_difference(Quiet(cluster_config(AVG)), calm, None, our_move("b:1"))
    assert [why.code for why in found] == ["hits", "sampling"] and "5 of 8 rounds" in found[0].text
    reached = explain_difference(Quiet(cluster_config(AVG)), avg_pass(), None, our_move("b:1"))
    assert "hits" not in [why.code for why in reached]


def test_another_destination_is_another_pair_or_a_plan_that_was_replaced() -> None:
    rounds = Quiet(cluster_config(AVG))
    for theirs, code in ((avg_pass(), "pair"), (avg_pass(destination="c:1"), "replanned")):
        move = theirs.moves[0]
        found = explain_difference(rounds, theirs, move, our_move("d:1"), theirs.at_ms)
        assert [why.code for why in found] == [code]


def test_a_log_without_moves_is_described_with_what_was_looked_for_and_where(
    reference: Recorder, tmp_path: Path
) -> None:
    logs = {
        "calm.log": "ModularLoadManagerImpl - Writing local data to metadata store because maximum",
        "bare.log": "ModularLoadManagerImpl - Unloading bundle from source broker to dest broker",
    }
    found = {}
    for name, text in logs.items():
        (tmp_path / name).write_text(f"2026-11-21T08:25:00.000Z [x] INFO  {text}\n")
        result = compared(reference, tmp_path / name)
        assert result.code == 1
        assert f"{tmp_path / name}: 1 lines with a time, text" in result.out
        assert compared(reference, tmp_path / name, "--json").objects[0]["log"]["moves"] == 0
        found[name] = result.out
    assert "loadBalancerSheddingEnabled" in found["calm.log"] and "%X" not in found["calm.log"]
    assert "%X" in found["bare.log"] and "ConsoleJson" in found["bare.log"]


class Quiet:
    """Tables that know of little: when the cluster was first seen."""

    def __init__(
        self,
        config: Any,
        first_ms: int | None = None,
        reported: dict[str, int] | None = None,
        hits: dict[str, dict[str, int]] | None = None,
    ) -> None:
        self.config, self.first_ms, self.reported = config, first_ms, reported or {}
        self.hits = hits or {}

    def find_round_before(self, at_ms: int) -> dict[str, Any]:
        return {
            "seq": 1,
            "now_ms": at_ms,
            "memory": json.dumps(
                {"first_ms": self.first_ms, "strategies": {"AvgShedder": self.hits}}
            ),
            "error": None,
        }

    def find_leader_pass(self, _at_ms: int) -> None:
        return None

    def count_given_before(self, _ours: Any, _broker: str) -> int:
        return 0

    def find_refusal(self, _broker: str | None, _bundle: str, _seq: int) -> None:
        return None

    def find_leader_unload_age_ms(self, _bundle: str, _before_ms: int) -> None:
        return None

    def load_report_times(self, after_ms: int, until_ms: int) -> dict[str, int]:
        return {
            broker: at_ms for broker, at_ms in self.reported.items() if after_ms < at_ms <= until_ms
        }

    def find_newest_report_ms(self, until_ms: int) -> int | None:
        return max((at_ms for at_ms in self.reported.values() if at_ms <= until_ms), default=None)


def passes(folder: Path, text: str) -> list[LeaderPass]:
    (folder / "broker.log").write_text(text)
    return read_leader_log([folder / "broker.log"]).passes


def test_lines_are_read_in_pulsars_own_pattern_and_behind_what_a_collector_puts_before_them(
    tmp_path: Path,
) -> None:
    found = passes(
        tmp_path,
        "2026-11-21T10:24:21,333+0200 [pulsar-load-manager-1-1] INFO  "
        "o.a.p.b.l.i.ModularLoadManagerImpl - [OverloadShedder] "
        "Unloading bundle: t/n/0x00000000_0x40000000 from broker a:8080 to dest broker b:8080\n"
        "[pod/broker-1] 2026-11-21T08:24:25.000Z [x] INFO  ModularLoadManagerImpl - "
        "[OverloadShedder] "
        "Unloading bundle: t/n/0x40000000_0x80000000 from broker a:8080\n"
        "        at some.java.Stack(Trace.java)\n",
    )
    (only,) = found
    assert [(move.bundle, move.source, move.destination) for move in only.moves] == [
        ("t/n/0x00000000_0x40000000", "a:8080", "b:8080"),
        ("t/n/0x40000000_0x80000000", "a:8080", None),
    ]
    assert only.moves[1].at_ms - only.moves[0].at_ms == 3_667


def test_an_extensible_leaders_decisions_are_read_with_their_destinations(tmp_path: Path) -> None:
    unload = (
        "UnloadDecision(unload=Unload[sourceBroker=a:1, serviceUnit={}, "
        "destBroker=Optional{}, force=false], label=Success)"
    )
    line = (
        "2026-11-21T08:33:09.668Z [x] INFO  UnloadScheduler - [TransferShedder] Unload decision "
        "result: ["
        + ", ".join(
            (
                unload.format("t/n/0x00000000_0x40000000", "[b:1]"),
                unload.format("t/n/0x40000000_0x80000000", ".empty"),
            )
        )
    )
    (only,) = passes(tmp_path, line + "]\n")
    assert [(move.source, move.destination) for move in only.moves] == [
        ("a:1", "b:1"),
        ("a:1", None),
    ]


def test_a_long_pass_is_one_and_the_next_minutes_is_another() -> None:
    line = "[S] Unloading bundle: t/n/0x{0:08x}_0x{1:08x} from broker a:1 to dest broker b:1"
    lines = [(1_000 + 9_000 * number, line.format(number, number + 1)) for number in range(5)]
    found = parse_passes([*lines, (97_001, line.format(9, 10))])
    assert [len(one.moves) for one in found] == [5, 1]
