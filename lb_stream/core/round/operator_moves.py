"""Unloads, splits and merges that operators have commanded: checked like all others, decided with
the reason Admin.

Back-off, the grace period after an unload, thresholds and a namespace's maximum of bundles don't
hold an operator up; limits on moves under way, policies and what is under way already do. What
limits leave no room for is refused, or queued where the command says so. See docs/commands.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.contracts.commands import MOST_QUEUED
from lb_stream.contracts.decisions import Explain
from lb_stream.core.commands.apply import destination_of
from lb_stream.core.commands.base import MoveCommand, named
from lb_stream.core.commands.responder import BundleAnswer, Received
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.names import bundle_name, is_system_bundle, namespace_of, parse_bundle
from lb_stream.core.model.operator_state import Waiting
from lb_stream.core.model.policies import describe_no_match
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.rules import Decides, Rule
from lb_stream.core.model.topics import namespace_of_topic, topic_hash
from lb_stream.core.model.view import Rows
from lb_stream.core.round.approval import approve
from lb_stream.core.round.assign import assign, find_too_few_brokers
from lb_stream.core.round.limits import MoveBudget
from lb_stream.core.round.merge import advised_pairs, explain_overlap, merge
from lb_stream.core.round.shed import preselects
from lb_stream.core.round.state import Division, RoundState
from lb_stream.core.splitting.manual import (
    REASON,
    Accepted,
    NamespaceBundles,
    NoChange,
    SplitRequest,
    manual_split,
)

STRATEGY = "operator"
STATUS_RULES = {400: "bad_request", 404: "not_found", 409: "not_served", 412: "precondition_failed"}


def obey_moves(state: RoundState, commands: Iterable[Received], suspended: Refusal | None) -> None:
    """Decide what was commanded and answer each command.

    `suspended`: why nothing may be decided now, if so.
    """
    # the second of two in one batch is answered as the first was
    for received in state.responder.new(commands):
        command, before = received.command, len(state.decisions)
        if not isinstance(command, MoveCommand):
            raise TypeError(f"{command.kind} makes no decisions")
        if suspended is not None:
            text = (
                f"nothing is decided while {suspended.rule.replace('_', ' ')} is seen: "
                f"{named(suspended.subjects)}"
            )
            answers = [BundleAnswer("refused", text, suspended.rule)]
        else:
            answers = command.decide(OperatorMoves(state, str(received.head["by"])))
        _answer(state, received, answers, before)


@dataclass(frozen=True, slots=True)
class OperatorMoves:
    """What a command that makes decisions is handed: the round's bundles, and what may be done with
    them.

    `by`: who sent the command.
    """

    state: RoundState
    by: str

    def refused(self, rule: str, text: str) -> BundleAnswer:
        """Return that nothing is decided: which rule refuses it, and why."""
        return BundleAnswer("refused", text, rule)

    def nothing(self, text: str) -> BundleAnswer:
        """Return that there is nothing to decide."""
        return BundleAnswer("nothing", text)

    # what there is

    def rows_of(self, namespace: str) -> list[int]:
        """Return the rows of a namespace's bundles."""
        rows = self.state.view.bundles.rows_of_namespace(namespace)
        return list(range(rows.start, rows.stop))

    def unknown_namespace(self, namespace: str) -> BundleAnswer:
        """Refuse a command about a namespace without known bundles."""
        return _unknown_namespace(namespace)

    def find_bundle(self, namespace: str, given: str) -> int | BundleAnswer:
        """Return the row of a bundle that is given by its range, or why there is none."""
        return _find_bundle(self.state, namespace, given)

    def reachable_brokers(self) -> dict[str, int]:
        """Return the brokers that bundles may be sent to → their rows."""
        brokers = self.state.view.brokers
        return {brokers.names[row]: row for row in np.flatnonzero(brokers.reachable).tolist()}

    def served_or_moving(self, rows: Iterable[int]) -> list[int]:
        """Return the rows of the bundles that have an owner, or are on their way to one."""
        bundles = self.state.view.bundles
        return [row for row in rows if bundles.owner[row] >= 0 or bundles.in_flight[row]]

    # what may be done

    def unload(
        self, rows: Iterable[int], destination: int | None, *, queue: bool, command_id: str
    ) -> list[BundleAnswer]:
        """Decide moves. `queue`: what limits leave no room for waits for it."""
        state = self.state
        queue = queue and not state.config.balancer.dry_run
        room = MoveBudget.of(state)
        answers = [_unload_bundle(state, row, destination, room, queue) for row in rows]
        _take_place_of_queued(state, answers, command_id)
        return _as_queue_has_room(state, answers)

    def bundle_of_topic(self, namespace: str, topic: str) -> str | BundleAnswer:
        """Return the range of the bundle that a topic is in, or why there is none."""
        bundles = self.state.view.bundles
        rows = _present_rows(self.state, namespace)
        if not len(rows):
            return _unknown_namespace(namespace)
        return _bundle_of_topic(namespace, topic, [bundles.name(row) for row in rows.tolist()])

    def split(self, request: SplitRequest) -> BundleAnswer:
        """Decide a split."""
        return _split(self.state, request)

    def merge(self, low: int, high: int) -> BundleAnswer:
        """Decide the merge of the bundles in two rows."""
        state = self.state
        return _pending(state, low) or _pending(state, high) or merge(state, low, high)

    def merge_advised(self, namespace: str, most: int) -> list[BundleAnswer]:
        """Decide merges of pairs of a namespace that people are advised to merge."""
        pairs = advised_pairs(self.state, namespace, most)
        if pairs:
            return [self.merge(low, high) for low, high in pairs]
        looks = self.state.config.splitting.merge_advice_enabled
        why = "" if looks else ", merge_advice_enabled is false"
        text = f"no bundles of {namespace} are advised to be merged{why}: nothing to do"
        return [BundleAnswer("nothing", text)]

    def assign(self, namespace: str, given: str) -> BundleAnswer:
        """Give a bundle that is given by its range an owner."""
        row = self.find_bundle(namespace, given)
        return _assign(self.state, row) if isinstance(row, int) else row

    def approve(self, proposals: Sequence[str], even_if_worse: bool) -> list[BundleAnswer]:
        """Make the decisions of these proposals, as far as they still can be made."""
        return approve(self.state, proposals, self.by, even_if_worse)


