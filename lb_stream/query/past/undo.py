"""What takes back decisions and commands of the past, out of the tables: moves back, and what was
in force before."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES
from lb_stream.core.commands.base import CannotUndo, Operation, make
from lb_stream.core.model.memory import Memory
from lb_stream.core.model.operator_state import OperatorState
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.cluster_state import require_cluster
from lb_stream.query.lake import Row, records, run
from lb_stream.query.past.names import similar_ids
from lb_stream.query.past.undo_commands import (
    find_cancelled,
    find_opposites,
    may_end_publishing,
    merge_commands,
)
from lb_stream.query.wording import explain_outcome

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

_COMMANDS = """
    SELECT cluster, id, any_value(kind) AS kind, any_value(arguments) AS arguments,
           any_value("by") AS "by", min(at_ms) AS at_ms,
           min(log_seq) AS log_seq, min(seq) AS seq, arg_max(outcome, log_seq) AS outcome,
           flatten(list(decision_ids)) AS decision_ids
    FROM commands
    WHERE ($1 IS NULL OR cluster = $1) AND ($2 IS NULL OR id = $2) AND ($3 IS NULL OR at_ms >= $3)
    GROUP BY cluster, id ORDER BY at_ms DESC, log_seq DESC
"""
_DECISIONS = f"""
    SELECT decision_id, decisions.cluster, kind, decisions.bundle, source, destination, dry_run,
           outcome, detail, issued_ms
    FROM decisions LEFT JOIN outcomes USING (decision_id)
    WHERE ($1 IS NULL OR decisions.cluster = $1)
    AND (list_contains($2, decision_id) OR (issued_ms >= $3 AND kind IN {MOVES} AND NOT dry_run))
    ORDER BY issued_ms, decisions.seq, decision_id
"""
_LATER = f"""
    SELECT bundle, arg_max(decision_id, issued_ms) AS decision_id FROM decisions
    WHERE cluster = $1 AND kind IN {MOVES} AND NOT dry_run AND list_contains($2, bundle)
    GROUP BY bundle
"""
_OWNERS = "SELECT bundle, owner FROM ownership WHERE cluster = $1 AND list_contains($2, bundle)"
_BEFORE = (
    "SELECT memory FROM rounds WHERE cluster = $1 AND log_seq < $2 AND memory <> '' ORDER BY "
    "log_seq DESC LIMIT 1"
)
_NOW = (
    "SELECT memory, now_ms FROM rounds WHERE cluster = $1 AND memory <> '' ORDER BY log_seq "
    "DESC LIMIT 1"
)
_ALIVE = """
    SELECT broker FROM broker_loads WHERE cluster = $1 AND alive
    AND log_seq = (SELECT max(log_seq) FROM broker_loads WHERE cluster = $1)
