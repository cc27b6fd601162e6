"""Explains a decision, a bundle, a broker or a round from the tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lb_stream.contracts.decisions import MOVES, RESHAPES
from lb_stream.core.model.rules import Decides
from lb_stream.io.messages.shown import figure
from lb_stream.io.messages.times import clock
from lb_stream.query import QueryError
from lb_stream.query.costs import find_move_cost
from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import NO_BROKER, explain_refusal, explain_rule, is_confirmed

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
    """A broker's part in a decision: its load before and after it, and the expected one.

    Loads are rows of `broker_loads` (usage a ratio, bytes/s, msgs/s, bundles). `before`: in the
    round of the decision. `after`: in the first round after the end of the round's moves from the
    source, or of the assign to the destination; None: they are pending. `expected`: in the
    decision's unit.
    """

    role: str
    broker: str
    before: Row | None
    after: Row | None
    expected: float | None


@dataclass(frozen=True, slots=True)
class DecisionExplanation:
    """A decision with all facts about it in the tables.

    `moves`: the number of moves from the same source in its round. `follows`: id of the unload
    before an assign; `followed_by`: id of the assign after an unload. `cost`: see `find_move_cost`;
    None: the decision moved nothing.
    """

    sentence: str
    decision: Row
    parts: tuple[BrokerPart, ...]
    moves: int
    follows: str | None
    followed_by: str | None
    cost: Row | None

    def to_dict(self) -> Row:
        """Return the fields as JSON can hold them."""
        return asdict(self)


# --- a decision ---


def explain_decision(lake: Lake, decision_id: str) -> DecisionExplanation:
    """Explain the decision of that id. Raises QueryError where there is none."""
    rows = records(run(lake, f"{_DECIDED} WHERE decision_id = $1", [decision_id]))
    if not rows:
        raise QueryError(
            f"there is no decision {decision_id}: lbctl decisions shows the last ones, their ids "
            "with --json",
            code=2,
        )
    return build_explanation(lake, _unpack(rows[0]))


def explain_last(lake: Lake, cluster: str | None) -> DecisionExplanation | None:
    """Explain the last decision of a cluster (None: of any cluster); None: there is none.

    If it is the assign of a move, the unload is explained, which has the reason.
    """
    query = f"""{_DECIDED} WHERE $1 IS NULL OR decisions.cluster = $1
        ORDER BY issued_ms DESC, decisions.seq DESC, ordinal DESC LIMIT 1"""
    row = _find_first(lake, query, [cluster])
    if row is None:
        return None
    unload = _find_unload(lake, row)
    if unload is None:
        return build_explanation(lake, _unpack(row))
    return explain_decision(lake, unload)


def _unpack(row: Row) -> Row:
    """Return the row with its column `explain` read from JSON."""
    return row | {"explain": json.loads(row["explain"])}


def build_explanation(lake: Lake, decision: Row) -> DecisionExplanation:
    """Explain a decision: a row of `decisions` with its outcome and `explain` as a dict."""
    siblings = _load_siblings(lake, decision)
    assignment = _find_assignment(lake, decision)
    parts = tuple(_build_parts(lake, decision, siblings, assignment))
    followed_by = None if assignment is None else assignment["decision_id"]
    ended_badly = decision["outcome"] is not None and not is_confirmed(decision)
    owner = _find_owner(lake, decision) if ended_badly else None
    sentence = _build_sentence(decision, parts, owner, _find_turn(lake, decision))
    return DecisionExplanation(
        sentence,
        decision,
        parts,
        len(siblings),
        _find_unload(lake, decision),
        followed_by,
        find_move_cost(lake, decision),
    )


def _load_siblings(lake: Lake, decision: Row) -> list[Row]:
    """Return the moves from the same source in the same round, this decision included."""
    if decision["kind"] not in MOVES:
        return []
    query = (
        f"{_DECIDED} WHERE decisions.cluster = $1 AND decisions.seq = $2 AND source = $3 AND "
        f"kind IN {MOVES}"
    )
    return records(run(lake, query, [decision["cluster"], decision["seq"], decision["source"]]))


def _find_assignment(lake: Lake, decision: Row) -> Row | None:
    """Return the assignment that follows an unload; None: there is none yet."""
    if decision["kind"] not in MOVES or decision["outcome"] in ("refused", "expired"):
        return None
    query = f"""{_DECIDED}
    WHERE decisions.cluster = $1 AND decisions.bundle = $2 AND kind = 'assign'
    AND decisions.seq > $3
        ORDER BY decisions.seq LIMIT 1"""
    rows = records(run(lake, query, [decision["cluster"], decision["bundle"], decision["seq"]]))
    return rows[0] if rows else None


def _find_unload(lake: Lake, decision: Row) -> str | None:
    """Return the id of the unload whose bundle a decision assigns; None: it follows no unload."""
    ends_move = decision["rule"] in ("released", "repeated") and decision["reason"] != "Unowned"
    if decision["kind"] != "assign" or not ends_move:
        return None
    query = f"""SELECT decision_id FROM decisions
    WHERE cluster = $1 AND bundle = $2 AND kind IN {MOVES} AND seq < $3
        ORDER BY seq DESC LIMIT 1"""
    row = _find_first(lake, query, [decision["cluster"], decision["bundle"], decision["seq"]])
    return None if row is None else str(row["decision_id"])


def _find_owner(lake: Lake, decision: Row) -> str | None:
    """Return the broker that has the decision's bundle now; None: no broker, or not known."""
    row = _find_first(
        lake,
        "SELECT owner FROM ownership WHERE cluster = $1 AND bundle = $2",
        [decision["cluster"], decision["bundle"]],
    )
    return None if row is None else row["owner"]