def drain(state: RoundState) -> None:
    """Unload what is left on drained brokers, and the bundles of deleted namespaces, as far as the
    limits leave room."""
    operator_state, view = state.memory.operator_state, state.view
    for broker in operator_state.drained:
        if broker in view.brokers.names:
            row = view.brokers.names.index(broker)
            # what was split elsewhere goes by itself
            free = state.free_bundles() & ~state.overlapped.moving
            mine = np.flatnonzero(free & (view.bundles.owner == row))
            _unload_all(state, mine.tolist(), Decides.DRAINED)
    for namespace in operator_state.deleted:
        mine = np.zeros(len(view.bundles), np.bool_)
        mine[view.bundles.rows_of_namespace(namespace)] = True
        served = (
            mine & state.free_bundles() & np.append(view.brokers.alive, False)[view.bundles.owner]
        )
        _unload_all(state, np.flatnonzero(served).tolist(), Decides.NAMESPACE_DELETED)


def _unload_all(state: RoundState, rows: list[int], rule: Rule) -> None:
    room, refused = MoveBudget.of(state), list[Refusal]()
    for row in rows:
        source = int(state.view.bundles.owner[row])
        full = room.refusal([(row, source)])
        choice = state.place(row) if full is None and rule is Decides.DRAINED else None
        if full is not None:
            refused.append(full)
            break
        if choice is None and rule is Decides.DRAINED:
            refused += state.no_candidate(row, state.view.brokers.names[source])
            continue
        named_now = (
            preselects(state) or state.config.balancer.assign_unowned == "on_lookup"
        )  # at a lookup its broker may take it back
        _decide_unload(
            state, row, choice.destination if choice is not None and named_now else None, rule
        )
        room.take(row, source)
    if state.view.brokers.sampled.any():
        state.refusals += refused