"""


@dataclass(slots=True)
class Undo:
    """What is to be sent to one cluster, in this order: `commands`, then the moves (bundle, owner
    now, former owner).

    `afterwards`: what is in force only when the moves are done, as they would not be published
    then. `left`: what can't be taken back, or needn't be, and why.
    """

    cluster: str
    commands: list[Operation] = field(default_factory=list)
    moves: list[Row] = field(default_factory=list)
    afterwards: list[Operation] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        return {
            "cluster": self.cluster,
            "commands": [command.given for command in self.commands],
            "moves": self.moves,
            "afterwards": [command.given for command in self.afterwards],
            "left": [list(pair) for pair in self.left],
        }

    def steps(self, pin_ms: int) -> list[tuple[str, list[Row]]]:
        """The commands to send, by kind: what was in force, the pins, then all moves.

        One round is to read them all. Those of `last_steps` follow when the moves are done.
        """
        steps = [_step(command) for command in self.commands]
        if self.moves and pin_ms:
            steps.append(
                (
                    "pin-bundles",
                    [{"bundles": [move["bundle"] for move in self.moves], "for_ms": pin_ms}],
                )
            )
        if self.moves:
            steps.append(("unload", [_unload(move) for move in self.moves]))
        return steps

    def last_steps(self) -> list[tuple[str, list[Row]]]:
        """The commands to send when the moves are done, by kind."""
        return [_step(command) for command in self.afterwards]


def _step(command: Operation) -> tuple[str, list[Row]]:
    return command.kind, [{name: value for name, value in command.given.items() if name != "kind"}]


def _unload(move: Row) -> Row:
    """What limits leave no room for is queued: else balancing would take its place."""
    namespace, _, bundle = str(move["bundle"]).rpartition("/")
    return {"namespace": namespace, "bundle": bundle, "destination": move["to"], "queue": True}


def plan_undo(lake: Lake, name: str, cluster: str | None) -> Undo:
    """What takes one decision or one command back.

    Raises QueryError for an id that the tables don't have.
    """
    commands = records(run(lake, _COMMANDS, [cluster, name, None]))
    if len(commands) > 1:
        raise QueryError(
            f"{name} went to {', '.join(sorted(row['cluster'] for row in commands))}: say which, "
            "--cluster NAME",
            code=2,
        )
    if commands:
        return _undo(
            lake, commands[0]["cluster"], commands, commands[0]["decision_ids"] or (), None
        )
    decisions = records(run(lake, _DECISIONS, [cluster, [name], None]))
    if not decisions:
        hint = "lbctl decisions --json and lbctl commands --json show ids"
        near = similar_ids(lake, name, cluster)
        raise QueryError(f"no decision and no command has the id {name}: {hint}{near}", code=2)
    return _undo(lake, decisions[0]["cluster"], (), [name], None)


def plan_undo_since(lake: Lake, since_ms: int, cluster: str) -> Undo:
    """What takes back all moves and commands of a cluster since then, the newest command first.

    Raises QueryError (exit code 2) for a cluster that the tables don't know.
    """
    require_cluster(lake, cluster)
    return _undo(
        lake, cluster, records(run(lake, _COMMANDS, [cluster, None, since_ms])), (), since_ms
    )


def _undo(
    lake: Lake,
    cluster: str,
    commands: Sequence[Row],
    decision_ids: Iterable[str],
    since_ms: int | None,
) -> Undo:
    found = Undo(cluster)
    rounds = records(run(lake, _NOW, [cluster]))
    if not rounds:
        raise QueryError(f"the log no longer has a round of {cluster}", code=2)
    now, now_ms = _operator_state(rounds[0]["memory"]), rounds[0]["now_ms"]
    going_on = [
        waiting
        for waiting in now.waiting
        if waiting.command["id"] in {row["id"] for row in commands}
    ]
    # the last answer to a command that goes on, with all of its decisions, is yet to come
    ids = {*decision_ids, *(name for waiting in going_on for name in waiting.decision_ids)}
    _take_back(lake, found, commands, {waiting.command["id"] for waiting in going_on}, now_ms)
    if since_ms is not None:
        found.commands = merge_commands(found.commands, now, now_ms)
    _leave_lost(found, now)
    undrained = {
        command.arguments["broker"]
        for command in found.commands
        if command.kind == "undrain-broker"
    }
    decisions = records(run(lake, _DECISIONS, [cluster, sorted(ids), since_ms]))
    _move_back(lake, found, decisions, set(now.drained) - undrained)
    _keep_queued(lake, found, [bundle for waiting in going_on for bundle in waiting.queued])
    if found.moves:
        ends = [may_end_publishing(command, now) for command in found.commands]
        commands_and_ends = list(zip(found.commands, ends, strict=True))
        found.afterwards = [command for command, ends_it in commands_and_ends if ends_it]
        found.commands = [command for command, ends_it in commands_and_ends if not ends_it]
    return found


def _take_back(
    lake: Lake, found: Undo, commands: Sequence[Row], going_on: Collection[str], now_ms: int
) -> None:
    """Find the commands that take these commands back, the newest first, and say what nothing does.

    `going_on`: ids of those whose moves are still under way.
    """
    done = [row for row in commands if row["outcome"] not in ("refused", "failed")]
    given = [(row["kind"], json.loads(row["arguments"] or "{}")) for row in done]
    over = {done[place]["id"] for place in find_cancelled(given)}
    for command in commands:
        if command["id"] in over:
            continue
        text = f"{command['kind']} of {clock(command['at_ms'])} by {command['by']}"
        if command["outcome"] == "refused":
            found.left.append((text, "it was refused: nothing has changed"))
            continue
        arguments = json.loads(command["arguments"] or "{}")
        try:
            opposites = find_opposites(command["kind"], arguments, _before(lake, command), now_ms)
        except CannotUndo as error:
            found.left.append((text, str(error)))
            continue
        found.commands += opposites
        if not opposites and not command["decision_ids"] and command["id"] not in going_on:
            found.left.append((text, "it has changed nothing"))


def _leave_lost(found: Undo, now: OperatorState) -> None:
    """Leave out the commands that would be refused, as what they lay down can't be any more."""
    commands, found.commands = found.commands, []
    for command in commands:
        why = command.explain_lost(now)
        if why is None:
            found.commands.append(command)
        else:
            found.left.append((command.kind, why))


