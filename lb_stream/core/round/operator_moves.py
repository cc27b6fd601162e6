"""Unloads, splits, merges and assigns that operators command. Their reason is Admin.

Back-off, the grace period, thresholds and a namespace's maximum of bundles do not apply to them.
Limits on moves, policies and pending decisions do. A move that exceeds a limit is refused, or
queued if the command has that option. See docs/commands.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lb_stream.contracts.commands import MOST_QUEUED
from lb_stream.contracts.decisions import Decision, Explain
from lb_stream.core.commands.apply import destination_of
from lb_stream.core.commands.base import MoveCommand, named
from lb_stream.core.commands.responder import BundleAnswer, Received
from lb_stream.core.filters.candidates import superseded
from lb_stream.core.model.memory import Pending
from lb_stream.core.model.names import bundle_name, namespace_of, parse_bundle
from lb_stream.core.model.operator_state import WaitingCommand
from lb_stream.core.model.policies import describe_no_match
from lb_stream.core.model.refusals import Refusal
from lb_stream.core.model.releases import NAME_RULES, NameRules
from lb_stream.core.model.rules import Decides, Rule
from lb_stream.core.model.topics import namespace_of_topic, topic_hash
from lb_stream.core.model.view import Rows
from lb_stream.core.round.approval import approve
from lb_stream.core.round.assign import assign, find_too_few_brokers
from lb_stream.core.round.limits import MoveAllowance
from lb_stream.core.round.merge import advised_pairs, explain_overlap, merge, refuse_system_bundle
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


def decide_commands(state: RoundState, commands: Iterable[Received]) -> None:
    """Make the decisions of operators' commands, and answer each command.

    While the cluster is suspended, commands are refused.
    """
    suspended = state.inputs.alive.suspended
    for received in state.responder.new(commands):
        command, before = received.command, len(state.decisions)
        if not isinstance(command, MoveCommand):
            raise TypeError(f"{command.kind} makes no decisions")
        if suspended is not None:
            reason = suspended.rule.replace("_", " ")
            brokers = named(suspended.subjects)
            text = f"nothing is decided while brokers are silent ({reason}): {brokers}"
            answers = [BundleAnswer("refused", text, suspended.rule)]
        else:
            answers = command.decide(OperatorMoves(state, str(received.head["by"])))
        _answer(state, received, answers, before)


@dataclass(frozen=True, slots=True)
class OperatorMoves:
    """The operations of a round that a command may use: its bundles, and decisions about them."""

    state: RoundState
    by: str  # the operator that sent the command

    def refused(self, rule: str, text: str) -> BundleAnswer:
        """Return the answer that a rule refuses the command; `text`: the reason."""
        return BundleAnswer("refused", text, rule)

    def nothing(self, text: str) -> BundleAnswer:
        """Return the answer that there is nothing to decide."""
        return BundleAnswer("nothing", text)

    # --- the bundles and brokers that exist ---

    def rows_of(self, namespace: str) -> list[int]:
        """Return the rows of a namespace's bundles."""
        rows = self.state.view.bundles.rows_of_namespace(namespace)
        return list(range(rows.start, rows.stop))

    def unknown_namespace(self, namespace: str) -> BundleAnswer:
        """Return the refusal of a command about a namespace without known bundles."""
        return _refuse_unknown_namespace(namespace)

    def find_bundle(self, namespace: str, given: str) -> int | BundleAnswer:
        """Return the row of the bundle with a range, or the refusal if there is none."""
        return _find_bundle(self.state, namespace, given)

    def reachable_brokers(self) -> dict[str, int]:
        """Return the brokers that bundles may be sent to → their rows."""
        brokers = self.state.view.brokers
        return {brokers.names[row]: row for row in np.flatnonzero(brokers.reachable).tolist()}

    def served_or_moving(self, rows: Iterable[int]) -> list[int]:
        """Return the rows of the bundles that have an owner, or are moving to one."""
        bundles = self.state.view.bundles
        return [row for row in rows if bundles.owner[row] >= 0 or bundles.in_flight[row]]

    # --- what may be decided ---

    def unload(
        self, rows: Iterable[int], destination: int | None, *, queue: bool, command_id: str
    ) -> list[BundleAnswer]:
        """Decide moves of bundles. `queue`: moves beyond the limits wait until these allow them."""
        state = self.state
        queue = queue and not state.config.balancer.dry_run
        room = MoveAllowance.build(state)
        answers = [_unload_bundle(state, row, destination, room, queue) for row in rows]
        _replace_queued(state, answers, command_id)
        return _limit_queue(state, answers)

    def bundle_of_topic(self, namespace: str, topic: str) -> str | BundleAnswer:
        """Return the range of the bundle that a topic is in, or the refusal if there is none."""
        bundles = self.state.view.bundles
        rows = _present_rows(self.state, namespace)
        if not len(rows):
            return _refuse_unknown_namespace(namespace)
        names = [bundles.name(row) for row in rows[~bundles.system[rows]].tolist()]
        rules = NAME_RULES[self.state.config.balancer.pulsar_names]
        return _bundle_of_topic(namespace, topic, names, rules)

    def split(self, request: SplitRequest) -> BundleAnswer:
        """Decide a split."""
        return _split(self.state, request)

    def merge(self, low: int, high: int) -> BundleAnswer:
        """Decide the merge of the bundles in two rows."""
        state = self.state
        return (
            _refuse_pending(state, low) or _refuse_pending(state, high) or merge(state, low, high)
        )

    def merge_advised(self, namespace: str, most: int) -> list[BundleAnswer]:
        """Decide merges of a namespace's pairs with merge advice, at most `most`."""
        pairs = advised_pairs(self.state, namespace, most)
        if pairs:
            return [self.merge(low, high) for low, high in pairs]
        enabled = self.state.config.splitting.merge_advice_enabled
        why = "" if enabled else " (merge_advice_enabled is false)"
        text = f"no bundles of {namespace} are advised to be merged{why}: nothing to do"
        return [BundleAnswer("nothing", text)]

    def assign(self, namespace: str, given: str) -> BundleAnswer:
        """Decide an owner for the bundle with a range."""
        row = self.find_bundle(namespace, given)
        return _assign(self.state, row) if isinstance(row, int) else row

    def approve(self, proposals: Sequence[str], even_if_worse: bool) -> list[BundleAnswer]:
        """Decide these proposals, as far as they can still be decided."""
        return approve(self.state, proposals, self.by, even_if_worse)


