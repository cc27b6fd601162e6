"""The facts behind a decision, a bundle, a broker or a round, out of the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES, RESHAPES
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.costs import find_move_cost
from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import explain_refusal, explain_rule, is_confirmed

if TYPE_CHECKING:
    from lb_stream.query.lake import Lake

_ORDINAL = "TRY_CAST(string_split(decision_id, ':')[-1] AS INT)"
_DECIDED = f"""
    SELECT decisions.*, outcome, detail, at_ms, took_ms, outcomes.seq AS ended_seq,
           {_ORDINAL} AS ordinal
    FROM decisions LEFT JOIN outcomes USING (decision_id)
"""
_LOAD = """
    SELECT seq, now_ms, broker, alive, usage_ratio, bundles,
           latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s,
           latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s AS msgs_per_s
    FROM broker_loads WHERE cluster = $1
"""


@dataclass(frozen=True, slots=True)
class BrokerPart:
    """What a broker's part in a decision was: its load in the round that decided, what was expected
    of it, its load afterwards.

    Loads are rows of `broker_loads` (usage a ratio, bytes/s, msgs/s, bundles). `after` is that of
    the round that saw all of the round's moves from (or of this bundle to) the broker ended; None
    as long as they haven't. `expected` is in the decision's unit.
    """

    role: str
    broker: str
    before: Row | None
    after: Row | None
    expected: float | None


@dataclass(frozen=True, slots=True)
class DecisionExplanation:
    """A decision with all that the tables say of it.

    `moves`: how many moves from the same source its round decided.

    `follows` and `followed_by`: the unload before an assignment, the assignment after an unload.
    `cost`: what it has cost clients (`move_cost`), None where it moved nothing.
    """

    sentence: str
    decision: Row
    parts: tuple[BrokerPart, ...]
    moves: int
    follows: str | None
    followed_by: str | None
    cost: Row | None

    def to_dict(self) -> Row:
        """As JSON-able fields."""
        return asdict(self)


# --- a decision ---


def explain_decision(lake: Lake, decision_id: str) -> DecisionExplanation:
    """Raises QueryError when there is no such decision."""
    rows = records(run(lake, f"{_DECIDED} WHERE decision_id = $1", [decision_id]))
    if not rows:
        raise QueryError(
            f"there is no decision {decision_id}: lbctl decisions shows the last ones, their ids "
            "with --json",
            code=2,
        )
    return build_explanation(lake, _unpacked(rows[0]))


def explain_last(lake: Lake, cluster: str | None) -> DecisionExplanation | None:
    """The last decision of a cluster (None: of any); of a move its unload, which has the reason.

    None where nothing has been decided.
    """
    query = f"""{_DECIDED} WHERE $1 IS NULL OR decisions.cluster = $1
        ORDER BY issued_ms DESC, decisions.seq DESC, ordinal DESC LIMIT 1"""
    row = _first(lake, query, [cluster])
    if row is None:
        return None
    first = _follows(lake, row)
    return (
        build_explanation(lake, _unpacked(row)) if first is None else explain_decision(lake, first)
    )


def _unpacked(row: Row) -> Row:
    return row | {"explain": json.loads(row["explain"])}


def build_explanation(lake: Lake, decision: Row) -> DecisionExplanation:
    """What the tables say of a decision (a row of `decisions` with its outcome)."""
    siblings = _siblings(lake, decision)
    next_one = _next(lake, decision)
    parts = tuple(_parts(lake, decision, siblings, next_one))
    followed_by = None if next_one is None else next_one["decision_id"]
    ended_badly = decision["outcome"] is not None and not is_confirmed(decision)
    sentence = _sentence(decision, parts, _owner_now(lake, decision) if ended_badly else None)
    return DecisionExplanation(
        sentence,
        decision,
        parts,
        len(siblings),
        _follows(lake, decision),
        followed_by,
        find_move_cost(lake, decision),
    )


def _siblings(lake: Lake, decision: Row) -> list[Row]:
    """The moves from the same source in the same round, this one among them."""
    if decision["kind"] not in MOVES:
        return []
    query = (
        f"{_DECIDED} WHERE decisions.cluster = $1 AND decisions.seq = $2 AND source = $3 AND "
        f"kind IN {MOVES}"
    )
    return records(run(lake, query, [decision["cluster"], decision["seq"], decision["source"]]))


def _next(lake: Lake, decision: Row) -> Row | None:
    """The assignment that follows an unload."""
    if decision["kind"] not in MOVES or decision["outcome"] in ("refused", "expired"):
        return None
    query = f"""{_DECIDED}
    WHERE decisions.cluster = $1 AND decisions.bundle = $2 AND kind = 'assign'
    AND decisions.seq > $3
        ORDER BY decisions.seq LIMIT 1"""
    rows = records(run(lake, query, [decision["cluster"], decision["bundle"], decision["seq"]]))
    return rows[0] if rows else None


def _follows(lake: Lake, decision: Row) -> str | None:
    """The unload whose bundle a decision assigns."""
    second_half = decision["rule"] in ("released", "repeated") and decision["reason"] != "Unowned"
    if decision["kind"] != "assign" or not second_half:
        return None
    query = f"""SELECT decision_id FROM decisions
    WHERE cluster = $1 AND bundle = $2 AND kind IN {MOVES} AND seq < $3
        ORDER BY seq DESC LIMIT 1"""
    row = _first(lake, query, [decision["cluster"], decision["bundle"], decision["seq"]])
    return None if row is None else str(row["decision_id"])


def _owner_now(lake: Lake, decision: Row) -> str | None:
    """The broker that has the decision's bundle now, as far as the ownership records know."""
    row = _first(
        lake,
        "SELECT owner FROM ownership WHERE cluster = $1 AND bundle = $2",
        [decision["cluster"], decision["bundle"]],
    )
    return None if row is None else row["owner"]


