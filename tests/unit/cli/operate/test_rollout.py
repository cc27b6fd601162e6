"""`lbctl rollout`: what it sends, shows and waits for, and how a hook is called."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lb_stream.cli.operate import rollout_run
from lb_stream.cli.operate.rollout_run import HookFailed, RestartHook, RolloutRunner
from lb_stream.cli.shared.options import load_cli_settings
from lb_stream.cli.shared.output import CommandError
from lb_stream.cli.shared.sending import SendOptions
from lb_stream.contracts.tables import BROKER_LOADS, COMMANDS, ROLLOUTS
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.core.model.rollout import BrokerProgress, RolloutOrder, RolloutProgress
from lb_stream.io.tables.rebuild import rebuild
from lb_stream.query.cluster_state import ClusterState
from lb_stream.store import Store
from tests.support.lbctl_runner import Result
from tests.support.present_tables import BROKERS, MINUTE_MS, START_MS, write_present
from tests.support.recorded_proposals import say
from tests.support.recorded_tables import record
from tests.support.scripted_kafka import Broker
from tests.support.table_rows import fill
from tests.support.wordings import check_wording

ORDER = RolloutOrder("roll", "User:ann", START_MS, BROKERS, wanted=2, canary="b:8080")
A, B, C = BROKERS


def progress(**phases: str) -> RolloutProgress:
    brokers: dict[str, Any] = {name: BrokerProgress() for name in BROKERS}
    for name, phase in phases.items():
        brokers[f"{name}:8080"] = BrokerProgress(  # type: ignore[arg-type]
            phase, START_MS, start_ms=5, moves=2
        )
    return RolloutProgress("roll", START_MS, brokers, planned=(C,), peak_usage=0.5)


@pytest.fixture
def ask(call: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    """Call lbctl with tables of a cluster; `rollout`: order and progress, or None."""

    def run(
        *arguments: str,
        rollout: tuple[RolloutOrder, RolloutProgress] | None = None,
        events: list[dict[str, Any]] = [],  # noqa: B006
        **given: Any,
    ) -> Result:
        tables = tmp_path / "tables"
        if not tables.exists():
            state = OperatorState(rollout=None if rollout is None else rollout[0])
            write_present(
                tables, operator_state=state, rollout=None if rollout is None else rollout[1]
            )
            fill(tables, ROLLOUTS, events)
        return call(*arguments, "--set", f"stream.tables={tables}", **given)

    return run


def event(number: int, broker: str | None, phase: str, moves: int = 0) -> dict[str, Any]:
    return {
        "rollout": "roll",
        "cluster": "eu",
        "broker": broker,
        "phase": phase,
        "at_ms": START_MS + 1_000 * number,
        "text": f"{broker or 'the rollout'} is {phase}",
        "moves": moves,
        "seq": number,
        "now_ms": START_MS + 1_000 * number,
        "log_seq": number,
    }


EVENTS = [
    event(1, None, "started"),
    event(2, A, "draining"),
    event(3, A, "empty", 8),
    event(4, A, "done", 8),
    event(5, None, "ended"),
]


# --- what is sent ---


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("start", "rollout-start", {"of": [], "at_most": 1, "continues": False}),
        (
            "start --of [ab] --of c --canary b:8080 --at-most 2 --version 5.0.1",
            "rollout-start",
            {"of": ["[ab]", "c"], "canary": "b:8080", "at_most": 2, "version": "5.0.1"},
        ),
        (
            "start --in-order b,a:8080 --continue --even-if-full",
            "rollout-start",
            {"in_order": ["b:8080", "a:8080"], "continues": True, "even_if_full": True},
        ),
        ("pause", "rollout-pause", {}),
        ("resume --continue", "rollout-resume", {"continues": True}),
        ("abort --rollout roll", "rollout-abort", {"rollout": "roll"}),
    ],
)
def test_each_command_is_one_record(
    ask: Callable[..., Result], kafka: Broker, line: str, kind: str, fields: dict[str, Any]
) -> None:
    result = ask("rollout", *line.split(), answers=[("eu", "done")])
    assert (result.code, result.out) == (0, "done: it is done\n"), result.err
    ((key, command),) = kafka.sent
    assert (key, command["kind"]) == ("eu", kind)
    assert {name: command[name] for name in fields} == fields


@pytest.mark.parametrize(
    "line",
    [
        "start --of a --in-order b",
        "start --in-order a,,b",
        "start --in-order a,b --canary b",
        "start --at-most 0",
        "start --canary d",
        "run --hook restart-all",
        "run --hook ''",
        "run --hook 'restart {broker}' --cluster us",
        "run --hook http://:0/",
        "back d:1 --no-wait",
        "history --rollout another",
    ],
)
def test_wrong_usage_says_what_was_expected_and_sends_nothing(
    ask: Callable[..., Result], kafka: Broker, line: str
) -> None:
    words = line.replace("'restart {broker}'", "restart_{broker}").replace("''", '""').split()
    result = ask(
        "rollout",
        *[word.replace('""', "").replace("_", " ") for word in words],
        rollout=(ORDER, progress(a="done")),
    )
    assert (result.code, result.out, kafka.sent) == (2, "", [])
    check_wording(result.err)


def test_next_prints_the_broker_alone_on_stdout(ask: Callable[..., Result], kafka: Broker) -> None:
    result = ask("rollout", "next", "--wait", answers=[("eu", "accepted"), ("eu", "done")])
    assert (result.code, result.out) == (0, "it\n"), result.err
    assert [command["kind"] for _, command in kafka.sent] == ["rollout-next"]
    shown = ask("rollout", "next", "--json", answers=[("eu", "done")]).objects
    assert (shown[0]["broker"], shown[0]["outcome"]) == ("it", "done")
    assert ask("rollout", "next", answers=[("eu", "failed")]).code == 1
    assert ask("rollout", "next", "b", "--wait", answers=[("eu", "done")]).code == 0
    assert [command.get("broker") for _, command in kafka.sent] == [None, None, None, B]
    sent = ask("rollout", "next", "--no-wait")
    assert sent.code == 0 and sent.out.startswith("sent: ")


@pytest.mark.parametrize(
    ("rule", "events", "code"),
    [
        ("rollout_done", [], 3),
        ("no_rollout", EVENTS, 3),
        ("no_rollout", [*EVENTS[:-1], event(5, None, "aborted")], 1),
        ("no_rollout", [], 1),
        ("rollout_paused", [], 1),
    ],
)
def test_the_exit_code_of_next_tells_whether_no_broker_is_left(
    ask: Callable[..., Result],
    kafka: Broker,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    events: list[dict[str, Any]],
    code: int,
) -> None:
    answer = kafka._result

    def refuse(cluster: str, outcome: str) -> Any:
        made = answer(cluster, outcome)
        made.value = made.value.replace(b'"drained"', f'"{rule}"'.encode())
        return made

    monkeypatch.setattr(kafka, "_result", refuse)
    result = ask("rollout", "next", events=events, answers=[("eu", "refused")])
    assert (result.code, result.out) == (code, "")


# --- what the tables say ---


def test_status_shows_each_broker_with_its_phase_and_what_is_next(
    ask: Callable[..., Result],
) -> None:
    both = (ORDER, progress(a="done", b="empty"))
    result = ask("rollout", "status", rollout=both)
    assert result.code == 0, result.err
    check_wording(result.out)
    (shown,) = ask("rollout", "status", "--json").objects
    assert shown["rollout"]["id"] == "roll" and shown["still_ms"] is None
    assert [(row["broker"], row["phase"], row["place"]) for row in shown["brokers"]] == [
        (A, "done", None),
        (B, "empty", None),
        (C, "waiting", 1),
    ]


@pytest.mark.parametrize(
    ("order", "phases", "still_ms", "code"),
    [
        ({"paused": True}, {"a": "down"}, None, 0),
        ({"wanted": 1}, {"a": "done"}, None, 0),
        ({"wanted": 3}, {"a": "draining"}, None, 0),
        ({}, {"a": "down"}, START_MS, 1),
        ({"at_ms": START_MS - 3_600_000}, {"a": "down"}, None, 0),
    ],
)
def test_status_says_what_the_rollout_waits_for(
    ask: Callable[..., Result],
    order: dict[str, Any],
    phases: dict[str, str],
    still_ms: int | None,
    code: int,
) -> None:
    now = replace(progress(**phases), still_ms=still_ms, expected_usage=0.6)
    result = ask("rollout", "status", rollout=(replace(ORDER, **order), now))
    assert result.code == code
    check_wording(result.out)


def test_status_without_a_rollout_has_an_exit_code_of_its_own(ask: Callable[..., Result]) -> None:
    result = ask("rollout", "status")
    assert (result.code, result.out) == (3, "")
    check_wording(result.err.splitlines()[-1])
    assert ask("rollout", "status", "--json").objects == [{"cluster": "eu", "rollout": None}]


def test_lbctl_status_and_clusters_name_the_rollout_that_is_on(ask: Callable[..., Result]) -> None:
    both = (ORDER, progress(a="done", b="down"))
    shown = ask("clusters", "list", "--json", rollout=both).objects[0]
    assert (shown["rollout"]["done"], shown["rollout"]["brokers"]) == (1, 3)
    assert "a rollout is on: 1 of 3 brokers restarted" in ask("status").out


@pytest.mark.parametrize(
    ("rollout", "events", "code"),
    [
        ((ORDER, progress(a="done")), [], 0),
        ((ORDER, progress(a="down")), [], 1),
        ((ORDER, progress()), [], 1),
        (None, EVENTS, 0),
        (None, EVENTS[:3], 1),
        (None, [], 1),
    ],
)
def test_back_tells_by_its_exit_code_whether_a_broker_has_restarted(
    ask: Callable[..., Result],
    rollout: Any,
    events: list[dict[str, Any]],
    code: int,
) -> None:
    result = ask("rollout", "back", "a", "--no-wait", rollout=rollout, events=events)
    assert result.code == code, result.err
    check_wording(result.out + result.err)


@pytest.mark.parametrize("start_ms", [0, START_MS - 1])
def test_a_broker_whose_reports_have_no_start_is_to_be_settled_by_an_operator(
    ask: Callable[..., Result], start_ms: int
) -> None:
    empty = progress(a="empty")
    brokers = {name: replace(broker, start_ms=start_ms) for name, broker in empty.brokers.items()}
    both = (replace(ORDER, wanted=1), replace(empty, brokers=brokers))
    status = ask("rollout", "status", rollout=both).out
    back = ask("rollout", "back", "a", "--no-wait").err
    assert ["lbctl rollout settle" in text for text in (status, back)] == [not start_ms] * 2


@pytest.mark.parametrize("still_ms", [None, START_MS])
def test_rollout_status_and_lbctl_status_say_what_the_last_round_has_noted(
    ask: Callable[..., Result], still_ms: int | None
) -> None:
    """So does the metric: however long ago the last event is, the round has judged it."""
    hour_ago_ms = START_MS - 3_600_000
    old = replace(progress(), begun_ms=hour_ago_ms, still_ms=still_ms)
    order = replace(ORDER, at_ms=hour_ago_ms, wanted=3, continues=True)
    result = ask("rollout", "status", rollout=(order, old))
    assert result.code == (0 if still_ms is None else 1)
    text = "stands still since 2026-01-01 00:00:00: no other broker can be begun"
    for shown in (result.out, ask("status").out):
        assert (text in " ".join(shown.lower().split())) == (still_ms is not None)


def test_a_paused_rollout_that_stands_still_says_both(ask: Callable[..., Result]) -> None:
    held = replace(progress(a="down"), still_ms=START_MS)
    result = ask("rollout", "status", rollout=(replace(ORDER, paused=True), held))
    assert result.code == 1
    check_wording(result.out)


@pytest.mark.parametrize("left_out", [(A,), ()])
def test_a_broker_that_is_left_out_is_named(
    ask: Callable[..., Result], left_out: tuple[str, ...]
) -> None:
    hour_ago_ms = START_MS - 3_600_000
    down = progress(a="down")
    brokers = {name: replace(broker, since_ms=hour_ago_ms) for name, broker in down.brokers.items()}
    now = replace(down, begun_ms=hour_ago_ms, brokers=brokers)
    resumed_ms = hour_ago_ms + 60_000
    order = replace(ORDER, wanted=1, at_ms=hour_ago_ms, resumed_ms=resumed_ms, left_out=left_out)
    assert ask("rollout", "status", rollout=(order, now)).code == 0
    assert ("left out" in ask("status").out) == bool(left_out)


def test_back_waits_as_long_as_it_may(ask: Callable[..., Result]) -> None:
    began = time.monotonic()
    result = ask(
        "rollout", "back", "a", "--timeout", "0.3", "--json", rollout=(ORDER, progress(a="down"))
    )
    assert result.code == 1 and time.monotonic() - began >= 0.3
    assert [shown["back"] for shown in result.objects] == [False]


def test_history_shows_rollouts_and_the_events_of_one(
    ask: Callable[..., Result], tmp_path: Path
) -> None:
    assert ask("rollout", "history", events=EVENTS).code == 0
    start = {"id": "roll", "cluster": "eu", "kind": "rollout-start", "by": "User:ann"}
    fill(tmp_path / "tables", COMMANDS, [start | {"arguments": '{"at_most": 2}'}])
    (row,) = ask("rollout", "history", "--json").objects
    assert (row["by"], row["arguments"], row["done"], row["moves"], row["outcome"]) == (
        "User:ann",
        {"at_most": 2},
        1,
        8,
        "ended",
    )
    check_wording(ask("rollout", "history").out)
    shown = ask("rollout", "history", "--rollout", "last")
    assert shown.code == 0
    check_wording(shown.out)


# --- a hook ---


def hook(words: str) -> RestartHook:
    return RestartHook.parse(words, "", 10.0)


def test_a_command_gets_the_brokers_name_without_a_shell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "called"
    code = "import sys; open(sys.argv[1], 'w').write(' '.join(sys.argv[2:])); print('restarting')"
    words = f"{sys.executable} -c \"{code}\" {file} {{broker}} {{host}} '{{cluster}};x' {{rollout}}"
    hook(words).restart("eu", "roll", "a.eu:8080")
    assert file.read_text() == "a.eu:8080 a.eu eu;x roll"
    assert "a.eu:8080: restarting" in capfd.readouterr().err


@pytest.mark.parametrize("words", ["false {broker}", "/no/such/file {broker}", "sleep 9{broker}"])
def test_a_command_that_fails_or_takes_too_long_says_so(words: str) -> None:
    with pytest.raises(HookFailed) as error:
        replace(hook(words), timeout_s=0.5).restart("eu", "roll", "")
    check_wording(error.value)


class Played:
    """Plays the states of a rollout to a runner, one at each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.states: list[tuple[RolloutOrder | None, RolloutProgress | None]] = []
        self.sent: list[str] = []
        self.called: list[str] = []
        self.events: list[dict[str, Any]] = []
        write_present(tmp_path / "tables")
        given = load_cli_settings(None, None, [f"stream.tables={tmp_path / 'tables'}"])
        options = SendOptions(given, "eu", False, False, 1.0, None, False)
        self.runner = RolloutRunner(options, "eu", RestartHook(("x",)))
        monkeypatch.setattr(rollout_run, "read_cluster_states", self._read)
        monkeypatch.setattr(rollout_run, "request_results", self._request)
        monkeypatch.setattr(rollout_run, "load_rollout_events", lambda *_: self.events)
        monkeypatch.setattr(rollout_run, "RETRY_S", 0.0)
        monkeypatch.setattr(rollout_run, "POLL_S", 0.05)
        monkeypatch.setattr(RestartHook, "restart", self._restart)

    def _read(self, *_: Any) -> list[ClusterState]:
        order, now = self.states.pop(0)
        memory = Memory(operator_state=OperatorState(rollout=order), rollout=now)
        return [ClusterState("eu", START_MS, memory, {})]

    def _request(self, _options: Any, wanted: Any, **_: Any) -> Iterator[dict[str, Any]]:
        self.sent += [kind for kind, _ in wanted]
        yield {}

    def _restart(self, _cluster: str, _rollout: str, broker: str) -> None:
        self.called.append(broker)
        if broker == C:
            raise HookFailed("it has ended with code 1")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Played:
    return Played(monkeypatch, tmp_path)