def _find_turn(lake: Lake, decision: Row) -> str:
    """Return why a rollout restarts the decision's source now; empty: no rollout has decided it."""
    if decision["rule"] != Decides.ROLLOUT.name:
        return ""
    query = """SELECT text FROM rollouts
    WHERE cluster = $1 AND broker = $2 AND phase = 'draining' AND seq <= $3
        ORDER BY seq DESC LIMIT 1"""
    row = _find_first(lake, query, [decision["cluster"], decision["source"], decision["seq"]])
    return "" if row is None else str(row["text"])


def _build_parts(
    lake: Lake, decision: Row, siblings: list[Row], assignment: Row | None
) -> list[BrokerPart]:
    """Return the parts of source and destination, if the decision has them."""
    source, destination = decision["source"], decision["destination"]
    last = assignment if decision["kind"] in MOVES else decision
    arrived = None if last is None or last["destination"] != destination else last["ended_seq"]
    ends: dict[str, int | None] = {}
    if source is not None:
        ends[source] = _last_round([row["ended_seq"] for row in siblings or [decision]])
    if destination is not None:
        ends[destination] = arrived
    loads = _load_around(lake, decision["cluster"], decision["seq"], ends)
    expected = {source: decision["explain"].get("expected_after")}
    roles = (("source", source), ("destination", destination))
    return [
        BrokerPart(role, broker, *loads.get(broker, (None, None)), expected.get(broker))
        for role, broker in roles
        if broker is not None
    ]


def _last_round(ended: Iterable[int | None]) -> int | None:
    """Return the round in which the last of the moves ended; None: one is pending."""
    rounds = list(ended)
    return None if None in rounds else max(seq for seq in rounds if seq is not None)


def _load_around(
    lake: Lake, cluster: str, seq: int, ends: Mapping[str, int | None]
) -> dict[str, tuple[Row | None, Row | None]]:
    """Return broker → its load in round `seq`, and in the first round with a report since `ends`.

    A round without a new report has the figures of the last one that had some.
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


def _find_first(lake: Lake, query: str, parameters: Sequence[object]) -> Row | None:
    rows = records(run(lake, query, parameters))
    return rows[0] if rows else None


def _build_sentence(
    decision: Row, parts: tuple[BrokerPart, ...], owner: str | None, turn: str
) -> str:
    """Return the sentences of a decision: the action, the reason, the end.

    The action is in the past tense only if reports confirm it. `turn`: why the source is restarted
    now; empty: it isn't.
    """
    why = explain_rule(decision["rule"], decision["source"], decision["explain"])
    why += f" ({turn})" if turn else ""
    dry = ", in a dry run," if decision["dry_run"] else ""
    begin = f"Round {decision['seq']} of {decision['cluster']}{dry}"
    action, end = _describe_action(decision), _describe_end(decision, parts, owner)
    return f"{begin} {action}: {why}.{_describe_approval(decision)} {end}"


def _describe_approval(decision: Row) -> str:
    """Describe who approved a decision, and at which usages; empty: it was not approved."""
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
        f" With {decision['source']} at {usages['source_usage']} usage{and_to} (max usage "
        f"{usages['max_usage']}, with the move {usages['max_usage_after']}) {text}"
    )


_MOVE, _HAVE = ("moved", "moved", "move"), ("had", "had", "have")
"""Verbs: past tense, participle, infinitive."""


def _describe_action(decision: Row) -> str:
    """Describe the action of a decision, in the past tense only if it was carried out."""
    destination = decision["destination"]
    target = f" to {destination}" if destination else ", to a broker to be found"
    bundle, source = decision["bundle"], decision["source"]
    verbs, action = {
        "assign": (("gave", "given", "give"), f"{bundle} to {destination}"),
        "split": (_HAVE, f"{source} split {bundle} ({decision['algorithm']})"),
        "merge": (_HAVE, f"{source} merge {bundle} and {decision['neighbour']}"),
    }.get(decision["kind"], (_MOVE, f"{bundle} from {source}{target}"))
    past, participle, infinitive = verbs
    if decision["dry_run"]:
        return f"would have {participle} {action}"
    return f"{past} {action}" if is_confirmed(decision) else f"decided to {infinitive} {action}"


def _describe_end(decision: Row, parts: tuple[BrokerPart, ...], owner: str | None) -> str:
    """Describe how a decision ended, or that it is pending. `owner`: the bundle's broker now."""
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
    """Describe the place of the bundle after a decision that was not carried out."""
    stays = decision["outcome"] in ("refused", "expired")
    if stays and decision["kind"] in MOVES:
        return f". The bundle stayed at {decision['source']}."
    if stays and decision["kind"] in RESHAPES:
        return ". The bundle stayed as it was."
    return f"; {owner or NO_BROKER} has the bundle now."