def _decide_unload(state: RoundState, row: int, destination: int | None, rule: Rule) -> None:
    transfer = destination is not None and state.config.balancer.load_manager == "extensible"
    source = state.view.brokers.names[int(state.view.bundles.owner[row])]
    state.decide(
        "transfer" if transfer else "unload",
        row,
        source,
        destination,
        reason=REASON,
        rule=rule,
        strategy=STRATEGY,
        explain=Explain(unit=""),
    )


def _unknown_namespace(namespace: str) -> BundleAnswer:
    text = f"no bundle of a namespace {namespace} is known"
    return BundleAnswer("refused", text, "unknown_namespace")


def _find_bundle(state: RoundState, namespace: str, given: str) -> int | BundleAnswer:
    """Return the row of a bundle given by its range, or why there is none."""
    bundles = state.view.bundles
    try:
        parsed = parse_bundle(f"{namespace}/{given.lower()}")
    except ValueError as error:
        return BundleAnswer("refused", str(error), "not_a_bundle")
    (row,) = bundles.rows_of([bundle_name(*parsed)]).tolist()
    if row < 0:
        ranges = [
            name.rpartition("/")[2]
            for name in bundles.names[bundles.rows_of_namespace(namespace)].to_pylist()
        ]
        if not ranges:
            return _unknown_namespace(namespace)
        return BundleAnswer(
            "refused",
            f"{namespace} has no bundle {given}; it has {named(ranges)}",
            "unknown_bundle",
        )
    return int(row)


def _pending(state: RoundState, row: int) -> BundleAnswer | None:
    """The decision about the bundle that is not confirmed yet, as a reason to decide nothing else.
    The decision about the bundle that is not confirmed yet, as a reason to decide nothing else."""
    busy = state.describe_busy(state.view.bundles.name(row))
    return None if busy is None else BundleAnswer("refused", busy, "in_flight")


def _unload_bundle(
    state: RoundState, row: int, destination: int | None, room: MoveBudget, queue: bool
) -> BundleAnswer:
    """Decide one move, and say what has become of it. `queue`: for want of room it is to wait."""
    view, name = state.view, state.view.bundles.name(row)
    if view.bundles.system[row]:
        return _system_bundle(name)
    if state.under_way(name) is not None:  # a move that is queued makes room for this one
        return BundleAnswer("refused", str(state.describe_busy(name)), "in_flight")
    owner = int(view.bundles.owner[row])
    if owner < 0:
        if state.config.balancer.load_manager == "extensible":
            return BundleAnswer("refused", f"nobody owns {name}", "unowned")
        return BundleAnswer("nothing", f"nobody owns {name}: nothing to do")
    if state.overlapped.moving[row]:
        return explain_overlap(state, row)
    if destination is not None:
        wanted = view.brokers.names[destination]
        if destination == owner and state.describe_busy(name) is not None:
            kept = f"{wanted} keeps {name}: the move that was queued is cancelled"
            return BundleAnswer("nothing", kept, bundle=name)
        if destination == owner:
            return BundleAnswer("refused", f"{wanted} owns {name} already", "destination_is_owner")
        if (
            policy := state.candidates.find_refusing_policy(row, destination, state.targets)
        ) is not None:
            return BundleAnswer(
                "refused", f"{wanted} may not have {name}: {policy.replace('_', ' ')}", policy
            )
    to = "" if destination is None else f" for {view.brokers.names[destination]}"
    leaves = f"{name} leaves {view.brokers.names[owner]}{to}"
    if (full := room.refusal([(row, owner)])) is not None:
        if queue:
            return BundleAnswer("queued", leaves, None, name, full)
        return BundleAnswer("refused", f"{name}: {_describe_limit(full)}", full.rule)
    room.take(row, owner)
    _decide_unload(state, row, destination, Decides.UNLOAD_COMMAND)
    return BundleAnswer("decided", leaves, None, name)


def _describe_limit(full: Refusal) -> str:
    return f"{full.rule.replace('_', ' ')} {full.least:.0f}, allowed {full.limit:.0f} {full.unit}"


# --- moves that wait for room within the limits ---


