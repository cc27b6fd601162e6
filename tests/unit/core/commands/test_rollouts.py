"""Commands about rollouts: what they order, what they refuse, and when they are done."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from lb_stream.core.commands.base import BadForm, CannotUndo, operation
from lb_stream.core.commands.progress import Progress
from lb_stream.core.commands.responder import CommandAnswer
from lb_stream.core.model.memory import Memory, Pending
from lb_stream.core.model.operator_state import OperatorState, WaitingCommand
from lb_stream.core.model.refusals import Refusal, refusal
from lb_stream.core.model.rollout import BrokerProgress, RolloutOrder, RolloutProgress
from lb_stream.core.model.rules import Refuses
from lb_stream.core.observing.outcomes import Settled
from lb_stream.operations.rollout_next import RolloutNext
from lb_stream.query.past.undo_commands import find_opposites
from tests.support.command_rounds import FIRST, GIVEN, OTHER, SECOND, command, play, view
from tests.support.wordings import check_wording

BROKERS = ("a:1", "b:1", "c:1")
OWNED = {"a:1": [FIRST], "b:1": [SECOND], "c:1": [OTHER]}
ORDER = RolloutOrder("roll", "User:ann", 900, BROKERS)


def progress(**phases: str) -> RolloutProgress:
    """a="empty": the broker a:1 is empty, the longer the earlier it is named."""
    brokers: dict[str, Any] = {name: BrokerProgress() for name in BROKERS}
    for number, (name, phase) in enumerate(phases.items()):
        brokers[f"{name}:1"] = BrokerProgress(phase, since_ms=1_000 + number)  # type: ignore[arg-type]
    return RolloutProgress("roll", 900, brokers)


def memory(order: RolloutOrder | None = ORDER, **phases: str) -> Memory:
    return Memory(
        operator_state=OperatorState(rollout=order),
        rollout=None if order is None else progress(**phases),
    )


def give(kind: str, before: Memory = memory(None), **fields: Any) -> CommandAnswer:  # noqa: B008
    return play(view(**OWNED), before, command(kind, **fields)).results[0]


def ordered(kind: str, before: Memory = memory(None), **fields: Any) -> RolloutOrder:  # noqa: B008
    """The order after a command that is not refused."""
    made = play(view(**OWNED), before, command(kind, **fields))
    assert made.results[0].outcome in ("done", "accepted"), made.results[0].text
    order = made.memory.operator_state.rollout
    assert order is not None
    return order


# --- rollout-start ---


def test_a_rollout_is_of_all_brokers_that_are_alive_and_begins_nothing_by_itself() -> None:
    answer = give("rollout-start")
    assert answer.outcome == "done"
    check_wording(answer.text)
    assert ordered("rollout-start") == RolloutOrder("x", "User:ann", 900, BROKERS)


@pytest.mark.parametrize(
    ("fields", "order"),
    [
        ({"of": ["[ab]"]}, {"brokers": ("a:1", "b:1")}),
        ({"of": ["a", "c:1"]}, {"brokers": ("a:1", "c:1")}),
        ({"in_order": ["c:1", "a:1"]}, {"brokers": ("c:1", "a:1"), "in_order": True}),
        ({"canary": "http://b:1"}, {"canary": "b:1"}),
        ({"at_most": 2, "version": "5.0.1"}, {"at_most": 2, "version": "5.0.1"}),
        (
            {"continues": True, "even_if_full": True},
            {"wanted": 3, "continues": True, "even_if_full": True},
        ),
    ],
)
def test_a_rollout_has_the_brokers_and_the_options_that_were_given(
    fields: dict[str, Any], order: dict[str, Any]
) -> None:
    wanted = replace(RolloutOrder("x", "User:ann", 900, BROKERS), **order)
    assert ordered("rollout-start", **fields) == wanted


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"of": ["d.*"]}, "unknown_broker"),
        ({"of": ["("]}, "not_an_expression"),
        ({"in_order": ["a:1", "d:1"]}, "unknown_broker"),
        ({"canary": "d:1"}, "unknown_broker"),
        ({"of": ["a"], "canary": "b:1"}, "unknown_broker"),
        ({"at_most": 3}, "too_few_brokers"),
    ],
)
def test_a_rollout_of_other_brokers_or_of_all_at_once_is_refused(
    fields: dict[str, Any], rule: str
) -> None:
    answer = give("rollout-start", **fields)
    assert (answer.outcome, answer.rule) == ("refused", rule)
    check_wording(answer.text)


def test_a_rollout_leaves_out_brokers_that_are_not_alive_and_refuses_those_it_names() -> None:
    seen = view(**OWNED)
    dead = replace(seen.brokers, seen_ms=seen.brokers.seen_ms.copy())
    dead.seen_ms[2] -= 3_600_000
    silent = replace(seen, brokers=dead)
    (answer,) = play(silent, Memory(), command("rollout-start")).results
    assert answer.outcome == "done"
    check_wording(answer.text)
    for fields in ({"in_order": ["a:1", "c:1"]}, {"canary": "c:1"}, {"of": ["c"]}):
        (answer,) = play(silent, Memory(), command("rollout-start", **fields)).results
        assert (answer.outcome, answer.rule) == ("refused", "not_alive")


def test_a_second_rollout_and_one_in_a_dry_run_are_refused() -> None:
    answer = give("rollout-start", memory())
    assert (answer.outcome, answer.rule) == ("refused", "rollout_on")
    check_wording(answer.text)
    made = play(view(**OWNED), Memory(), command("rollout-start"), given=GIVEN | {"dry_run": True})
    assert (made.results[0].outcome, made.results[0].rule) == ("refused", "dry_run")


@pytest.mark.parametrize(
    "fields",
    [
        {"of": ["a"], "in_order": ["a:1"]},
        {"in_order": ["a:1", "http://a:1"]},
        {"in_order": ["a:1", "b:1"], "canary": "b:1"},
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        command("rollout-start", **fields)
    with pytest.raises(BadForm) as error:
        operation("rollout-start").check_given(fields)
    check_wording(error.value)


def test_the_form_of_a_console_gives_patterns_with_spaces_between() -> None:
    given = {"of": "a b.*", "in_order": "", "canary": "", "at_most": "2", "version": ""}
    assert operation("rollout-start").fields_from_form(given) == {
        "of": ["a", "b.*"],
        "at_most": "2",
    }
    given = {"in_order": "c:1, a:1 b:1", "continues": "true"}
    fields = operation("rollout-start").fields_from_form(given)
    order = ordered("rollout-start", **fields)
    assert (order.brokers, order.wanted) == (("c:1", "a:1", "b:1"), 3)


def test_an_empty_version_is_wrong_usage() -> None:
    """No broker would ever report it: an unset variable of a shell gives it."""
    with pytest.raises(ValidationError):
        command("rollout-start", version="")


# --- rollout-next ---


@pytest.mark.parametrize("kind", ["next", "pause", "resume", "abort"])
def test_without_a_rollout_nothing_can_be_done_to_one(kind: str) -> None:
    answer = give(f"rollout-{kind}")
    assert (answer.outcome, answer.rule) == ("refused", "no_rollout")
    over = give(f"rollout-{kind}", memory(replace(ORDER, aborted=True)))
    assert (over.outcome, over.rule) == ("refused", "no_rollout")


@pytest.mark.parametrize(
    ("order", "phases", "wanted"),
    [
        ({}, {}, 1),
        ({"wanted": 1}, {"a": "done"}, 2),
        ({"wanted": 1}, {"a": "down"}, 2),
        ({"wanted": 1, "at_most": 2}, {"a": "draining"}, 2),
        ({}, {"a": "done"}, 2),  # it restarted out of turn: that is no broker that was asked for
        ({"wanted": 1}, {"a": "draining"}, 1),  # as many as allowed are begun: it waits for a
        ({"wanted": 1}, {}, 1),  # one is asked for already, and not yet begun
        ({"wanted": 3}, {"a": "draining"}, 3),
    ],
)
def test_next_lets_one_more_broker_begin_unless_as_many_as_allowed_are(
    order: dict[str, Any], phases: dict[str, str], wanted: int
) -> None:
    before = memory(replace(ORDER, **order), **phases)
    assert give("rollout-next", before).outcome == "accepted"
    assert ordered("rollout-next", before).wanted == wanted


def test_next_names_at_once_the_broker_that_is_empty_already() -> None:
    before = memory(replace(ORDER, wanted=1), b="empty")
    accepted, answer = play(view(**{**OWNED, "b:1": []}), before, command("rollout-next")).results
    assert accepted.outcome == "accepted"
    assert (answer.outcome, answer.text.partition(" ")[0]) == ("done", "b:1")
    check_wording(answer.text)


@pytest.mark.parametrize(
    "phases",
    [
        {"a": "done", "b": "done", "c": "down"},
        {"a": "done", "b": "done", "c": "done"},
    ],
)
def test_next_is_refused_when_no_broker_is_left(phases: dict[str, str]) -> None:
    answer = give("rollout-next", memory(replace(ORDER, wanted=3), **phases))
    assert (answer.outcome, answer.rule) == ("refused", "rollout_done")
    check_wording(answer.text)


def test_next_is_refused_while_the_rollout_is_paused() -> None:
    answer = give("rollout-next", memory(replace(ORDER, paused=True)))
    assert (answer.outcome, answer.rule) == ("refused", "rollout_paused")


@pytest.mark.parametrize("phase", ["draining", "empty"])
def test_next_with_a_broker_waits_for_that_one_if_it_is_begun_already(phase: str) -> None:
    before = memory(replace(ORDER, wanted=2, at_most=2), a="empty", b=phase)
    held = {**OWNED, "b:1": [SECOND] if phase == "draining" else []}
    made = play(view(**held), before, command("rollout-next", broker="http://b:1"))
    assert made.results[0].outcome == "accepted"
    check_wording(made.results[0].text)
    waiting = made.memory.operator_state.waiting
    assert [each.broker for each in waiting] == (["b:1"] if phase == "draining" else [])


@pytest.mark.parametrize(
    ("order", "phases"),
    [
        ({}, {}),
        ({"in_order": True}, {}),  # the command counts more than the order
        ({"canary": "c:1"}, {}),
        ({"canary": "a:1", "wanted": 1}, {"a": "done"}),
        ({"wanted": 1}, {"a": "down"}),  # it waits until that one is back
        ({"at_most": 2, "wanted": 1}, {"a": "draining"}),
    ],
)
def test_next_with_a_broker_lets_that_one_begin(
    order: dict[str, Any], phases: dict[str, str]
) -> None:
    before = memory(replace(ORDER, **order), **phases)
    made = play(view(**OWNED), before, command("rollout-next", broker="c:1"))
    assert made.results[0].outcome == "accepted", made.results[0].text
    (waiting,) = made.memory.operator_state.waiting
    after = made.memory.operator_state.rollout
    assert waiting.broker == "c:1" and after is not None
    assert after.wanted == len(phases) + 1
    again = play(view(**OWNED), made.memory, command("rollout-next", "y", broker="c:1"))
    assert again.memory.operator_state.rollout == after, "the same broker is begun once"


@pytest.mark.parametrize(
    ("order", "phases", "rule"),
    [
        ({}, {"a": "draining"}, "rollout_at_most"),
        ({"wanted": 1}, {}, "rollout_at_most"),  # one is to be begun already
        ({"at_most": 2, "wanted": 2}, {"a": "draining", "b": "empty"}, "rollout_at_most"),
        ({"canary": "a:1"}, {}, "rollout_canary"),
        ({"paused": True}, {}, "rollout_paused"),
        ({}, {"c": "done"}, "rollout_done"),
        ({}, {"c": "down"}, "not_alive"),
        ({"brokers": ("a:1", "b:1")}, {}, "unknown_broker"),
    ],
)
def test_next_with_a_broker_whose_turn_the_order_does_not_allow_is_refused(
    order: dict[str, Any], phases: dict[str, str], rule: str
) -> None:
    answer = give("rollout-next", memory(replace(ORDER, **order), **phases), broker="c:1")
    assert (answer.outcome, answer.rule) == ("refused", rule)
    check_wording(answer.text)


def follow(
    order: RolloutOrder | None,
    *others: str | None,
    broker: str | None = None,
    called: str | None = None,
    pending: tuple[Pending, ...] = (),
    refused: tuple[Refusal, ...] = (),
    **phases: str,
) -> Any:
    """What becomes of a `rollout-next`; `others`: brokers of earlier ones that wait.

    `called`: the broker that the command names.
    """

    def waiting(name: str, broker: str | None, called: str | None = None) -> WaitingCommand:
        head = {"id": name, "kind": "rollout-next", "arguments": {"broker": called}}
        return WaitingCommand(head, "", broker=broker)

    own = waiting("own", called or broker, called)
    queue = (*(waiting(f"other-{at}", name) for at, name in enumerate(others)), own)
    state = OperatorState(rollout=order, waiting=queue)
    settled, far = Settled((), pending), progress(**phases)
    now = Progress(view(**OWNED), settled, (), (), True, state, far, refused)
    return RolloutNext.follow(now, own)


def test_a_broker_is_found_once_it_is_begun_and_the_command_is_done_once_it_is_empty() -> None:
    wanted = replace(ORDER, wanted=1)
    assert follow(wanted).broker is None
    assert follow(wanted, b="draining").broker == "b:1"
    assert follow(wanted, broker="b:1", b="draining").broker == "b:1"
    ended = follow(wanted, broker="b:1", b="empty")
    assert (ended.outcome, ended.text.partition(" ")[0]) == ("done", "b:1")
    check_wording(ended.text)


def test_another_command_gets_another_broker_where_an_earlier_one_is_empty_already() -> None:
    """The first command is done, and somebody may be restarting its broker."""
    began = progress(a="empty")
    old = {name: replace(broker, since_ms=500) for name, broker in began.brokers.items()}
    before = memory(replace(ORDER, wanted=1, at_most=2))
    before = replace(before, rollout=replace(began, brokers=old))
    held = {"a:1": [], "b:1": [SECOND], "c:1": [OTHER]}
    made = play(view(**held), before, command("rollout-next"))
    (waiting,) = made.memory.operator_state.waiting
    assert waiting.broker in ("b:1", "c:1")
    assert [answer.outcome for answer in made.results] == ["accepted"]
    # No third one may be begun: then it is the one that has been empty for longest.
    third = play(view(**held), made.memory, command("rollout-next", "y"))
    assert [answer.outcome for answer in third.results] == ["accepted", "done"]
    assert third.results[1].text.partition(" ")[0] == "a:1"


@pytest.mark.parametrize(
    ("order", "phases", "refused"),
    [
        ({}, {"c": "down"}, None),
        ({}, {"c": "done"}, None),
        ({"paused": True}, {}, None),
        ({"wanted": 0}, {}, None),
        ({}, {}, refusal(Refuses.ROLLOUT_ANTI_AFFINITY, "c:1", ["t/n"])),
        ({}, {}, refusal(Refuses.ROLLOUT_STANDS_STILL, None, ["a:1"], saw=[2.0], limit=1)),
    ],
)
def test_a_named_broker_that_is_not_begun_fails_its_command_and_is_not_begun_later(
    order: dict[str, Any], phases: dict[str, str], refused: Refusal | None
) -> None:
    refusals = () if refused is None else (refused,)
    ended = follow(
        replace(ORDER, **{"wanted": 1} | order), called="c:1", refused=refusals, **phases
    )
    assert ended.outcome == "failed"
    check_wording(ended.text)
    assert not ended.changes or ended.changes["rollout"].wanted == 0


def test_a_named_broker_is_waited_for_until_a_round_may_begin_it() -> None:
    """Another one may have to come back first, or the cluster is suspended."""
    waits = follow(replace(ORDER, wanted=2), called="c:1", a="down")
    assert waits.broker == "c:1"
    other = refusal(Refuses.ROLLOUT_TOO_FULL, "b:1", ["cpu"], saw=[1.2], limit=1)
    assert follow(replace(ORDER, wanted=2), called="c:1", refused=(other,), a="done") == waits


def test_two_commands_get_two_brokers_and_share_one_when_no_other_can_be_begun() -> None:
    two = replace(ORDER, wanted=2, at_most=2)
    assert follow(two, None, a="draining").broker is None  # the first one gets it
    assert follow(two, None, a="draining", b="draining").broker == "b:1"
    assert follow(two, "a:1", a="draining", b="draining").broker == "b:1"
    assert follow(replace(ORDER, wanted=1), "a:1", a="draining").broker == "a:1"


@pytest.mark.parametrize(
    ("order", "broker", "phases"),
    [
        (None, None, {}),
        (replace(ORDER, aborted=True), "a:1", {"a": "draining"}),
        (replace(ORDER, wanted=1), None, {"a": "done"}),
        (replace(ORDER, wanted=1, paused=True), None, {}),
        (replace(ORDER, wanted=1, paused=True), "a:1", {"a": "draining"}),
        (replace(ORDER, wanted=1), "a:1", {"a": "down"}),
        (replace(ORDER, wanted=1), "a:1", {"a": "done"}),
        (replace(ORDER, wanted=1), "a:1", {}),
    ],
)
def test_a_command_that_waits_in_vain_fails_and_says_why(
    order: RolloutOrder | None, broker: str | None, phases: dict[str, str]
) -> None:
    ended = follow(order, broker=broker, **phases)
    assert ended.outcome == "failed"
    check_wording(ended.text)


def test_an_empty_broker_is_named_once_the_bundles_that_left_it_are_at_other_brokers() -> None:
    wanted = replace(ORDER, wanted=1)
    assign = Pending("d", "assign", FIRST, None, "a:1", 900, 9_000, version=2, former="b:1")
    assert follow(wanted, broker="b:1", pending=(assign,), b="empty").broker == "b:1"
    other = replace(assign, former="c:1")
    assert follow(wanted, broker="b:1", pending=(other,), b="empty").outcome == "done"


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ({"wanted": 2}, 1),  # one is asked for, and may not be begun: the credit goes back
        ({"wanted": 3, "continues": True}, None),  # it goes on by itself, once it may
        ({"wanted": 2, "paused": True}, 1),
    ],
)
def test_a_command_fails_at_once_if_no_broker_may_be_begun_and_none_is_begun_later_for_it(
    order: dict[str, Any], wanted: int | None
) -> None:
    full = refusal(Refuses.ROLLOUT_TOO_FULL, "b:1", ["cpu"], saw=[1.2], limit=1)
    ended = follow(replace(ORDER, **order), refused=(full,), a="done")
    assert ended.outcome == "failed"
    check_wording(ended.text)
    after = ended.changes["rollout"].wanted if ended.changes else None
    assert after == wanted


def test_next_is_refused_in_a_dry_run() -> None:
    made = play(view(**OWNED), memory(), command("rollout-next"), given=GIVEN | {"dry_run": True})
    assert (made.results[0].outcome, made.results[0].rule) == ("refused", "dry_run")
    resting = refusal(Refuses.ROLLOUT_DRY_RUN, None)
    ended = follow(replace(ORDER, wanted=1), broker="a:1", refused=(resting,), a="draining")
    assert ended.outcome == "failed"
    check_wording(ended.text)


def test_a_broker_that_is_left_out_is_not_waited_for() -> None:
    order = replace(ORDER, wanted=1, resumed_ms=5_000, left_out=("a:1",))
    assert ordered("rollout-next", memory(order, a="draining")).wanted == 2


# --- settle ---


@pytest.mark.parametrize(
    ("broker", "phase", "outcome", "rule"),
    [
        ("a:1", "empty", "done", None),
        ("a:1", "down", "done", None),
        ("a:1", "done", "done", None),
        ("a:1", "draining", "refused", "not_empty"),
        ("a:1", "waiting", "refused", "not_empty"),
        ("d:1", "empty", "refused", "unknown_broker"),
    ],
)
def test_a_broker_that_is_empty_or_away_can_be_said_to_have_restarted(
    broker: str, phase: str, outcome: str, rule: str | None
) -> None:
    answer = give("rollout-settle", memory(a=phase), broker=broker)
    assert (answer.outcome, answer.rule) == (outcome, rule)
    check_wording(answer.text)
    if phase in ("empty", "down") and rule is None:
        assert ordered("rollout-settle", memory(a=phase), broker=broker).restarted == (broker,)


def test_a_word_that_a_broker_has_restarted_is_refused_if_its_reports_show_it() -> None:
    seen = view(**OWNED)
    starts = np.array([5_000, 0, 0])
    told = replace(seen, brokers=replace(seen.brokers, start_ms=starts))
    (answer,) = play(told, memory(a="empty"), command("rollout-settle", broker="a:1")).results
    assert (answer.outcome, answer.rule) == ("refused", "reports_start")


# --- pause, resume, abort ---


def test_a_pause_ends_with_resume_from_which_on_missing_brokers_hold_up_nothing() -> None:
    paused = ordered("rollout-pause", memory(a="draining"))
    assert paused == replace(ORDER, paused=True)
    assert ordered("rollout-resume", memory(paused)) == replace(ORDER, resumed_ms=1_000)
    by_itself = ordered("rollout-resume", memory(paused), continues=True)
    assert (by_itself.wanted, by_itself.continues) == (3, True)
    check_wording(give("rollout-pause", memory(a="draining")).text)
    check_wording(give("rollout-pause", memory(paused)).text)
    check_wording(give("rollout-resume", memory(paused)).text)
    check_wording(give("rollout-resume", memory(), continues=True).text)


LATE = GIVEN | {"rollout_back_within_ms": 1_000}


@pytest.mark.parametrize(
    ("order", "fields", "given", "left_out"),
    [
        ({}, {}, GIVEN, ("b:1",)),  # the operator's word, before the rollout stands still
        ({"paused": True}, {}, GIVEN, ()),
        ({}, {"continues": True}, GIVEN, ()),
        ({"continues": True}, {"continues": True}, GIVEN, ("b:1",)),
        ({}, {"continues": True}, LATE, ("a:1", "b:1")),
        ({"paused": True}, {}, LATE, ("b:1",)),  # a:1 was to keep what it had
    ],
)
def test_resume_leaves_out_brokers_that_are_not_back(
    order: dict[str, Any], fields: dict[str, Any], given: Any, left_out: tuple[str, ...]
) -> None:
    began = progress(a="draining", b="down")
    old = {name: replace(broker, since_ms=0) for name, broker in began.brokers.items()}
    before = replace(memory(replace(ORDER, **order)), rollout=replace(began, brokers=old))
    made = play(view(**OWNED), before, command("rollout-resume", **fields), given=given)
    after = made.memory.operator_state.rollout
    assert after is not None and after.left_out == left_out
    check_wording(made.results[0].text)


def test_an_abort_ends_the_rollout_that_it_names_or_whichever_is_on() -> None:
    before = memory(a="done", b="draining")
    answer = give("rollout-abort", before)
    assert answer.outcome == "done"
    check_wording(answer.text)
    assert give("rollout-abort", before, rollout="roll").outcome == "done"
    other = give("rollout-abort", before, rollout="another")
    assert (other.outcome, other.rule) == ("refused", "no_rollout")
    check_wording(other.text)


# --- undo ---


def undo(kind: str, before: RolloutOrder | None, **arguments: Any) -> list[tuple[str, Any]]:
    state = OperatorState(rollout=before)
    found = find_opposites(kind, arguments, state, 1_000, command_id="roll")
    return [(each.kind, each.arguments) for each in found]


def test_undo_aborts_the_rollout_that_a_command_started_and_no_other() -> None:
    assert undo("rollout-start", None) == [("rollout-abort", {"rollout": "roll"})]
    (abort,) = find_opposites("rollout-start", {}, OperatorState(), 1_000, "roll")
    assert abort.explain_lost(OperatorState(rollout=ORDER)) is None
    assert abort.explain_lost(OperatorState(rollout=replace(ORDER, id="later"))) is not None
    assert abort.explain_lost(OperatorState()) is not None and abort.is_in_force(
        OperatorState(), 1_000
    )


def test_undo_ends_a_pause_or_sets_it_again() -> None:
    paused = replace(ORDER, paused=True)
    assert undo("rollout-pause", ORDER) == [("rollout-resume", {"continues": False})]
    assert undo("rollout-pause", paused) == []
    assert undo("rollout-resume", paused) == [("rollout-pause", {})]
    assert undo("rollout-resume", ORDER) == []


@pytest.mark.parametrize("kind", ["rollout-next", "rollout-abort", "rollout-settle"])
def test_what_undo_cannot_take_back_it_says_with_advice(kind: str) -> None:
    arguments = {"broker": "a:1"} if kind == "rollout-settle" else {}
    with pytest.raises(CannotUndo) as error:
        undo(kind, ORDER, **arguments)
    check_wording(error.value)