def drain(state: RoundState) -> None:
    """Unload drained brokers and the bundles of deleted namespaces, as far as limits allow."""
    operator_state, view = state.memory.operator_state, state.view
    for broker in operator_state.drained:
        if broker in view.brokers.names:
            row = view.brokers.names.index(broker)
            # A bundle that was split elsewhere will vanish from reports.
            free = state.free_bundles(retry=True) & ~state.overlapped.moving
            mine = np.flatnonzero(free & (view.bundles.owner == row))
            _unload_all(state, mine.tolist(), Decides.DRAINED)
    for namespace in operator_state.deleted:
        mine = np.zeros(len(view.bundles), np.bool_)
        mine[view.bundles.rows_of_namespace(namespace)] = True
        is_served = np.append(view.brokers.alive, False)[view.bundles.owner]
        rows = np.flatnonzero(mine & state.free_bundles() & is_served)
        _unload_all(state, rows.tolist(), Decides.NAMESPACE_DELETED)


def _unload_all(state: RoundState, rows: list[int], rule: Rule) -> None:
    """Decide unloads of these bundles until a limit is reached.

    A drained broker's bundle leaves only if there is a candidate. The unload has a destination if
    placement preselects one, or if a lookup would assign the bundle: then the drained broker might
    take it back.
    """
    names_destination = preselects(state) or state.config.balancer.assign_unowned == "on_lookup"
    room, refused = MoveAllowance.build(state), list[Refusal]()
    for row in rows:
        source, destination = int(state.view.bundles.owner[row]), None
        exceeded = room.refusal([(row, source)])
        if exceeded is not None:
            refused.append(exceeded)
            break
        if rule is Decides.DRAINED:
            choice = state.place(row)
            if choice is None:
                refused += state.no_candidate(row, state.view.brokers.names[source])
                continue
            destination = choice.destination if names_destination else None
        _decide_unload(state, row, destination, rule)
        room.take(row, source)
    if state.view.brokers.sampled.any():
        state.refusals += refused