def move_queued(state: RoundState) -> None:
    """Decide the moves in the queue that limits leave room for now, in the order of their commands.

    What waits on counts as carried out, for balancing and for placement: nothing else takes its
    room at its destination. What can't be any more fails.
    """
    if not state.queued_moves():
        return
    queue = _Queue.of(state)
    waiting = tuple(
        queue.move(command) if command.queued else command
        for command in state.responder.operator_state.waiting
    )
    state.responder.change(waiting=waiting)
    rows = queue.rows
    brokers = {name: row for row, name in enumerate(state.view.brokers.names)}
    for move in state.queued_moves():
        if move.destination in brokers and rows[move.bundle] >= 0:
            state.claim(rows[move.bundle], brokers[move.destination])
    if state.view.brokers.sampled.any():
        state.refusals += queue.held


@dataclass(frozen=True, slots=True)
class _Queue:
    """What a look at the queue needs to know, and the limits that held moves up."""

    state: RoundState
    room: MoveBudget
    rows: Mapping[str, int]  # of the bundles that are queued
    busy: frozenset[str]  # bundles that decisions under way are about
    held: list[Refusal]

    @staticmethod
    def of(state: RoundState) -> _Queue:
        """As things stand in this round."""
        names = [move.bundle for move in state.queued_moves()]
        rows = dict(zip(names, state.view.bundles.rows_of(names).tolist(), strict=True))
        pending = (name for pending in state.memory.pending for name in pending.bundles)
        decided = (name for decision in state.decisions for name in decision.bundles)
        busy = frozenset((*pending, *decided))
        return _Queue(state, MoveBudget.of(state), rows, busy, [])

    def move(self, waiting: Waiting) -> Waiting:
        """Decide what there is room for of one command's moves; what is left of it."""
        answers = {bundle: self._move(bundle, destination_of(waiting)) for bundle in waiting.queued}
        ends = {bundle: answer for bundle, answer in answers.items() if answer.outcome != "queued"}
        failed = [name for name, answer in ends.items() if answer.outcome == "refused"]
        decided = [made for made in self.state.decisions if made.bundle in ends]
        return replace(
            waiting,
            queued=tuple(bundle for bundle in waiting.queued if bundle not in ends),
            bundles=waiting.bundles + tuple(bundle for bundle in ends if bundle not in failed),
            decision_ids=waiting.decision_ids + tuple(made.decision_id for made in decided),
            failures=waiting.failures + tuple(f"{name}: {ends[name].text}" for name in failed),
        )

    def _move(self, bundle: str, wanted: str | None) -> BundleAnswer:
        """What becomes of one move in this round."""
        state, brokers, row = self.state, self.state.view.brokers, self.rows[bundle]
        waits = BundleAnswer("queued", "")
        if state.config.balancer.dry_run:
            return BundleAnswer("refused", "decisions aren't published any more (dry run)")
        if row < 0:
            return BundleAnswer("refused", "no report names it any more")
        if namespace_of(bundle) in state.responder.operator_state.deleted:
            return BundleAnswer("refused", f"{namespace_of(bundle)} is deleted")
        destination = None
        if wanted is not None:
            if wanted not in brokers.names or not brokers.alive[brokers.names.index(wanted)]:
                return BundleAnswer("refused", f"{wanted} is not alive any more")
            destination = brokers.names.index(wanted)
            if not brokers.speaking[destination]:
                return waits
        owner = int(state.view.bundles.owner[row])
        if bundle in self.busy or owner < 0 or state.overlapped.moving[row]:
            return waits
        if owner == destination:
            return BundleAnswer("nothing", "")
        answer = _unload_bundle(state, row, destination, self.room, queue=True)
        if answer.held_by is not None:
            self.held.append(answer.held_by)
        elif answer.outcome == "decided":
            state.dequeued.add(bundle)
        return answer


def _take_place_of_queued(
    state: RoundState, answers: Iterable[BundleAnswer], command_id: str
) -> None:
    """Take moves out of the queue about whose bundles a later command has said something else."""
    later = {answer.bundle for answer in answers if answer.bundle}
    operator_state = state.responder.operator_state
    if not any(later.intersection(waiting.queued) for waiting in operator_state.waiting):
        return
    waiting = []
    for one in operator_state.waiting:
        old = [bundle for bundle in one.queued if bundle in later]
        kept = tuple(bundle for bundle in one.queued if bundle not in later)
        failed = tuple(f"{bundle}: the command {command_id} came after it" for bundle in old)
        waiting.append(replace(one, queued=kept, failures=one.failures + failed) if old else one)
    state.responder.change(waiting=tuple(waiting))