def test_run_begins_each_broker_and_calls_the_hook_once_it_is_empty(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = replace(ORDER, wanted=1), ORDER
    played.states = [
        (replace(ORDER, wanted=0), progress()),
        (one, progress()),
        (one, progress(a="draining")),
        (one, progress(a="empty")),
        (one, progress(a="empty")),
        (one, progress(a="down")),
        (one, progress(a="done")),
        (two, progress(a="done", b="empty")),
        (two, progress(a="done", b="done", c="done")),
        (None, None),
    ]
    played.events = EVENTS
    assert played.runner.run() == "the rollout is ended"
    assert (played.sent, played.called) == (["rollout-next"] * 2, [A, B])
    assert played.runner.restarted == [A, B, C]
    check_wording(capsys.readouterr().out)


def test_run_goes_on_where_another_run_was_killed(played: Played) -> None:
    played.states = [(ORDER, progress(a="done", b="empty")), (None, None)]
    played.events = EVENTS
    played.runner.run()
    assert (played.sent, played.called) == ([], [B])


def test_run_takes_up_a_rollout_that_stands_still_as_nobody_has_restarted_a_broker(
    played: Played,
) -> None:
    still = replace(progress(a="empty"), still_ms=START_MS)
    after = [(ORDER, progress(a="down")), (ORDER, progress(a="done", b="done", c="done"))]
    played.states = [(ORDER, still), (ORDER, still), *after, (None, None)]
    played.events = EVENTS
    assert played.runner.run() == "the rollout is ended"
    assert played.called == [A]


def test_run_ends_if_a_broker_has_not_stopped_long_after_its_hook(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_run, "STOPS_WITHIN_S", 0.0)
    still = replace(progress(a="empty"), still_ms=START_MS)
    played.states = [(ORDER, still)] * 9
    with pytest.raises(CommandError) as error:
        played.runner.run()
    assert (error.value.code, played.called) == (1, [A]) and A in str(error.value)


def test_run_asks_ever_less_often_while_no_broker_may_be_begun(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = [1_000.0]

    def sleep(seconds: float) -> None:
        clock_s[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: clock_s[0], sleep=sleep)
    monkeypatch.setattr(rollout_run, "time", clock)
    monkeypatch.setattr(rollout_run, "RETRY_S", 5.0)
    monkeypatch.setattr(rollout_run, "POLL_S", 1.0)
    refused = (replace(ORDER, wanted=1), progress(a="done"))
    played.states, played.events = [refused] * 60 + [(None, None)], EVENTS
    played.runner.run()
    assert len(played.sent) == 4  # after 0, 5, 15 and 35 s


def test_run_fails_where_the_rollout_has_ended_without_a_broker(played: Played) -> None:
    played.states = [(ORDER, progress(a="down")), (None, None)]
    played.events = [event(1, A, "down"), event(2, None, "ended")]
    with pytest.raises(CommandError) as error:
        played.runner.run()
    assert (error.value.code, str(error.value)) == (1, "the rollout is ended")


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([(None, None)], 3),
        ([(ORDER, progress(c="empty"))] * 9, 1),
        ([(ORDER, replace(progress(a="down"), still_ms=START_MS))], 1),
        ([(ORDER, progress(a="down")), (replace(ORDER, id="other"), progress())], 1),
        ([(ORDER, progress(a="down")), (None, None)], 1),
    ],
)
def test_run_ends_with_a_reason_where_it_can_go_no_further(
    played: Played, states: Any, code: int
) -> None:
    played.states, played.events = list(states), [event(5, None, "aborted")]
    with pytest.raises(CommandError) as error:
        played.runner.run()
    assert error.value.code == code
    check_wording(error.value)