def _before(lake: Lake, command: Row) -> OperatorState:
    """What was in force when a command came. Raises CannotUndo where the log no longer tells."""
    rows = records(run(lake, _BEFORE, [command["cluster"], command["log_seq"]]))
    if not rows and command["seq"] > 1:
        raise CannotUndo("the log no longer has the rounds before it: upkeep has removed them")
    return _operator_state(rows[0]["memory"]) if rows else OperatorState()


def _operator_state(memory: str) -> OperatorState:
    return Memory.from_json(memory).operator_state


def _move_back(lake: Lake, found: Undo, decisions: Sequence[Row], drained: set[str]) -> None:
    """Each bundle back to where the first of these decisions took it from."""
    bundles = list(dict.fromkeys(row["bundle"] for row in decisions))
    owner = {
        row["bundle"]: row["owner"] for row in records(run(lake, _OWNERS, [found.cluster, bundles]))
    }
    last = {
        row["bundle"]: row["decision_id"]
        for row in records(run(lake, _LATER, [found.cluster, bundles]))
    }
    alive = {row["broker"] for row in records(run(lake, _ALIVE, [found.cluster]))}
    ids = {row["decision_id"] for row in decisions}
    for bundle in bundles:
        mine = [row for row in decisions if row["bundle"] == bundle]
        home = next(
            (
                row["source"]
                for row in mine
                if row["kind"] in MOVES and row["outcome"] == "confirmed"
            ),
            None,
        )
        why = _why_not(mine, home, owner.get(bundle), last.get(bundle), ids)
        if why is None and home not in alive:
            why = f"{home} is not alive"
        if why is None and home in drained:
            why = f"{home} is being drained: lbctl brokers undrain {home}"
        if why is not None:
            found.left.append((bundle, why))
        else:
            found.moves.append(
                {
                    "bundle": bundle,
                    "from": owner[bundle],
                    "to": home,
                    "decisions": [row["decision_id"] for row in mine],
                }
            )


def _keep_queued(lake: Lake, found: Undo, queued: Sequence[str]) -> None:
    """Have bundles stay whose moves wait: an order to the broker that has one ends its wait."""
    going_back = {move["bundle"] for move in found.moves}
    owners = records(run(lake, _OWNERS, [found.cluster, list(queued)]))
    owner = {row["bundle"]: row["owner"] for row in owners}
    for bundle in queued:
        if bundle in going_back:
            continue
        if owner.get(bundle) is None:
            found.left.append((bundle, "no broker has it now: its move waits on"))
            continue
        stay = _unload({"bundle": bundle, "to": owner[bundle]})
        found.commands.append(make("unload", **stay))


def _why_not(
    mine: Sequence[Row], home: str | None, owner: str | None, last: str | None, ids: set[str]
) -> str | None:
    """Why a bundle isn't moved back by these decisions about it."""
    newest = mine[-1]
    if newest["kind"] not in MOVES:
        return f"{newest['decision_id']} is no move: {newest['kind']}"
    if newest["dry_run"]:
        return f"{newest['decision_id']} was a dry run's: nobody has moved it"
    if newest["outcome"] is None:
        return f"{newest['decision_id']} is under way: try again when it has ended"
    if home is None:
        reason = explain_outcome(newest)
        ended = newest["outcome"] + (f": {reason}" if reason else "")
        return f"{newest['decision_id']} was not carried out ({ended})"
    if owner == home:
        return f"{home} has it already"
    if owner is None:
        return "nobody has it now"
    if last is not None and last not in ids:
        return f"it has been moved again since, by {last}"
    return None
