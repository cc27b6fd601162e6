"""Plan, from the tables, what takes back decisions and commands of the past."""

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
from lb_stream.query.past.names import describe_similar_ids
from lb_stream.query.past.undo_commands import (
    find_cancelled,
    find_opposites,
    may_end_publishing,
    merge_commands,
)
from lb_stream.query.wording import NO_BROKER, explain_outcome, is_confirmed

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
    """What takes commands and decisions of a cluster back: `commands`, `moves`, then `afterwards`.

    - `moves`: rows with bundle, from (its owner now), to (its former owner), decisions.
    - `afterwards`: commands for when the moves are done, as they may end publishing.
    - `left`: what isn't taken back, and why.
    """

    cluster: str
    commands: list[Operation] = field(default_factory=list)
    moves: list[Row] = field(default_factory=list)
    afterwards: list[Operation] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return {
            "cluster": self.cluster,
            "commands": [command.given for command in self.commands],
            "moves": self.moves,
            "afterwards": [command.given for command in self.afterwards],
            "left": [list(pair) for pair in self.left],
        }

    def steps(self, pin_ms: int) -> list[tuple[str, list[Row]]]:
        """Return the commands to send, by kind: those of `commands`, then the pins, then all moves.

        One round has to read them all. `last_steps` follow when the moves are done. `pin_ms`: how
        long bundles are pinned after their move; 0: not at all.
        """
        steps = [_build_step(command) for command in self.commands]
        if self.moves and pin_ms:
            bundles = [move["bundle"] for move in self.moves]
            steps.append(("pin-bundles", [{"bundles": bundles, "for_ms": pin_ms}]))
        if self.moves:
            steps.append(("unload", [_build_unload(move) for move in self.moves]))
        return steps

    def last_steps(self) -> list[tuple[str, list[Row]]]:
        """Return the commands to send when the moves are done, by kind."""
        return [_build_step(command) for command in self.afterwards]


def _build_step(command: Operation) -> tuple[str, list[Row]]:
    return command.kind, [{name: value for name, value in command.given.items() if name != "kind"}]


def _build_unload(move: Row) -> Row:
    """Return the arguments of the command. It is queued where limits leave no room for it."""
    namespace, _, bundle = str(move["bundle"]).rpartition("/")
    return {"namespace": namespace, "bundle": bundle, "destination": move["to"], "queue": True}


def plan_undo(lake: Lake, name: str, cluster: str | None) -> Undo:
    """Plan what takes one decision or one command back.

    Raises QueryError for an id that the tables don't have.
    """
    commands = records(run(lake, _COMMANDS, [cluster, name, None]))
    if len(commands) > 1:
        clusters = ", ".join(sorted(row["cluster"] for row in commands))
        raise QueryError(f"--cluster: expected one of {clusters}, which all had {name}", code=2)
    if commands:
        return _plan_undo(
            lake, commands[0]["cluster"], commands, commands[0]["decision_ids"] or (), None
        )
    decisions = records(run(lake, _DECISIONS, [cluster, [name], None]))
    if not decisions:
        hint = "lbctl decisions --json and lbctl commands --json show ids"
        near = describe_similar_ids(lake, name, cluster)
        raise QueryError(f"no decision and no command has the id {name}: {hint}{near}", code=2)
    return _plan_undo(lake, decisions[0]["cluster"], (), [name], None)


def plan_undo_since(lake: Lake, since_ms: int, cluster: str) -> Undo:
    """Plan what takes back all moves and commands of a cluster since a time, the newest first.

    Raises QueryError (exit code 2) for a cluster that the tables don't know.
    """
    require_cluster(lake, cluster)
    return _plan_undo(
        lake, cluster, records(run(lake, _COMMANDS, [cluster, None, since_ms])), (), since_ms
    )


