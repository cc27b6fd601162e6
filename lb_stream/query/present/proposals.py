"""Load proposals that wait for approval, and those that have ended."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lb_stream.contracts.tables import PROPOSALS
from lb_stream.query.cluster_state import ClusterState, read_cluster_states
from lb_stream.query.lake import Row, records, run
from lb_stream.query.wording import explain_rule

if TYPE_CHECKING:
    from lb_stream.core.model.memory import Proposal
    from lb_stream.query.lake import Lake

_LAST = """
    SELECT p.*, first.explain AS whole, coalesce(outcome, '') AS outcome,
           CASE WHEN outcome <> 'confirmed' THEN coalesce(detail, '') ELSE '' END AS outcome_reason
    FROM (
        FROM proposals WHERE ($1 IS NULL OR cluster = $1)
        QUALIFY row_number() OVER (PARTITION BY cluster, proposal_id ORDER BY log_seq DESC) = 1
    ) AS p
    JOIN (
        FROM proposals
        QUALIFY row_number() OVER (PARTITION BY cluster, proposal_id ORDER BY log_seq) = 1
    ) AS first USING (cluster, proposal_id)
    LEFT JOIN outcomes ON outcomes.decision_id = p.decision_id
"""
_ORDER = "proposed_ms, cluster, seq, TRY_CAST(substr(string_split(proposal_id, ':')[-1], 2) AS INT)"
_ENDED = (
    f"FROM ({_LAST} WHERE p.state <> 'waiting' ORDER BY p.now_ms DESC, p.log_seq DESC LIMIT "
    f"$2) ORDER BY now_ms, {_ORDER}"
)


def load_waiting_proposals(lake: Lake, cluster: str | None = None) -> list[Row]:
    """Return the proposals that wait, from each cluster's memory: splits, then plans in order.

    A row has the columns of the table `proposals`, `explanation` (why, as a text), and `outcome`
    and `outcome_reason` as those of `load_ended_proposals`. Its `explain` is a dict with the best
    candidates only.
    """
    rows = [
        _build_waiting(now, proposal)
        for now in read_cluster_states(lake, cluster)
        for proposal in now.memory.proposals
    ]
    return sorted(rows, key=lambda row: (row["cluster"], row["step"]))


def summarise_plans(waiting: Iterable[Row]) -> list[Row]:
    """Return the plans of waiting proposals, with the max usage before and after all their moves.

    A row has `plan`, `cluster`, `moves` (their number), `ids`, `max_usage`, `usage_after`.
    """
    found: dict[str, Row] = {}
    for row in waiting:
        if (name := row["plan"]) is None:
            continue
        new = {"plan": name, "cluster": row["cluster"], "moves": 0, "ids": []}
        plan = found.setdefault(name, new | {"max_usage": row["max_usage"]})
        plan["moves"] += 1
        plan["ids"].append(row["proposal_id"])
        plan["usage_after"] = row["usage_in_order"]
    return list(found.values())


def is_worse_alone(row: Row) -> bool:
    """Return whether a step of a plan, approved alone, would raise the max usage."""
    alone, now = row["usage_alone"], row["max_usage"]
    return row["plan"] is not None and alone is not None and now is not None and bool(alone > now)


def load_ended_proposals(lake: Lake, cluster: str | None, last: int) -> list[Row]:
    """Return the last `last` proposals that no longer wait, the newest at the end.

    Rows are as those of `load_waiting_proposals`, with all candidates. `outcome`: of the decision;
    empty: it has none yet, or there is no decision. `outcome_reason`: why the decision was not
    carried out.
    """
    return [_add_explanation(row) for row in records(run(lake, _ENDED, [cluster, last]))]


def _build_waiting(now: ClusterState, proposal: Proposal) -> Row:
    row = {
        name: getattr(proposal, name) for name in PROPOSALS.schema.names if hasattr(proposal, name)
    }
    row |= {"cluster": now.cluster, "state": "waiting"}
    row |= dict.fromkeys(("by", "why", "outcome", "outcome_reason"), "")
    row |= dict.fromkeys(("until_ms", "decision_id"))
    return row | {
        "seq": now.seq,
        "now_ms": now.now_ms,
        "explanation": explain_rule(proposal.rule, proposal.source, proposal.explain),
    }


def _add_explanation(row: Row) -> Row:
    explain = json.loads(row["whole"] or "{}")
    kept = {name: value for name, value in row.items() if name not in ("whole", "log_seq")}
    return kept | {
        "explain": explain,
        "explanation": explain_rule(row["rule"], row["source"], explain),
    }