def _decide_unload(state: RoundState, row: int, destination: int | None, rule: Rule) -> None:
    """Decide an unload, or a transfer if the manager is extensible and has a destination."""
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


def _refuse_unknown_namespace(namespace: str) -> BundleAnswer:
    """Return the refusal of a command about a namespace without known bundles."""
    text = f"no bundle of a namespace {namespace} is known"
    return BundleAnswer("refused", text, "unknown_namespace")


def _find_bundle(state: RoundState, namespace: str, given: str) -> int | BundleAnswer:
    """Return the row of a bundle by its range, or the refusal if there is none."""
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
            return _refuse_unknown_namespace(namespace)
        return BundleAnswer(
            "refused",
            f"{namespace} has no bundle {given}; it has {named(ranges)}",
            "unknown_bundle",
        )
    return int(row)


def _refuse_pending(state: RoundState, row: int) -> BundleAnswer | None:
    """Return the refusal of a bundle with a pending decision or queued move; None: none."""
    busy = state.describe_busy(state.view.bundles.name(row))
    return None if busy is None else BundleAnswer("refused", busy, "in_flight")


def _unload_bundle(
    state: RoundState, row: int, destination: int | None, room: MoveAllowance, queue: bool
) -> BundleAnswer:
    """Decide one move, and return the answer. `queue`: the move may wait until limits allow it."""
    # Bundles that can't move: system bundles, pending ones, unassigned ones, overlapping ones.
    view, name = state.view, state.view.bundles.name(row)
    if view.bundles.system[row]:
        return refuse_system_bundle(name)
    if state.find_pending(name) is not None:  # a queued move does not count: this one replaces it
        return BundleAnswer("refused", str(state.describe_busy(name)), "in_flight")
    owner = int(view.bundles.owner[row])
    if owner < 0:
        if state.config.balancer.load_manager == "extensible":
            return BundleAnswer("refused", f"{name} is unassigned", "unowned")
        return BundleAnswer("nothing", f"{name} is unassigned: nothing to do")
    if state.overlapped.moving[row]:
        return explain_overlap(state, row)
    # Destinations that may not have it.
    if destination is not None:
        wanted = view.brokers.names[destination]
        if destination == owner and state.describe_busy(name) is not None:
            kept = f"{wanted} keeps {name}: the move that was queued is cancelled"
            return BundleAnswer("nothing", kept, bundle=name)
        if destination == owner:
            return BundleAnswer("refused", f"{wanted} owns {name} already", "destination_is_owner")
        policy = state.candidates.find_refusing_policy(row, destination, state.targets)
        if policy is not None:
            text = f"{wanted} may not have {name}: {policy.replace('_', ' ')}"
            return BundleAnswer("refused", text, policy)
    # Limits, for which the move may wait.
    to = "" if destination is None else f" for {view.brokers.names[destination]}"
    leaves = f"{name} leaves {view.brokers.names[owner]}{to}"
    exceeded = room.refusal([(row, owner)])
    if exceeded is not None and queue:
        return BundleAnswer("queued", leaves, None, name, exceeded)
    if exceeded is not None:
        return BundleAnswer("refused", f"{name}: {_describe_limit(exceeded)}", exceeded.rule)
    room.take(row, owner)
    _decide_unload(state, row, destination, Decides.UNLOAD_COMMAND)
    return BundleAnswer("decided", leaves, None, name)