# --- a plan ---


def test_a_plan_shows_each_brokers_turn_moves_and_usage(ask: Callable[..., Result]) -> None:
    result = ask("rollout", "plan", "--restart-s", "30", "--json")
    (found,) = result.objects
    assert (result.code, found["done"], found["fits"]) == (0, True, True), result.err
    as_yaml = ask("rollout", "plan", "--restart-s", "30", "-o", "yaml")
    assert [turn["broker"] for turn in yaml.safe_load(as_yaml.out)["brokers"]] == [
        turn["broker"] for turn in found["brokers"]
    ]
    assert sorted(turn["broker"] for turn in found["brokers"]) == sorted(BROKERS)
    for turn in found["brokers"]:
        assert (
            turn["begun_s"] <= turn["empty_s"] <= turn["down_s"] <= turn["back_s"] and turn["why"]
        )
    assert found["figures"]["moves"] >= 8 and found["figures"]["peak_usage"] <= 1.0
    assert len(kinds := {turn["begun_s"] for turn in found["brokers"]}) == len(BROKERS), kinds


def test_a_plan_that_would_be_refused_or_is_wrong_usage_says_so(
    ask: Callable[..., Result],
) -> None:
    refused = ask("rollout", "plan", "--of", "d.*")
    assert (refused.code, refused.out) == (1, "")
    wrong = ask("rollout", "plan", "--of", "a", "--in-order", "b")
    assert (wrong.code, wrong.out) == (2, "")
    check_wording(refused.err.splitlines()[-1] + "\n" + wrong.err)