def _as_queue_has_room(state: RoundState, wanted: list[BundleAnswer]) -> list[BundleAnswer]:
    """The answers; refused is what would wait for ever, and what the queue has no place for."""
    left, unused = MOST_QUEUED - len(state.queued_moves()), MoveBudget.unused(state)
    answers = list[BundleAnswer]()
    for answer in wanted:
        if answer.outcome != "queued":
            answers.append(answer)
            continue
        row = int(state.view.bundles.rows_of([answer.bundle])[0])
        never = unused.refusal([(row, int(state.view.bundles.owner[row]))])
        left -= never is None
        full = f"{answer.bundle}: moves of {MOST_QUEUED} bundles wait for room, as many as may"
        if never is not None:
            text = f"{answer.bundle}: {_describe_limit(never)}"
            answers.append(BundleAnswer("refused", text, never.rule))
        elif left < 0:
            answers.append(BundleAnswer("refused", full, "too_many_queued"))
        else:
            answers.append(answer)
    return answers


# --- splits, merges, lookups ---


def _split(state: RoundState, request: SplitRequest) -> BundleAnswer:
    view, config = state.view, state.config
    rows = _present_rows(state, request.namespace)
    if not len(rows):
        return _unknown_namespace(request.namespace)

    # which bundle, and how
    names = [view.bundles.name(row) for row in rows.tolist()]
    bundles = NamespaceBundles(
        names,
        view.bundles.topics[rows],
        view.bundles.long.throughput[rows],
        view.bundles.owner[rows] >= 0,
    )
    result = manual_split(
        request, bundles, config.splitting, config.split_algorithms, config.balancer.load_manager
    )
    if isinstance(result, NoChange):
        return BundleAnswer("nothing", result.detail)
    if not isinstance(result, Accepted):
        rule = STATUS_RULES.get(result.status, f"status_{result.status}")
        return BundleAnswer("refused", result.detail, rule)

    # whether it can be split now
    name = bundle_name(*result.cut.parent)
    row = int(rows[names.index(name)])
    if (pending := _pending(state, row)) is not None:
        return pending
    if view.bundles.owner[row] < 0:
        return BundleAnswer("refused", f"nobody owns {name}: split it when it is served", "unowned")
    if state.overlapped.reshaping[row]:
        return explain_overlap(state, row)

    source = view.brokers.names[int(view.bundles.owner[row])]
    state.decide(
        "split",
        row,
        source,
        None,
        reason=REASON,
        rule=Decides.SPLIT_COMMAND,
        strategy=STRATEGY,
        explain=Explain(unit=""),
        division=Division(
            result.cut.children, result.cut.boundaries, result.algorithm, result.unload
        ),
    )
    into = f"by {result.algorithm}"
    if result.cut.children:
        into = f"into {named(child.rpartition('/')[2] for child in result.cut.children)}"
    return BundleAnswer("decided", f"{name} is split at {source} {into}")


def _present_rows(state: RoundState, namespace: str) -> Rows:
    """Return the rows of a namespace's bundles, without those that have been split or merged."""
    bundles = state.view.bundles
    mine = bundles.rows_of_namespace(namespace)
    unowned = [row for row in range(mine.start, mine.stop) if bundles.owner[row] < 0]
    gone = superseded(state.view, unowned)
    return np.array([row for row in range(mine.start, mine.stop) if row not in gone], np.intp)


def _assign(state: RoundState, row: int) -> BundleAnswer:
    view, bundles, name = state.view, state.view.bundles, state.view.bundles.name(row)
    if bundles.system[row]:
        return _system_bundle(name)
    if (pending := _pending(state, row)) is not None:
        return BundleAnswer("nothing", pending.text)
    if bundles.owner[row] >= 0:
        return BundleAnswer("nothing", f"{view.brokers.names[int(bundles.owner[row])]} has {name}")
    if row in superseded(view, [row]):
        return BundleAnswer("refused", f"{name} has been split", "unknown_bundle")
    if (few := find_too_few_brokers(state)) is not None:
        text = f"{few.rule}: a new cluster waits for {few.limit:.0f} brokers"
        return BundleAnswer("refused", text, few.rule)
    if not assign(state, row, name, ordered=False):
        why = _describe_isolation(state, name)
        return BundleAnswer("refused", f"no broker may have {name} now{why}", "no_candidate")
    return BundleAnswer("decided", f"{name} is to be {state.decisions[-1].destination}'s")