def _describe_limit(exceeded: Refusal) -> str:
    """Describe an exceeded limit on moves: its name, the present number, and the allowed one."""
    name = exceeded.rule.replace("_", " ")
    return f"{name} {exceeded.least:.0f}, allowed {exceeded.limit:.0f} {exceeded.unit}"


# --- queued moves: they wait until limits allow them ---


def move_queued(state: RoundState) -> None:
    """Decide the queued moves that limits allow now, in the order of their commands.

    The others count as carried out for balancing and placement, so that no other bundle takes their
    room at the destination. A move that is no longer possible fails.
    """
    if not state.queued_moves():
        return
    # The moves that end in this round.
    queue = _Queue.build(state)
    waiting = tuple(
        queue.move(command) if command.queued else command
        for command in state.responder.operator_state.waiting
    )
    state.responder.change(waiting=waiting)
    # The room of the others at their destinations.
    rows = queue.rows
    brokers = {name: row for row, name in enumerate(state.view.brokers.names)}
    for move in state.queued_moves():
        if move.destination in brokers and rows[move.bundle] >= 0:
            state.claim(rows[move.bundle], brokers[move.destination])
    if state.view.brokers.sampled.any():
        state.refusals += queue.held


@dataclass(frozen=True, slots=True)
class _Queue:
    """The queued moves of a round, and refusals of those that wait on."""

    state: RoundState
    room: MoveAllowance
    rows: Mapping[str, int]  # queued bundle → its row
    pending: frozenset[str]  # bundles with a decision that is pending or new
    held: list[Refusal]  # the limits that moves wait for

    @staticmethod
    def build(state: RoundState) -> _Queue:
        """Return the queue at this point of the round."""
        names = [move.bundle for move in state.queued_moves()]
        rows = dict(zip(names, state.view.bundles.rows_of(names).tolist(), strict=True))
        decisions: list[Pending | Decision] = [*state.memory.pending, *state.decisions]
        pending = frozenset(name for decision in decisions for name in decision.bundles)
        return _Queue(state, MoveAllowance.build(state), rows, pending, [])

    def move(self, waiting: WaitingCommand) -> WaitingCommand:
        """Decide the moves of one command that limits allow; return the command with the rest."""
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
        """Decide one move, fail it, or let it wait. `wanted`: its destination, if it has one."""
        state, brokers, row = self.state, self.state.view.brokers, self.rows[bundle]
        waits = BundleAnswer("queued", "")
        # Moves that are no longer possible.
        if state.config.balancer.dry_run:
            return BundleAnswer("refused", "decisions are no longer published (dry run)")
        if row < 0:
            return BundleAnswer("refused", "no report names the bundle any more")
        if namespace_of(bundle) in state.responder.operator_state.deleted:
            return BundleAnswer("refused", f"{namespace_of(bundle)} is deleted")
        destination = None
        if wanted is not None:
            if wanted not in brokers.names or not brokers.alive[brokers.names.index(wanted)]:
                return BundleAnswer("refused", f"{wanted} is no longer alive")
            destination = brokers.names.index(wanted)
            if not brokers.speaking[destination]:
                return waits
        # Moves that wait until their bundle is free, and those that are done already.
        owner = int(state.view.bundles.owner[row])
        if bundle in self.pending or owner < 0 or state.overlapped.moving[row]:
            return waits
        if owner == destination:
            return BundleAnswer("nothing", "")
        # Moves that limits allow.
        answer = _unload_bundle(state, row, destination, self.room, queue=True)
        if answer.held_by is not None:
            self.held.append(answer.held_by)
        elif answer.outcome == "decided":
            state.dequeued.add(bundle)
        return answer


def _replace_queued(state: RoundState, answers: Iterable[BundleAnswer], command_id: str) -> None:
    """Take the bundles of a later command out of the queue."""
    later = {answer.bundle for answer in answers if answer.bundle}
    before = state.responder.operator_state.waiting
    if not any(later.intersection(waiting.queued) for waiting in before):
        return
    after: list[WaitingCommand] = []
    for waiting in before:
        kept = tuple(bundle for bundle in waiting.queued if bundle not in later)
        failed = tuple(
            f"{bundle}: the command {command_id} came after it"
            for bundle in waiting.queued
            if bundle in later
        )
        after.append(replace(waiting, queued=kept, failures=waiting.failures + failed))
    state.responder.change(waiting=tuple(after))


