"""The Delta tables: their columns, and what they partition by.

Units are in the names. `log_seq` numbers the batches of a pipeline for ever, across checkpoints;
`seq` numbers a cluster's rounds.
"""

from __future__ import annotations

import pyarrow as pa

from lb_stream.contracts.base import RESOURCES
from lb_stream.contracts.columns.rounds import LOG_COLUMNS
from lb_stream.contracts.table_spec import TableSpec, counts, reals, texts

_FOUR = (
    "throughput_in_bytes_per_s",
    "throughput_out_bytes_per_s",
    "rate_in_msgs_per_s",
    "rate_out_msgs_per_s",
)


def _four(*prefixes: str) -> list[pa.Field]:
    return [pa.field(f"{prefix}_{value}", pa.float64()) for prefix in prefixes for value in _FOUR]


ROUNDS = TableSpec(
    "rounds",
    "one cluster's round in one batch: the log that everything else follows from",
    pa.schema([*texts("app"), *counts("batch_id", "log_seq"), *LOG_COLUMNS]),
    kept_by="now_ms",
)
DECISIONS = TableSpec(
    "decisions",
    "one decision; how it ended is in outcomes",
    pa.schema(
        [
            *(*texts("decision_id", "cluster"), *counts("seq", "epoch")),
            *texts("kind", "bundle", "source", "destination", "expected_owner"),
            ("expected_version", pa.int64()),
            ("children", pa.list_(pa.string())),
            ("boundaries", pa.list_(pa.int64())),
            ("algorithm", pa.string()),
            ("unload_children", pa.bool_()),
            *(*texts("reason", "rule", "strategy"), *counts("issued_ms", "expires_ms")),
            ("dry_run", pa.bool_()),
            ("explain", pa.string()),  # JSON object
            ("log_seq", pa.int64()),
            ("neighbour", pa.string()),  # of a merge: the bundle whose range follows
            *texts("approved_by", "proposal_id"),  # of what was approved
        ]
    ),
    kept_by="issued_ms",
    from_log=True,
)
OUTCOMES = TableSpec(
    "outcomes",
    "how one decision ended: confirmed, superseded, refused, expired or failed",
    pa.schema(
        [
            *(*texts("decision_id", "cluster"), *counts("seq")),
            *texts("bundle", "outcome", "detail"),
            *counts("at_ms", "took_ms", "log_seq"),
            *counts("released_ms"),  # none: the bundle has not left, or no broker had it before
        ]
    ),
    kept_by="at_ms",
    from_log=True,
)
OWNERSHIP = TableSpec(
    "ownership",
    "the ownership record of one bundle, as on the topic; earlier ones are in the log",
    pa.schema(
        [
            *texts("cluster", "bundle", "state", "owner", "source", "destination"),
            ("children", pa.list_(pa.string())),
            ("version", pa.int64()),
            ("force", pa.bool_()),
            ("since_ms", pa.int64()),
            ("epoch", pa.int64()),
            ("decision_id", pa.string()),
            ("log_seq", pa.int64()),
        ]
    ),
    from_log=True,
)
MERGE_ADVICE = TableSpec(
    "merge_advice",
    "two neighbouring bundles that people could merge: what they carry together, as shares of the "
    "limits that a split begins at",
    pa.schema(
        [
            *texts(
                "cluster", "namespace", "bundle", "neighbour", "owner"
            ),  # neighbour: its range follows the bundle's
            *counts("since_ms"),  # since when they are small
            *reals("topics_ratio", "sessions_ratio", "rate_ratio", "bandwidth_ratio"),
            *counts("seq", "now_ms", "log_seq"),  # now_ms: when this was so
        ]
    ),
    from_log=True,
)
BUNDLE_AVERAGES = TableSpec(
    "bundle_averages",
    "one bundle now: its owner, latest statistics, short- and long-term averages",
    pa.schema(
        [
            *(*texts("cluster", "bundle", "owner"), *counts("owner_since_ms", "topics")),
            *_four("latest"),
            pa.field("short_samples", pa.int32()),
            *_four("short"),
            pa.field("long_samples", pa.int32()),
            *_four("long"),
            pa.field("now_ms", pa.int64()),
            pa.field(
                "part",
                pa.string(),
                # what is written anew at once: a shard of a large cluster, or several small
                # clusters
            ),
        ]
    ),
    partition_by="part",
)
BUNDLE_HISTORY = TableSpec(
    "bundle_history",
    "one bundle as a slot of time found it: its owner and latest statistics; without a row it is "
    "as in its row before",
    pa.schema(
        [
            *(
                *counts("slot_ms"),
                *texts("cluster", "bundle", "owner"),
            ),  # slot_ms: begin of the slot
            *((value, pa.float32()) for value in _FOUR),
            *(
                *((name, pa.int32()) for name in ("topics", "producers", "consumers")),
                ("cache_size_bytes", pa.int64()),
            ),
        ]
    ),
    kept_by="slot_ms",
)
BROKER_HISTORY = TableSpec(
    "broker_history",
    "one broker as a slot of time found it: what it used, and what it has of each resource",
    pa.schema(
        [
            ("slot_ms", pa.int64()),  # begin of the slot
            *(*texts("cluster", "broker"), *counts("seen_ms", "reported_ms")),
            ("left", pa.bool_()),  # it said goodbye
            # As reported: cpu in percent of a core, memories in MiB, bandwidths in kbit/s.
            *(
                (f"{resource}_{part}", pa.float64())
                for resource in RESOURCES
                for part in ("usage", "limit")
            ),
            *(*((value, pa.float64()) for value in _FOUR), *counts("topics", "bundles")),
        ]
    ),
    kept_by="slot_ms",
)
BROKER_LOADS = TableSpec(
    "broker_loads",
    "one broker as a round saw it; a row for each round with a new report",
    pa.schema(
        [
            *(*texts("cluster"), *counts("seq", "now_ms"), *texts("broker")),
            pa.field("alive", pa.bool_()),
            *counts("seen_ms", "reported_ms"),
            *reals("usage_ratio", *(f"{resource}_ratio" for resource in RESOURCES)),
            *counts("bundles", "topics"),
            *_four("latest", "short", "long"),
            *counts("log_seq"),
            pa.field("active", pa.bool_()),  # whether it counts in means and maxima
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
            *(
                *texts("cluster"),
                *counts("seq", "now_ms"),
                *texts("rule", "broker"),
                *counts("count"),
            ),
            *reals("limit", "least", "greatest"),
            ("unit", pa.string()),
            ("subjects", pa.list_(pa.string())),
            *(*counts("log_seq"), *texts("namespace"), *counts("until_ms")),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
)
REJECTED_REPORTS = TableSpec(
    "rejected_reports",
    "a record that was not taken: where it is, which field, what it held, what was expected",
    pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            *counts("offset", "append_ms"),
            *texts("cluster", "broker", "field", "value", "expected"),
            ("log_seq", pa.int64()),
        ]
    ),
    kept_by="append_ms",
    from_log=True,
)
COMMANDS = TableSpec(
    "commands",
    "one cluster's answer to one command; one that takes time has two: accepted, then done or "
    "failed",
    pa.schema(
        [
            *texts("id", "cluster", "kind"),
            ("arguments", pa.string()),  # JSON object
            ("by", pa.string()),
            ("at_ms", pa.int64()),  # when the command came
            *texts("outcome", "text"),
            ("rule", pa.string()),  # that refused it
            ("decision_ids", pa.list_(pa.string())),
            ("seq", pa.int64()),
            ("now_ms", pa.int64()),  # when it was answered
            ("log_seq", pa.int64()),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
)
_USAGES = ("source_usage", "destination_usage", "max_usage", "usage_alone", "usage_in_order")
PROPOSALS = TableSpec(
    "proposals",
    "what has become of one proposal: it waits for approval; approved, rejected, expired, stale, "
    "superseded, withdrawn",
    pa.schema(
        [
            *texts("proposal_id", "cluster"),
            *texts(
                "together", "state", "by", "why"
            ),  # together: the first of those that are approved and rejected together
            *texts("kind", "bundle", "source", "destination", "reason", "rule", "strategy"),
            *reals("bytes_per_s"),  # the bundle's short-term average
            *counts("proposed_ms", "expires_ms"),
            ("until_ms", pa.int64()),  # until when a rejection holds
            ("decision_id", pa.string()),  # that an approval has led to
            ("explain", pa.string()),  # JSON object
            *texts("plan"),
            ("step", pa.int64()),
            *reals(*_USAGES),
            *counts("seq", "now_ms", "log_seq"),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
)
_ROUND_OF_A_POLICY = [
    *texts("cluster"),
    *counts("seq", "now_ms"),
    *texts("policy"),
]  # real, or the shadow's name
SHADOW_ROUNDS = TableSpec(
    "shadow_rounds",
    "one policy in one round: the cluster's own (real), or a shadow's, which decides and publishes "
    "nothing",
    pa.schema(
        [
            *_ROUND_OF_A_POLICY,
            ("outcome", pa.string()),  # done, skipped, failed
            ("detail", pa.string()),  # why it failed; of real: whether it was a dry run
            ("strategies", pa.string()),  # shedder + placement
            ("shed", pa.bool_()),  # whether this was a shedding pass
            ("moves", pa.int64()),  # that the shedder decided
            ("assignments", pa.int64()),
            ("moved_bytes_per_s", pa.float64()),  # of these moves' bundles
            (
                "arrived",
                pa.int64(),
                # of real: bundles that reports showed at another broker than before, whoever moved
                # them
            ),
            (
                "elsewhere",
                pa.int64(),
            ),  # of a shadow: bundles that are in its world where they are not really
            ("before_max_ratio", pa.float64()),  # greatest usage before its decisions
            (
                "max_ratio",
                pa.float64(),
                # greatest and mean usage: of real as reported, of a shadow as predicted with its
                # decisions
            ),
            ("mean_ratio", pa.float64()),
            ("refused_by", pa.list_(pa.string())),  # rules
            ("log_seq", pa.int64()),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
)
SHADOW_DECISIONS = TableSpec(
    "shadow_decisions",
    "one decision that a shadow would have made",
    pa.schema(
        [
            *_ROUND_OF_A_POLICY,
            ("number", pa.int64()),  # within its round
            *texts("kind", "bundle", "source", "destination", "reason", "rule", "strategy"),
            *reals("saw", "limit"),
            ("unit", pa.string()),
            ("bytes_per_s", pa.float64()),  # the bundle's short-term average
            ("log_seq", pa.int64()),
        ]
    ),
    kept_by="now_ms",
    from_log=True,
)
LEADERS = TableSpec(
    "leaders",
    "one start of the job: who leads from then on; the last row leads",
    pa.schema(
        [
            *(*texts("pipeline"), *counts("epoch"), *texts("host"), *counts("pid")),
            ("since_ms", pa.int64()),  # the host's clock
        ]
    ),
)
BATCHES = TableSpec(
    "batches",
    "one micro-batch: how much it read and where its time went; written now and then, for watching "
    "only",
    pa.schema(
        [
            *(*texts("app"), *counts("epoch", "batch_id")),
            ("log_seq", pa.int64()),  # none: nothing was logged
            ("started_ms", pa.int64()),  # the driver's clock
            ("input_records", pa.int64()),
            ("lag_records", pa.int64()),  # there when the batch was planned, and not read by it
            *counts("rounds", "decisions", "refusals"),
            ("errors", pa.int64()),  # rounds that failed
            ("whole_ms", pa.int64()),
            ("offsets_ms", pa.int64()),  # ... of which: asking Kafka what there is
            ("planning_ms", pa.int64()),
            ("wal_ms", pa.int64()),  # Spark writes down what the batch will read
            ("decide_ms", pa.float64()),  # read, decode, fold, decide: one Spark job
            *reals("log_ms", "publish_ms", "project_ms"),
            ("averages_ms", pa.float64()),  # by a Spark job of its own
            ("next_ms", pa.float64()),  # writing down what the next batch must know
            ("commit_ms", pa.int64()),  # Spark writes down that the batch is done
            ("state_updates_ms", pa.int64()),  # part of decide_ms, summed over tasks
            *counts("state_commit_ms", "state_rows", "state_bytes"),
        ]
    ),
    kept_by="started_ms",
)
BACKTESTS = TableSpec(
    "backtests",
    "one trial of a back-test: one policy, with what one cluster has carried in one window of time",
    pa.schema(
        [
            # run: the same for runs of the same trials; to_ms: before; settings: JSON object; loop:
            # closed (played), open (decided only)
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
            *texts("measures", "error", "loop"),  # JSON object: all measures; why there are none
        ]
    ),
)
HISTORY_TABLES = (BUNDLE_HISTORY, BROKER_HISTORY)
TABLES = (
    *(
        ROUNDS,
        DECISIONS,
        OUTCOMES,
        OWNERSHIP,
        MERGE_ADVICE,
        BUNDLE_AVERAGES,
        BROKER_LOADS,
        *HISTORY_TABLES,
    ),
    *(
        REFUSALS,
        REJECTED_REPORTS,
        COMMANDS,
        PROPOSALS,
        SHADOW_ROUNDS,
        SHADOW_DECISIONS,
        LEADERS,
        BATCHES,
        BACKTESTS,
    ),
)