def test_a_plan_waits_for_brokers_that_are_not_in_the_history_yet(
    ask: Callable[..., Result], tmp_path: Path
) -> None:
    """Just after the job's cold start: the others would seem to have all load."""
    assert ask("rollout", "plan", "--restart-s", "30").code == 0
    late_ms = START_MS + 9 * MINUTE_MS + 2_000  # after the last slot has begun
    seen = {"cluster": "eu", "seq": 1, "now_ms": late_ms, "log_seq": 1}
    seen |= {"broker": "d:8080", "alive": True, "seen_ms": late_ms}
    fill(tmp_path / "tables", BROKER_LOADS, [seen])
    result = ask("rollout", "plan", "--restart-s", "30")
    assert (result.code, result.out) == (1, "")
    check_wording(result.err.splitlines()[-1])


# --- beside a balancer that plays it ---


def test_tables_and_explanations_tell_of_a_rollout_that_is_played(
    call: Callable[..., Result], tmp_path: Path
) -> None:
    made = record(tmp_path / "tables", 5, workload="steady")
    say(made, "rollout-start", continues=True)
    made.run(4)
    at = ("--set", f"stream.tables={made.root}")
    events = call("rollout", "history", "--rollout", "last", "--json", *at).objects
    first = next(event for event in events if event["phase"] == "draining")
    assert events[0]["phase"] == "started" and first["broker"] in first["text"]
    moved = next(decision for decision in made.loop.decisions if decision.source == first["broker"])
    assert moved.rule == "rollout"
    explained = call("explain", moved.decision_id, "--json", *at).objects[0]
    assert first["text"] in explained["sentence"]
    checks = call("explain", "--why-not", moved.bundle, "--json", *at).objects[0]["checks"]
    # It has left the broker that is emptied, and stays where it is.
    assert [check["blocks"] for check in checks if check["name"] == "rollout"] == [True]
    before = list(events)
    (done,) = rebuild(Store.at(made.root), [ROLLOUTS.name])
    assert done.rows == len(before)


def test_a_command_says_once_that_it_reads_the_demos_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_present(tmp_path / ".lb" / "demo" / "tables")
    given = load_cli_settings(None, None, [])
    assert [given.tables, given.tables] and given.stream.tables.endswith("demo/tables")
    assert capsys.readouterr().err.count("reading the demo's tables") == 1
