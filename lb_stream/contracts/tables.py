"""The Delta tables: their columns, and what they are partitioned by.

Units are in the names. `log_seq` numbers the batches of a pipeline for ever, across checkpoints;
`seq` numbers a cluster's rounds.
"""

from __future__ import annotations

import pyarrow as pa

from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.columns.rounds import LOG_COLUMNS, MEANINGS
from lb_stream.contracts.table_spec import TableSpec, counts, flags, lists, reals, texts

_FOUR = (
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
)


def _four(*prefixes: str) -> list[pa.Field]:
    """Return the columns of throughputs and message rates, for each prefix."""
    return reals(*(f"{prefix}_{value}" for prefix in prefixes for value in _FOUR))


ROUNDS = TableSpec(
    "rounds",
    "one cluster's round in one batch: the log from which other tables follow",
    pa.schema([*texts("app"), *counts("batch_id", "log_seq"), *LOG_COLUMNS]),
    kept_by="now_ms",
    comments=MEANINGS,
)
DECISIONS = TableSpec(
    "decisions",
    "one decision; its outcome is in outcomes",
    pa.schema(
        [
            *texts("decision_id", "cluster"),
            *counts("seq", "epoch"),
            *texts("kind", "bundle", "source", "destination", "expected_owner"),
            *counts("expected_version"),
            *lists("children"),
            pa.field("boundaries", pa.list_(pa.int64())),
            *texts("algorithm"),
            *flags("unload_children"),
            *texts("reason", "rule", "strategy"),
            *counts("issued_ms", "expires_ms"),
            *flags("dry_run"),
            *texts("explain"),
            *counts("log_seq"),
            *texts("neighbour", "approved_by", "proposal_id"),
        ]
    ),
    kept_by="issued_ms",
    from_log=True,
    comments={
        "neighbour": "of a merge: the bundle whose hash range follows",
        "proposal_id": "id of the proposal whose approval led to the decision; null: none",
    },
)
OUTCOMES = TableSpec(
    "outcomes",
    "the outcome of one decision: confirmed, superseded, refused, expired or failed",
    pa.schema(
        [
            *texts("decision_id", "cluster"),
            *counts("seq"),
            *texts("bundle", "outcome", "detail"),
            *counts("at_ms", "took_ms", "log_seq", "released_ms"),
        ]
    ),
    kept_by="at_ms",
    from_log=True,
    comments={
        "seq": "number of the round that found the outcome",
        "at_ms": "when the decision ended",
        "released_ms": "since when no broker served the bundle of a move or an assignment: when "
        "its release was acknowledged or reported, or the last sign of life of its dead broker; "
        "null: it has not left its broker, or no broker had it before",
    },
)
OWNERSHIP = TableSpec(
    "ownership",
    "the ownership record of one bundle, as on the topic; earlier records are in the log",
    pa.schema(
        [
            *texts("cluster", "bundle", "state", "owner", "source", "destination"),
            *lists("children"),
            *counts("version"),
            *flags("force"),
            *counts("since_ms", "epoch"),
            *texts("decision_id"),
            *counts("log_seq"),
        ]
    ),
    from_log=True,
    comments={
        "decision_id": "id of the decision that led to this record",
        "since_ms": "since when the record holds",
    },
)
MERGE_ADVICE = TableSpec(
    "merge_advice",
    "two neighbouring bundles that could be one: what they carry together, as shares of the limits "
    "at which a split begins",
    pa.schema(
        [
            *texts("cluster", "namespace", "bundle", "neighbour", "owner"),
            *counts("since_ms"),
            *reals("topics_ratio", "sessions_ratio", "rate_ratio", "bandwidth_ratio"),
            *counts("seq", "now_ms", "log_seq"),
        ]
    ),
    from_log=True,
    comments={"since_ms": "since when both bundles are small"},
)
BUNDLE_AVERAGES = TableSpec(
    "bundle_averages",
    "one bundle now: its owner, latest statistics, short-term and long-term averages",
    pa.schema(
        [
            *texts("cluster", "bundle", "owner"),
            *counts("owner_since_ms", "topics"),
            *_four("latest"),
            pa.field("short_samples", pa.int32()),
            *_four("short"),
            pa.field("long_samples", pa.int32()),
            *_four("long"),
            pa.field("topic_hashes", pa.list_(pa.int64())),
            pa.field("topic_shares", pa.list_(pa.float64())),
            *reals("hottest_topic_ratio"),
            *counts("now_ms"),
            *texts("part"),
        ]
    ),
    partition_by="part",
    comments={
        "topic_hashes": "hashes of its topics, where its owner reports their shares; light topics "
        "that follow one another have the first one's; null: not reported",
        "topic_shares": "parts of the bundle's load that these topics carry, in the same order; "
        "together 1",
        "hottest_topic_ratio": "the greatest of topic_shares: what a split can't divide",
    },
)
BUNDLE_HISTORY = TableSpec(
    "bundle_history",
    "one bundle in one time slot: its owner and latest statistics; without a row in a slot it is "
    "as in its last row before",
    pa.schema(
        [
            *counts("slot_ms"),
            *texts("cluster", "bundle", "owner"),
            *((value, pa.float32()) for value in _FOUR),
            *((name, pa.int32()) for name in ("topics", "producers", "consumers")),
            *counts("cache_size_bytes"),
        ]
    ),
    kept_by="slot_ms",
)
BROKER_HISTORY = TableSpec(
    "broker_history",
    "one broker in one time slot: usage and limit of each resource",
    pa.schema(
        [
            *counts("slot_ms"),
            *texts("cluster", "broker"),
            *counts("seen_ms", "reported_ms"),
            *flags("left"),
            *reals(
                *(f"{resource}_{part}" for resource in RESOURCES for part in ("usage", "limit"))
            ),
            *reals(*_FOUR),
            *counts("topics", "bundles"),
        ]
    ),
    kept_by="slot_ms",
)
BROKER_LOADS = TableSpec(
    "broker_loads",
    "one broker as a round saw it; one row for each round with a new report",
    pa.schema(
        [
            *texts("cluster"),
            *counts("seq", "now_ms"),
            *texts("broker"),
            *flags("alive"),
            *counts("seen_ms", "reported_ms"),
            *reals("usage_ratio", *(f"{resource}_ratio" for resource in RESOURCES)),
            *counts("bundles", "topics"),
            *_four("latest", "short", "long"),
            *counts("log_seq"),
            *flags("active"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
)
REFUSALS = TableSpec(
    "refusals",
    "what one rule refused at one broker in one round",
    pa.schema(
        [
            *texts("cluster"),
            *counts("seq", "now_ms"),
            *texts("rule", "broker"),
            *counts("count"),
            *reals("limit", "least", "greatest"),
            *texts("unit"),
            *lists("subjects"),
            *counts("log_seq"),
            *texts("namespace"),
            *counts("until_ms"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
    comments={
        "rule": "the rule that refused",
        "namespace": "the namespace whose limit it is; null: it is no namespace's",
        "until_ms": "until when a namespace's limit holds, where that is known",
    },
)
REJECTED_REPORTS = TableSpec(
    "rejected_reports",
    "one rejected record: its position, the wrong field, its value, what was expected",
    pa.schema(
        [
            *texts("topic"),
            pa.field("partition", pa.int32()),
            *counts("offset", "append_ms"),
            *texts("cluster", "broker", "field", "value", "expected"),
            *counts("log_seq"),
        ]
    ),
    kept_by="append_ms",
    from_log=True,
)
COMMANDS = TableSpec(
    "commands",
    "one cluster's result of one command; a command that takes time has two: accepted, then done "
    "or failed",
    pa.schema(
        [
            *texts("id", "cluster", "kind", "arguments", "by"),
            *counts("at_ms"),
            *texts("outcome", "text", "rule"),
            *lists("decision_ids"),
            *counts("seq", "now_ms", "log_seq"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
    comments={
        "kind": "kind of the command",
        "at_ms": "append time of the command",
        "outcome": "done, accepted, refused or failed",
        "rule": "the rule that refused the command; null: none",
        "now_ms": "time of the round that answered",
    },
)
AUDIT = TableSpec(
    "audit",
    "one answer to one command: who, with which key and right, what, old and new value, decisions; "
    "chained by hash",
    pa.schema(
        [
            *texts("cluster"),
            *counts("number", "log_seq", "seq", "at_ms", "now_ms"),
            *texts("by", "key_id", "right", "kind"),
            *lists("objects"),
            *texts("arguments", "old_value", "new_value", "command_id", "outcome", "rule", "text"),
            *lists("decision_ids"),
            *flags("repeated"),
            *texts("previous_hash", "hash"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
    comments={
        "number": "the row's place in its cluster's chain, from 1",
        "at_ms": "append time of the command; of a cut, when upkeep made it",
        "now_ms": "time of the round that answered; of a cut, that of the last row that it stands "
        "for",
        "kind": "kind of the command; audit-cut: stands for rows that upkeep has deleted",
        "outcome": "done, accepted, refused or failed",
        "rule": "the rule that refused the command; null: none",
    },
)
PROPOSALS = TableSpec(
    "proposals",
    "one state of one proposal: waiting, then approved, rejected, expired, stale, superseded or "
    "withdrawn",
    pa.schema(
        [
            *texts("proposal_id", "cluster", "together", "state", "by", "why"),
            *texts("kind", "bundle", "source", "destination", "reason", "rule", "strategy"),
            *reals("bytes_per_s"),
            *counts("proposed_ms", "expires_ms", "until_ms"),
            *texts("decision_id", "explain", "plan"),
            *counts("step"),
            *reals(
                "source_usage", "destination_usage", "max_usage", "usage_alone", "usage_in_order"
            ),
            *counts("seq", "now_ms", "log_seq"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
    comments={
        "state": "waiting, approved, rejected, expired, stale, superseded or withdrawn",
        "by": "who approved, rejected or withdrew the proposal",
        "expires_ms": "until when the proposal waits for approval",
        "until_ms": "until when the rejection holds",
        "decision_id": "id of the decision that the approval led to",
    },
)
ROLLOUTS = TableSpec(
    "rollouts",
    "one event of one rollout: a new phase of one of its brokers, or what happens to it as a whole",
    pa.schema(
        [
            *texts("rollout", "cluster", "broker", "phase"),
            *counts("at_ms"),
            *texts("text"),
            *counts("moves", "seq", "now_ms", "log_seq"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
    comments={
        "broker": "the broker whose phase is new; null: the event is about the whole rollout",
        "phase": "of a broker: draining, empty, down, done or waiting; of the whole: started, "
        "stands_still, goes_on, levelling, ended or aborted",
        "at_ms": "when it happened",
        "text": "what happened, and why now",
        "moves": "bundles that were moved away for the broker's restart so far",
    },
)
_ROUND_OF_A_POLICY = [*texts("cluster"), *counts("seq", "now_ms"), *texts("policy")]
SHADOW_ROUNDS = TableSpec(
    "shadow_rounds",
    "one policy in one round: the cluster's own (real), or a shadow's, which decides and publishes "
    "nothing",
    pa.schema(
        [
            *_ROUND_OF_A_POLICY,
            *texts("outcome", "detail", "strategies"),
            *flags("shed"),
            *counts("moves", "assignments"),
            *reals("moved_bytes_per_s"),
            *counts("arrived", "elsewhere"),
            *reals("before_max_ratio", "max_ratio", "mean_ratio"),
            *lists("refused_by"),
            *counts("log_seq"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
    comments={
        "outcome": "done, skipped or failed",
        "detail": "why it failed; of the real policy: whether the round was a dry run",
    },
)
SHADOW_DECISIONS = TableSpec(
    "shadow_decisions",
    "one decision that a shadow would have made",
    pa.schema(
        [
            *_ROUND_OF_A_POLICY,
            *counts("number"),
            *texts("kind", "bundle", "source", "destination", "reason", "rule", "strategy"),
            *reals("saw", "limit"),
            *texts("unit"),
            *reals("bytes_per_s"),
            *counts("log_seq"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
)
LEADERS = TableSpec(
    "leaders",
    "one start of the job, which leads from then on; the last row is the current leader's",
    pa.schema(
        [
            *texts("pipeline"),
            *counts("epoch"),
            *texts("host"),
            *counts("pid", "since_ms"),
        ]
    ),
    comments={"since_ms": "since when the job leads, by its host's clock"},
)
BATCHES = TableSpec(
    "batches",
    "one micro-batch: how much it read and how long its parts took; written every few seconds, for "
    "monitoring only",
    pa.schema(
        [
            *texts("app"),
            *counts("epoch", "batch_id", "log_seq", "started_ms", "input_records", "lag_records"),
            *counts("rounds", "decisions", "refusals", "errors"),
            *counts("whole_ms", "offsets_ms", "planning_ms", "wal_ms"),
            *reals("decide_ms", "log_ms", "publish_ms", "project_ms", "averages_ms", "next_ms"),
            *counts("commit_ms", "state_updates_ms"),
            *counts("state_commit_ms", "state_rows", "state_bytes"),
        ]
    ),
    kept_by="started_ms",
    comments={
        "log_seq": "the batch's number in the log; null: nothing was logged",
        "rounds": "number of rounds in the batch",
        "decisions": "number of decisions in the batch",
        "refusals": "number of refusals in the batch",
    },
)
BACKTESTS = TableSpec(
    "backtests",
    "one trial of a back-test: one policy on what one cluster carried in one window of time",
    pa.schema(
        [
            *texts("run", "cluster", "policy", "settings"),
            *counts("made_ms", "from_ms", "to_ms", "moves", "failovers", "violation_count"),
            *reals(
                "max_over_bound_median",
                "max_over_bound_p95",
                "tick_s",
                "balanced_share",
                "client_seconds_lost",
                "overload_s_85",
            ),
            *texts("measures", "error", "loop"),
        ]
    ),
    comments={
        "policy": "name of the policy",
        "moves": "moves in the window",
        "error": "why there are no measures; null: the trial succeeded",
    },
)
HISTORY_TABLES = (BUNDLE_HISTORY, BROKER_HISTORY)
TABLES = (
    ROUNDS,
    DECISIONS,
    OUTCOMES,
    OWNERSHIP,
    MERGE_ADVICE,
    BUNDLE_AVERAGES,
    BROKER_LOADS,
    *HISTORY_TABLES,
    REFUSALS,
    REJECTED_REPORTS,
    COMMANDS,
    AUDIT,
    PROPOSALS,
    ROLLOUTS,
    SHADOW_ROUNDS,
    SHADOW_DECISIONS,
    LEADERS,
    BATCHES,
    BACKTESTS,
)