def _parts(
    lake: Lake, decision: Row, siblings: list[Row], next_one: Row | None
) -> list[BrokerPart]:
    source, destination = decision["source"], decision["destination"]
    last = next_one if decision["kind"] in MOVES else decision
    arrived = None if last is None or last["destination"] != destination else last["ended_seq"]
    ends: dict[str, int | None] = {}
    if source is not None:
        ends[source] = _last_of([row["ended_seq"] for row in siblings or [decision]])
    if destination is not None:
        ends[destination] = arrived
    loads = _loads_around(lake, decision["cluster"], decision["seq"], ends)
    expected = {source: decision["explain"].get("expected_after")}
    roles = (("source", source), ("destination", destination))
    return [
        BrokerPart(role, broker, *loads.get(broker, (None, None)), expected.get(broker))
        for role, broker in roles
        if broker is not None
    ]


def _last_of(ended: Iterable[int | None]) -> int | None:
    """The round that saw the last of the moves ended; None as long as one goes on."""
    rounds = list(ended)
    return None if None in rounds else max(seq for seq in rounds if seq is not None)


def _loads_around(
    lake: Lake, cluster: str, seq: int, ends: Mapping[str, int | None]
) -> dict[str, tuple[Row | None, Row | None]]:
    """Each broker's load as a round saw it, and in the first round with a report since `ends`.

    Rounds without a new report see the figures of the last one with some.
    """
    if not ends:
        return {}
    table = ", ".join(["(?, CAST(? AS BIGINT))"] * len(ends))
    query = f"""
        SELECT broker, arg_max(load, load.seq) FILTER (load.seq <= ?) AS before,
               arg_min(load, load.seq) FILTER (load.seq >= ends) AS after
        FROM ({_LOAD.replace("$1", "?")}) AS load
        JOIN (VALUES {table}) AS asked (broker, ends) USING (broker) GROUP BY broker
    """
    parameters = [seq, cluster, *(value for row in ends.items() for value in row)]
    found = records(run(lake, query, parameters))
    return {row["broker"]: (row["before"], row["after"]) for row in found}


def _first(lake: Lake, query: str, parameters: Sequence[object]) -> Row | None:
    rows = records(run(lake, query, parameters))
    return rows[0] if rows else None