def _plan_undo(
    lake: Lake,
    cluster: str,
    commands: Sequence[Row],
    decision_ids: Iterable[str],
    since_ms: int | None,
) -> Undo:
    """Plan what takes these commands and decisions back.

    `since_ms`: with it also all moves since then; None: only `decision_ids`.
    """
    found = Undo(cluster)
    # what is in force now, and commands whose moves go on
    rounds = records(run(lake, _NOW, [cluster]))
    if not rounds:
        raise QueryError(f"the log no longer has a round of {cluster}", code=2)
    now, now_ms = _operator_state(rounds[0]["memory"]), rounds[0]["now_ms"]
    going_on = [
        waiting
        for waiting in now.waiting
        if waiting.command["id"] in {row["id"] for row in commands}
    ]
    # The last answer to a command that goes on, which has all of its decisions, is yet to come.
    ids = {*decision_ids, *(name for waiting in going_on for name in waiting.decision_ids)}
    # commands that set again what was in force
    _add_opposites(lake, found, commands, {waiting.command["id"] for waiting in going_on}, now_ms)
    if since_ms is not None:
        found.commands = merge_commands(found.commands, now, now_ms)
    _drop_impossible(found, now)
    # moves back, also to brokers that these commands undrain
    undrained = {
        command.arguments["broker"]
        for command in found.commands
        if command.kind == "undrain-broker"
    }
    decisions = records(run(lake, _DECISIONS, [cluster, sorted(ids), since_ms]))
    _add_moves_back(lake, found, decisions, set(now.drained) - undrained)
    _keep_in_place(lake, found, [bundle for waiting in going_on for bundle in waiting.queued])
    # commands that may end publishing wait for the moves
    if found.moves:
        ends = [may_end_publishing(command, now) for command in found.commands]
        commands_and_ends = list(zip(found.commands, ends, strict=True))
        found.afterwards = [command for command, ends_it in commands_and_ends if ends_it]
        found.commands = [command for command, ends_it in commands_and_ends if not ends_it]
    return found


def _add_opposites(
    lake: Lake, found: Undo, commands: Sequence[Row], going_on: Collection[str], now_ms: int
) -> None:
    """Add the commands that take these commands back, the newest first, or why there is none.

    `going_on`: ids of commands whose moves are pending.
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
            before = _load_state_before(lake, command)
            opposites = find_opposites(command["kind"], arguments, before, now_ms, command["id"])
        except CannotUndo as error:
            found.left.append((text, str(error)))
            continue
        found.commands += opposites
        if not opposites and not command["decision_ids"] and command["id"] not in going_on:
            found.left.append((text, "it has changed nothing"))


def _drop_impossible(found: Undo, now: OperatorState) -> None:
    """Drop the commands that would be refused, as what they set is no longer possible."""
    commands, found.commands = found.commands, []
    for command in commands:
        why = command.explain_lost(now)
        if why is None:
            found.commands.append(command)
        else:
            found.left.append((command.kind, why))


def _load_state_before(lake: Lake, command: Row) -> OperatorState:
    """Return what was in force before a command.

    Raises CannotUndo where the log has no such round.
    """
    rows = records(run(lake, _BEFORE, [command["cluster"], command["log_seq"]]))
    if not rows and command["seq"] > 1:
        raise CannotUndo("the log no longer has the rounds before it: upkeep has removed them")
    return _operator_state(rows[0]["memory"]) if rows else OperatorState()


def _operator_state(memory: str) -> OperatorState:
    return Memory.from_json(memory).operator_state


def _add_moves_back(lake: Lake, found: Undo, decisions: Sequence[Row], drained: set[str]) -> None:
    """Add a move of each bundle to the broker from which the first of these decisions took it."""
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
        sources = (row["source"] for row in mine if row["kind"] in MOVES and is_confirmed(row))
        home = next(sources, None)
        why = _explain_no_move(mine, home, owner.get(bundle), last.get(bundle), ids)
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


def _keep_in_place(lake: Lake, found: Undo, queued: Sequence[str]) -> None:
    """Add unloads of bundles whose moves wait, to their present owners: that ends the wait."""
    going_back = {move["bundle"] for move in found.moves}
    owners = records(run(lake, _OWNERS, [found.cluster, list(queued)]))
    owner = {row["bundle"]: row["owner"] for row in owners}
    for bundle in queued:
        if bundle in going_back:
            continue
        if owner.get(bundle) is None:
            found.left.append((bundle, f"{NO_BROKER} has it now: its move waits on"))
            continue
        stay = _build_unload({"bundle": bundle, "to": owner[bundle]})
        found.commands.append(make("unload", **stay))


def _explain_no_move(
    mine: Sequence[Row], home: str | None, owner: str | None, last: str | None, ids: set[str]
) -> str | None:
    """Say why a bundle isn't moved back, by these decisions about it; None: it is."""
    newest = mine[-1]
    if newest["kind"] not in MOVES:
        return f"{newest['decision_id']} is no move: {newest['kind']}"
    if newest["dry_run"]:
        return f"{newest['decision_id']} was a dry run's: it has moved nothing"
    if newest["outcome"] is None:
        return f"{newest['decision_id']} is pending: try again when it has ended"
    if home is None:
        reason = explain_outcome(newest)
        ended = newest["outcome"] + (f": {reason}" if reason else "")
        return f"{newest['decision_id']} was not carried out ({ended})"
    if owner == home:
        return f"{home} has it already"
    if owner is None:
        return f"{NO_BROKER} has it now"
    if last is not None and last not in ids:
        return f"it has been moved again since, by {last}"
    return None