def _limit_queue(state: RoundState, wanted: list[BundleAnswer]) -> list[BundleAnswer]:
    """Return the answers, with queued moves refused that would wait forever or are too many.

    A move waits forever if a limit forbids it even while no other bundle moves.
    """
    places, unused = MOST_QUEUED - len(state.queued_moves()), MoveAllowance.unused(state)
    answers = list[BundleAnswer]()
    for answer in wanted:
        if answer.outcome != "queued":
            answers.append(answer)
            continue
        row = int(state.view.bundles.rows_of([answer.bundle])[0])
        exceeded = unused.refusal([(row, int(state.view.bundles.owner[row]))])
        if exceeded is not None:
            text = f"{answer.bundle}: {_describe_limit(exceeded)}"
            answers.append(BundleAnswer("refused", text, exceeded.rule))
        elif places <= 0:
            text = f"{answer.bundle}: {MOST_QUEUED} moves are queued already, which is the limit"
            answers.append(BundleAnswer("refused", text, "too_many_queued"))
        else:
            answers.append(answer)
            places -= 1
    return answers


# --- splits, merges, lookups ---


def _split(state: RoundState, request: SplitRequest) -> BundleAnswer:
    """Decide a split that an operator commands, and return the answer."""
    view, config = state.view, state.config
    rows = _present_rows(state, request.namespace)
    if not len(rows):
        return _refuse_unknown_namespace(request.namespace)

    # The bundle, and its children.
    names = [view.bundles.name(row) for row in rows.tolist()]
    bundles = NamespaceBundles(
        names,
        view.bundles.topics[rows],
        view.bundles.long.throughput[rows],
        view.bundles.owner[rows] >= 0,
        view.bundles.system[rows],
    )
    result = manual_split(
        request, bundles, config.splitting, config.split_algorithms, config.balancer.load_manager
    )
    if isinstance(result, NoChange):
        return BundleAnswer("nothing", result.detail)
    if not isinstance(result, Accepted):
        rule = STATUS_RULES.get(result.status, f"status_{result.status}")
        return BundleAnswer("refused", result.detail, rule)

    # Refuse a bundle that can't be split now.
    name = bundle_name(*result.cut.parent)
    row = int(rows[names.index(name)])
    if (pending := _refuse_pending(state, row)) is not None:
        return pending
    if view.bundles.owner[row] < 0:
        text = f"{name} is unassigned: split it when it is served"
        return BundleAnswer("refused", text, "unowned")
    if state.overlapped.reshaping[row]:
        return explain_overlap(state, row)

    # The decision.
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
    """Decide an owner for a bundle that a lookup or an operator asks for, and return the answer."""
    view, bundles, name = state.view, state.view.bundles, state.view.bundles.name(row)
    if bundles.system[row]:
        return refuse_system_bundle(name)
    if (pending := _refuse_pending(state, row)) is not None:
        return BundleAnswer("nothing", pending.text)
    if bundles.owner[row] >= 0:
        return BundleAnswer("nothing", f"{view.brokers.names[int(bundles.owner[row])]} has {name}")
    if row in superseded(view, [row]):
        return BundleAnswer("refused", f"{name} has been split", "unknown_bundle")
    if (few := find_too_few_brokers(state)) is not None:
        text = f"{few.rule}: a new cluster waits for {few.limit:.0f} brokers"
        return BundleAnswer("refused", text, few.rule)
    if not assign(state, row, name, commanded=False):
        why = _describe_isolation(state, name)
        return BundleAnswer("refused", f"no broker may have {name} now{why}", "no_candidate")
    return BundleAnswer("decided", f"{name} goes to {state.decisions[-1].destination}")