def _sentence(decision: Row, parts: tuple[BrokerPart, ...], owner: str | None) -> str:
    """What was decided, why, and how it ended. Only what reports have confirmed is told as done."""
    why = explain_rule(decision["rule"], decision["source"], decision["explain"])
    dry = ", in a dry run," if decision["dry_run"] else ""
    begin = f"Round {decision['seq']} of {decision['cluster']}{dry}"
    action, end = _describe_action(decision), _describe_end(decision, parts, owner)
    return f"{begin} {action}: {why}.{_describe_approval(decision)} {end}"


def _describe_approval(decision: Row) -> str:
    """Who approved a decision, and on what usages."""
    if not decision["approved_by"]:
        return ""
    text = f"{decision['approved_by']} approved it ({decision['proposal_id']})."
    explain = decision["explain"]
    if explain.get("max_usage") is None:
        return f" {text}"
    names = ("source_usage", "destination_usage", "max_usage", "max_usage_after")
    usages = {name: figure(explain.get(name), "ratio") for name in names}
    to, there = decision["destination"], explain.get("destination_usage") is not None
    and_to = f" and {to} at {usages['destination_usage']}" if to and there else ""
    return (
        f" With {decision['source']} at {usages['source_usage']} usage{and_to} (the busiest broker "
        f"at {usages['max_usage']}, and to be at {usages['max_usage_after']} with it) {text}"
    )


_MOVE, _HAVE = ("moved", "moved", "move"), ("had", "had", "have")
"""Verbs: past tense, participle, infinitive."""


def _describe_action(decision: Row) -> str:
    """The decision with its verb: the past tense is kept for what was carried out."""
    destination = decision["destination"]
    target = f" for {destination}" if destination else ", its new broker to be found"
    bundle, source = decision["bundle"], decision["source"]
    verbs, what = {
        "assign": (("gave", "given", "give"), f"{bundle} to {destination}"),
        "split": (_HAVE, f"{source} split {bundle} ({decision['algorithm']})"),
        "merge": (_HAVE, f"{source} merge {bundle} and {decision['neighbour']}"),
    }.get(decision["kind"], (_MOVE, f"{bundle} away from {source}{target}"))
    past, participle, infinitive = verbs
    if decision["dry_run"]:
        return f"would have {participle} {what}"
    return f"{past} {what}" if is_confirmed(decision) else f"decided to {infinitive} {what}"


def _describe_end(decision: Row, parts: tuple[BrokerPart, ...], owner: str | None) -> str:
    if decision["dry_run"]:
        return "It was not published."
    if decision["outcome"] is None:
        return f"No report has confirmed it yet. It expires at {clock(decision['expires_ms'])}."
    took = f"after {decision['took_ms'] / 1000:.1f} s"
    if not is_confirmed(decision):
        verb = "was " if decision["outcome"] in ("refused", "superseded") else ""
        text = f"It {verb}{decision['outcome']} {took} ({decision['detail']})"
        return text + _describe_place(decision, owner)
    text = f"A report confirmed it {took}"
    source = next((part for part in parts if part.role == "source"), None)
    if (
        source is None
        or decision["kind"] in RESHAPES
        or source.before is None
        or source.after is None
    ):
        return f"{text}."
    before, after = (figure(load["usage_ratio"], "ratio") for load in (source.before, source.after))
    return f"{text}; the usage of {source.broker} went from {before} to {after}."


def _describe_place(decision: Row, owner: str | None) -> str:
    """Where the bundle of a decision is that was not carried out."""
    stays = decision["outcome"] in ("refused", "expired")
    if stays and decision["kind"] in MOVES:
        return f". The bundle stayed at {decision['source']}."
    if stays and decision["kind"] in RESHAPES:
        return ". The bundle stayed as it was."
    return f"; {owner or 'nobody'} has the bundle now."


# --- a bundle, a broker, a round ---


def load_decisions_about(
    lake: Lake, column: str, value: str, cluster: str | None, last: int
) -> list[Row]:
    """The last decisions about a bundle, or from or to a broker, the oldest first."""
    where = (
        "$1 IN (decisions.bundle, neighbour)"
        if column == "bundle"
        else "(source = $1 OR destination = $1)"
    )
    query = f"""SELECT * FROM ({_DECIDED} WHERE {where} AND ($2 IS NULL OR decisions.cluster = $2)
        ORDER BY issued_ms DESC, decisions.seq DESC, ordinal DESC LIMIT $3)
        ORDER BY issued_ms, seq, ordinal"""
    return [_unpacked(row) for row in records(run(lake, query, [value, cluster, last]))]