def _system_bundle(name: str) -> BundleAnswer:
    text = f"{name} is a heartbeat or SLA-monitor bundle: it belongs to its broker"
    return BundleAnswer("refused", text, "system_namespace")


def _describe_isolation(state: RoundState, bundle: str) -> str:
    """That the bundle's isolation policy matches no broker that lives, if so, to end a sentence."""
    view = state.view
    live = [view.brokers.names[row] for row in np.flatnonzero(view.brokers.reachable).tolist()]
    policy = view.policies.isolation_of(namespace_of(bundle))
    found = None if policy is None else describe_no_match(policy, live)
    return "" if found is None else f": {found}"


def _bundle_of_topic(namespace: str, topic: str, names: list[str]) -> str | BundleAnswer:
    """The range of the bundle that a topic is in."""
    try:
        other, hashed = namespace_of_topic(topic), topic_hash(topic)
    except ValueError as error:
        return BundleAnswer("refused", str(error), "not_a_topic")
    if other != namespace:
        return BundleAnswer(
            "refused",
            f"the topic {topic} is in the namespace {other}, not in {namespace}",
            "not_a_topic",
        )
    for name in names:
        if not is_system_bundle(name):
            _, lower, upper = parse_bundle(name)
            if lower <= hashed < upper or hashed == upper == 0xFFFFFFFF:
                return name.rpartition("/")[2]
    return BundleAnswer(
        "refused",
        f"no bundle of {namespace} is known that the topic {topic} (hash 0x{hashed:08x}) would be "
        "in",
        "unknown_bundle",
    )


def _answer(
    state: RoundState, received: Received, answers: list[BundleAnswer], before: int
) -> None:
    """Give a command one answer from those about each bundle.

    `before`: how many decisions there were.
    """
    decisions = state.decisions[before:]
    queued = [answer for answer in answers if answer.outcome == "queued"]
    ids = [decision.decision_id for decision in decisions]
    command = received.command
    assert isinstance(command, MoveCommand)
    text = _summed(answers, command.about)
    rule = next((answer.rule for answer in answers if answer.rule is not None), None)
    if command.is_answered_at_once or not (decisions or queued):
        is_refused = any(answer.outcome == "refused" for answer in answers)
        state.responder.answer(received, "refused" if is_refused else "done", text, rule, ids)
    elif state.config.balancer.dry_run:
        state.responder.answer(
            received, "done", f"dry run, nothing is published: {text}", rule, ids
        )
    else:
        state.responder.answer(received, "accepted", text + _describe_queued(queued), rule, ids)
        waiting = Waiting(
            received.head,
            text,
            tuple(bundle for decision in decisions for bundle in decision.bundles),
            tuple(ids),
            queued=tuple(answer.bundle for answer in queued),
        )
        state.responder.change(waiting=(*state.responder.operator_state.waiting, waiting))


def _describe_queued(queued: list[BundleAnswer]) -> str:
    """That some of a command's moves wait, and for what, to end a sentence."""
    if not queued or queued[0].held_by is None:
        return ""
    waits = "it waits" if len(queued) == 1 else f"{len(queued)} of them wait"
    return f"; {waits} for room: {_describe_limit(queued[0].held_by)}"


def _summed(answers: list[BundleAnswer], what: str) -> str:
    if len(answers) == 1:
        return answers[0].text
    decided = [answer for answer in answers if answer.outcome in ("decided", "queued")]
    rules = Counter(answer.rule for answer in answers if answer.outcome == "refused")
    parts = [f"{len(decided)} of {len(answers)} {what}"]
    firsts = {
        rule: next(answer.text for answer in answers if answer.rule == rule) for rule in rules
    }
    parts += [
        f"{count} refused by {rule}, the first: {firsts[rule]}" for rule, count in rules.items()
    ]
    return "; ".join(parts)