def _describe_isolation(state: RoundState, bundle: str) -> str:
    """Describe an isolation policy that matches no live broker, to end a sentence; else ""."""
    view = state.view
    live = [view.brokers.names[row] for row in np.flatnonzero(view.brokers.reachable).tolist()]
    policy = view.policies.isolation_of(namespace_of(bundle))
    found = (
        None
        if policy is None
        else describe_no_match(policy, live, state.config.balancer.isolation_by_port)
    )
    return "" if found is None else f": {found}"


def _bundle_of_topic(
    namespace: str, topic: str, names: list[str], rules: NameRules
) -> str | BundleAnswer:
    """Return the range of the bundle that a topic is in, or the refusal if there is none.

    `names`: the bundles of the namespace, without system bundles.
    """
    try:
        other, hashed = namespace_of_topic(topic, rules), topic_hash(topic, rules)
    except ValueError as error:
        return BundleAnswer("refused", str(error), "not_a_topic")
    if other != namespace:
        return BundleAnswer(
            "refused",
            f"the topic {topic} is in the namespace {other}, not in {namespace}",
            "not_a_topic",
        )
    for name in names:
        _, lower, upper = parse_bundle(name)
        if lower <= hashed < upper or hashed == upper == 0xFFFFFFFF:
            return name.rpartition("/")[2]
    return BundleAnswer(
        "refused",
        f"no known bundle of {namespace} has the topic {topic} (hash 0x{hashed:08x})",
        "unknown_bundle",
    )


def _answer(
    state: RoundState, received: Received, answers: list[BundleAnswer], before: int
) -> None:
    """Answer a command from the answers about its bundles.

    `before`: the number of the round's decisions before this command.
    """
    decisions = state.decisions[before:]
    queued = [answer for answer in answers if answer.outcome == "queued"]
    ids = [decision.decision_id for decision in decisions]
    command = received.command
    assert isinstance(command, MoveCommand)
    text = _summarise(answers, command.about)
    rule = next((answer.rule for answer in answers if answer.rule is not None), None)
    if command.is_answered_at_once or not (decisions or queued):
        is_refused = any(answer.outcome == "refused" for answer in answers)
        state.responder.answer(received, "refused" if is_refused else "done", text, rule, ids)
    elif state.config.balancer.dry_run:
        text = f"dry run, nothing is published: {text}"
        state.responder.answer(received, "done", text, rule, ids)
    else:
        state.responder.answer(received, "accepted", text + _describe_queued(queued), rule, ids)
        # The command waits until its decisions have ended.
        bundles = tuple(bundle for decision in decisions for bundle in decision.bundles)
        names = tuple(answer.bundle for answer in queued)
        waiting = WaitingCommand(received.head, text, bundles, tuple(ids), queued=names)
        state.responder.change(waiting=(*state.responder.operator_state.waiting, waiting))


def _describe_queued(queued: list[BundleAnswer]) -> str:
    """Describe the limit that queued moves wait for, to end a sentence; "": there are none."""
    if not queued or queued[0].held_by is None:
        return ""
    limit = _describe_limit(queued[0].held_by)
    if len(queued) == 1:
        return f"; the move is queued until limits allow it: {limit}"
    return f"; {len(queued)} moves are queued until limits allow them: {limit}"


def _summarise(answers: list[BundleAnswer], about: str) -> str:
    """Return one text for the answers about bundles.

    `about`: subject and verb of the decided ones, such as "bundles leave their brokers".
    """
    if len(answers) == 1:
        return answers[0].text
    decided = [answer for answer in answers if answer.outcome in ("decided", "queued")]
    rules = Counter(answer.rule for answer in answers if answer.outcome == "refused")
    parts = [f"{len(decided)} of {len(answers)} {about}"]
    firsts = {
        rule: next(answer.text for answer in answers if answer.rule == rule) for rule in rules
    }
    parts += [
        f"{count} refused by {rule}, the first: {firsts[rule]}" for rule, count in rules.items()
    ]
    return "; ".join(parts)