def load_refusals_about(lake: Lake, where: str, parameters: Sequence[object]) -> list[Row]:
    """Refusals by rule, broker and namespace that meet a condition: how often, what was seen, the
    limit, until when."""
    query = f"""
        SELECT cluster, rule, broker, namespace, sum("count")::BIGINT AS times,
               max(seq) AS last_seq, max(now_ms) AS last_ms,
               arg_max("limit", seq) AS "limit", min(least) AS least, max(greatest) AS greatest,
               any_value(unit) AS unit,
               arg_max(until_ms, seq) AS until_ms
        FROM refusals WHERE {where} GROUP BY cluster, rule, broker, namespace
        ORDER BY last_seq DESC, times DESC, rule, namespace"""
    return [
        row | {"why": explain_refusal(row["rule"]) + _whose_and_until(row)}
        for row in records(run(lake, query, parameters))
    ]


def _whose_and_until(row: Row) -> str:
    parts = [row["namespace"] or "", f"until {clock(row['until_ms'])}" if row["until_ms"] else ""]
    return f" ({', '.join(filter(None, parts))})" if any(parts) else ""


def require_broker(lake: Lake, broker: str, cluster: str | None) -> list[str]:
    """The clusters whose rounds have seen a broker, dead or alive.

    Raises QueryError (exit code 2) where none has.
    """
    query = """
        SELECT DISTINCT cluster FROM broker_loads
        WHERE broker = $1 AND ($2 IS NULL OR cluster = $2) ORDER BY cluster
    """
    found = [str(row["cluster"]) for row in records(run(lake, query, [broker, cluster]))]
    if not found:
        of = f" of {cluster}" if cluster else ""
        hint = "lbctl brokers lists them, with their ports"
        raise QueryError(f"no round{of} has seen a broker {broker}: {hint}", code=2)
    return found


def explain_round(lake: Lake, cluster: str, seq: int) -> Row:
    """What a round saw, decided and refused. Raises QueryError when no such round was logged."""
    row = _first(
        lake,
        "SELECT * FROM rounds WHERE cluster = $1 AND seq = $2 ORDER BY log_seq DESC LIMIT 1",
        [cluster, seq],
    )
    if row is None:
        bounds = _first(
            lake,
            "SELECT min(seq) AS low, max(seq) AS high FROM rounds WHERE cluster = $1",
            [cluster],
        )
        if bounds is None or bounds["high"] is None:
            names = [
                each["cluster"]
                for each in records(
                    run(lake, "SELECT DISTINCT cluster FROM rounds ORDER BY cluster", [])
                )
            ]
            raise QueryError(
                f"no round of {cluster} is in the log: "
                f"{', '.join(names) or 'none of any cluster is'}",
                code=2,
            )
        known = (
            f"its rounds run from {bounds['low']} to {bounds['high']}; rounds that saw and "
            "said nothing new aren't logged"
        )
        raise QueryError(f"round {seq} of {cluster} is not in the log ({known})", code=2)
    seen = _first(
        lake,
        "SELECT max(seq) AS seq FROM broker_loads WHERE cluster = $1 AND seq <= $2",
        [cluster, seq],
    )
    loads = records(
        run(lake, f"{_LOAD} AND seq = $2 ORDER BY broker", [cluster, seen["seq"] if seen else None])
    )
    made = records(
        run(
            lake,
            f"{_DECIDED} WHERE decisions.cluster = $1 AND decisions.seq = $2 ORDER BY ordinal",
            [cluster, seq],
        )
    )
    refused = load_refusals_about(lake, "cluster = $1 AND seq = $2", [cluster, seq])
    return {
        "cluster": cluster,
        "seq": seq,
        "now_ms": row["now_ms"],
        "epoch": row["epoch"],
        "batch_id": row["batch_id"],
        "error": row["error"],
        "inputs": json.loads(row["inputs"]),
        "outcomes": json.loads(row["outcomes"]),
        "brokers": loads,
        "decisions": [_unpacked(row) for row in made],
        "refusals": refused,
    }