# --- a bundle, a broker, a round ---


def load_decisions_about(
    lake: Lake, column: str, value: str, cluster: str | None, last: int
) -> list[Row]:
    """Return the last decisions about a bundle, or from or to a broker, the oldest first.

    `column`: bundle or broker; `value`: its name.
    """
    where = (
        "$1 IN (decisions.bundle, neighbour)"
        if column == "bundle"
        else "(source = $1 OR destination = $1)"
    )
    query = f"""SELECT * FROM ({_DECIDED} WHERE {where} AND ($2 IS NULL OR decisions.cluster = $2)
        ORDER BY issued_ms DESC, decisions.seq DESC, ordinal DESC LIMIT $3)
        ORDER BY issued_ms, seq, ordinal"""
    return [_unpack(row) for row in records(run(lake, query, [value, cluster, last]))]


def load_refusals_about(lake: Lake, where: str, parameters: Sequence[object]) -> list[Row]:
    """Return the refusals that meet a condition, summed by rule, broker and namespace."""
    query = f"""
        SELECT cluster, rule, broker, namespace, sum("count")::BIGINT AS times,
               max(seq) AS last_seq, max(now_ms) AS last_ms,
               arg_max("limit", seq) AS "limit", min(least) AS least, max(greatest) AS greatest,
               any_value(unit) AS unit,
               arg_max(until_ms, seq) AS until_ms
        FROM refusals WHERE {where} GROUP BY cluster, rule, broker, namespace
        ORDER BY last_seq DESC, times DESC, rule, namespace"""
    return [
        row | {"why": explain_refusal(row["rule"]) + _describe_scope(row)}
        for row in records(run(lake, query, parameters))
    ]


def _describe_scope(row: Row) -> str:
    parts = [row["namespace"] or "", f"until {clock(row['until_ms'])}" if row["until_ms"] else ""]
    return f" ({', '.join(filter(None, parts))})" if any(parts) else ""


def require_broker(lake: Lake, broker: str, cluster: str | None) -> list[str]:
    """Return the clusters whose rounds have seen a broker, dead or alive.

    Raises QueryError (exit code 2) if no round has.
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
    """Return the inputs, decisions and refusals of a round. Raises QueryError if not logged."""
    query = "SELECT * FROM rounds WHERE cluster = $1 AND seq = $2 ORDER BY log_seq DESC LIMIT 1"
    row = _find_first(lake, query, [cluster, seq])
    if row is None:
        raise QueryError(_explain_missing_round(lake, cluster, seq), code=2)
    # Brokers are those of the last round with a report: others see the same figures.
    query = "SELECT max(seq) AS seq FROM broker_loads WHERE cluster = $1 AND seq <= $2"
    reported = _find_first(lake, query, [cluster, seq])
    reported_seq = None if reported is None else reported["seq"]
    query = f"{_LOAD} AND seq = $2 ORDER BY broker"
    loads = records(run(lake, query, [cluster, reported_seq]))
    query = f"{_DECIDED} WHERE decisions.cluster = $1 AND decisions.seq = $2 ORDER BY ordinal"
    decisions = records(run(lake, query, [cluster, seq]))
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
        "decisions": [_unpack(decision) for decision in decisions],
        "refusals": load_refusals_about(lake, "cluster = $1 AND seq = $2", [cluster, seq]),
    }


def _explain_missing_round(lake: Lake, cluster: str, seq: int) -> str:
    """Explain that the log lacks a round, with the rounds or clusters that it has."""
    query = "SELECT min(seq) AS low, max(seq) AS high FROM rounds WHERE cluster = $1"
    bounds = _find_first(lake, query, [cluster])
    if bounds is not None and bounds["high"] is not None:
        return (
            f"round {seq} of {cluster} is not in the log: expected one from {bounds['low']} to "
            f"{bounds['high']}, of which those without any result are not logged"
        )
    names = records(run(lake, "SELECT DISTINCT cluster FROM rounds ORDER BY cluster"))
    known = ", ".join(row["cluster"] for row in names)
    expected = f"expected one of {known}" if known else "the log has no round of any cluster"
    return f"no round of {cluster} is in the log: {expected}"
