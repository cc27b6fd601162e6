"""What columns hold that several tables have, or whose meaning needs no table.

A column that means something else in one table has that meaning in the table's `TableSpec`.
"""

from __future__ import annotations

import re

COMMENTS: dict[str, str] = {
    # identities
    "app": "id of the pipeline, and uuid of its checkpoint",
    "pipeline": "id of the pipeline",
    "epoch": "number of the job's start; it grows with each start",
    "batch_id": "Spark's number of the micro-batch within its checkpoint",
    "log_seq": "number of the pipeline's batch in the log; it grows across checkpoints",
    "seq": "number of the cluster's round; it grows across restarts",
    "cluster": "name of the cluster",
    "broker": "the broker as host:port, as in its reports",
    "bundle": "the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH",
    "namespace": "the namespace as tenant/namespace",
    "topic": "Kafka topic of the record",
    "partition": "Kafka partition of the record",
    "offset": "Kafka offset of the record",
    "host": "machine on which the job runs",
    "pid": "process id of the job",
    # times
    "now_ms": "time of the round: the latest append time that it has read",
    "slot_ms": "begin of the time slot",
    "seen_ms": "append time of the broker's last record of any kind",
    "reported_ms": "append time of the broker's last load report",
    "append_ms": "when Kafka stored the record",
    "owner_since_ms": "since when the owner has the bundle",
    "issued_ms": "when the decision was made",
    "expires_ms": "until when an agent may carry out the decision",
    "proposed_ms": "when the proposal was made",
    "started_ms": "when the batch began, by the driver's clock",
    "made_ms": "when the trial's row was written",
    "from_ms": "begin of the window of time",
    "to_ms": "end of the window of time, excluded",
    "took_ms": "time from the decision to its outcome",
    # decisions
    "decision_id": "id of the decision, cluster:seq:ordinal",
    "proposal_id": "id of the proposal, cluster:seq:pNUMBER",
    "kind": "unload, transfer, assign, split or merge",
    "source": "the broker that has the bundle and gives it up",
    "destination": "the broker that takes the bundle",
    "expected_owner": "the bundle's owner when the decision was made",
    "expected_version": "version of the bundle's ownership record when the decision was made",
    "children": "bundles that the split or merge makes",
    "boundaries": "hashes at which the split cuts the bundle",
    "algorithm": "split algorithm that finds the boundaries",
    "unload_children": "whether the children are unloaded after the split",
    "neighbour": "the bundle whose hash range follows, in the same namespace",
    "reason": "Pulsar's name for the reason",
    "rule": "rule that led to the decision",
    "strategy": "strategy that made the decision",
    "dry_run": "whether the decision was logged only, and not published",
    "explain": "JSON object: the figures behind the decision, and its candidates",
    "approved_by": "who approved the decision; null: it needed no approval",
    "outcome": "confirmed, superseded, refused, expired or failed",
    "detail": "explanation of the outcome",
    # ownership
    "state": "state of the bundle's ownership record",
    "owner": "the broker that serves the bundle; null: none",
    "version": "number of changes of the bundle's ownership record",
    "force": "whether the record overrides a conflicting one",
    # loads
    "alive": "whether the broker counts as running",
    "active": "whether the broker counts in means and maxima: alive, not silent, not draining",
    "left": "whether the broker has sent a goodbye",
    "usage_ratio": "usage ÷ limit of the broker's scarcest resource, as the strategies weigh it",
    "topics": "number of topics",
    "bundles": "number of bundles",
    "producers": "number of producers",
    "consumers": "number of consumers",
    "cache_size_bytes": "size of the bundle's cache",
    "part": "rows that are written together: a shard of a large cluster, or several small clusters",
    # refusals, rejected records, commands, proposals
    "count": "how often the rule refused",
    "limit": "the rule's limit, in `unit`",
    "least": "lowest figure that was refused, in `unit`",
    "greatest": "highest figure that was refused, in `unit`",
    "unit": "unit of the figures in this row",
    "subjects": "bundles or brokers that were refused, 20 at most",
    "field": "the field that was wrong",
    "value": "value of that field",
    "expected": "what was expected instead",
    "id": "id of the command, chosen by its sender",
    "arguments": "JSON object: the command's own fields",
    "by": "sender of the command, as the record names it",
    "text": "what happened, or why nothing did",
    "decision_ids": "ids of the decisions that the command led to",
    "key_id": "id of the key that has signed the command; null: no signature was verified",
    "right": "the right that allowed the command, or that is missing; null: none was asked for",
    "objects": "brokers, bundles, namespaces, settings and proposals that the command names",
    "old_value": "JSON object: what the command has changed, as it was before; null: it set"
    " nothing",
    "new_value": "JSON object: what the command has changed, as it is now; null: it set nothing",
    "command_id": "id of the command; a later answer to it is a row of its own",
    "repeated": "whether the command came again and got its first answer again",
    "previous_hash": "hash of the cluster's row before this one; empty: there is none",
    "hash": "SHA-256 of previous_hash and all other columns, as docs/security.md says",
    "together": "first of the proposals that are approved and rejected together",
    "plan": "plan that the move belongs to, as cluster:seq of the round that made it; empty: a"
    " split, or a move that separates an anti-affinity group",
    "step": "the move's place in its plan",
    "source_usage": "usage of the source in the round of this row, ratio",
    "destination_usage": "usage of the destination in the round of this row, ratio",
    "max_usage": "usage of the busiest broker in the round of this row, ratio",
    "usage_alone": "usage of the busiest broker if this step alone were approved, ratio",
    "usage_in_order": "usage of the busiest broker if this and all earlier steps were approved,"
    " ratio",
    "why": "why the proposal was rejected",
    "rollout": "id of the rollout: that of the command which started it",
    "bytes_per_s": "short-term average of the bundle's throughput, bytes/s",
    # shadows
    "policy": "real: the cluster's own policy; else the shadow's name",
    "strategies": "names of the shedder and the placement",
    "shed": "whether this was a shedding pass",
    "moves": "moves that the shedder decided",
    "assignments": "unassigned bundles that got an owner",
    "moved_bytes_per_s": "throughput of the moved bundles, bytes/s",
    "arrived": "real policy: bundles that reports show at another broker than before",
    "elsewhere": "shadow: bundles that it counts at another broker than their real one",
    "before_max_ratio": "max usage before the policy's decisions",
    "max_ratio": "max usage: of the real policy as reported, of a shadow as predicted with its"
    " decisions",
    "mean_ratio": "mean usage, from the same figures as max_ratio",
    "refused_by": "rules that refused something",
    "number": "the decision's place within its round",
    "saw": "the figure that led to the decision, in `unit`",
    # batches
    "input_records": "records that the batch read",
    "lag_records": "records that were there when the batch was planned, and that it did not read",
    "errors": "rounds that failed",
    "whole_ms": "duration of the batch",
    "offsets_ms": "part of whole_ms: Kafka is asked for its offsets",
    "planning_ms": "part of whole_ms: Spark plans the batch",
    "wal_ms": "part of whole_ms: Spark records the offsets that it will read",
    "decide_ms": "part of whole_ms: one Spark job reads, decodes, folds and decides",
    "log_ms": "part of whole_ms: the rounds are appended to the log",
    "publish_ms": "part of whole_ms: decisions are published in one transaction",
    "project_ms": "part of whole_ms: tables are written, and get the files of others",
    "averages_ms": "part of whole_ms: the rest of a Spark job that writes the files of"
    " bundle_averages and history; it begins with publishing",
    "next_ms": "part of whole_ms: what the next batch needs is written",
    "commit_ms": "part of whole_ms: Spark records that the batch is done",
    "state_updates_ms": "part of decide_ms: updates of the state, summed over tasks",
    "state_commit_ms": "part of decide_ms: commits of the state, summed over tasks",
    "state_rows": "rows of the state",
    "state_bytes": "memory that the state takes",
    # back-tests
    "run": "name of the run; runs of the same trials have the same name",
    "settings": "JSON object: the policy's settings",
    "failovers": "bundles that got another owner because theirs died",
    "violation_count": "how often a rule of the scenario was broken",
    "max_over_bound_median": "max usage ÷ the lowest possible max usage, median over time",
    "max_over_bound_p95": "max usage ÷ the lowest possible max usage, 95th percentile over time",
    "tick_s": "length of a tick",
    "balanced_share": "share of the time in which the load was even",
    "client_seconds_lost": "seconds without a broker, summed over clients",
    "overload_s_85": "seconds above 85 % usage, summed over brokers",
    "measures": "JSON object: all measures",
    "loop": "closed: the window was simulated; open: logged rounds were decided again",
}
"""Column → what it holds."""

_RESOURCES = r"(?P<resource>cpu|memory|direct_memory|bandwidth_in|bandwidth_out)"
_FAMILIES = (
    (r"(?P<when>short|long)_samples", "reports in the {when}"),
    (
        r"(?P<when>latest|short|long)_throughput_(?P<way>in|out)_bytes_per_s",
        "throughput {way}, {when}, bytes/s",
    ),
    (
        r"(?P<when>latest|short|long)_rate_(?P<way>in|out)_msgs_per_s",
        "message rate {way}, {when}, messages/s",
    ),
    (r"throughput_(?P<way>in|out)_bytes_per_s", "throughput {way}, bytes/s"),
    (r"rate_(?P<way>in|out)_msgs_per_s", "message rate {way}, messages/s"),
    (rf"{_RESOURCES}_ratio", "usage ÷ limit of {resource}"),
    (
        rf"{_RESOURCES}_(?P<part>usage|limit)",
        "{part} of {resource}, as reported: cpu in % of a core, memories in MiB, bandwidths in "
        "kbit/s",
    ),
    (
        r"(?P<limit>topics|sessions|rate|bandwidth)_ratio",
        "what both bundles have together ÷ the limit of {limit} at which a split begins",
    ),
)
"""Pattern of columns' names → what they hold, with the pattern's groups."""
_WHEN = {"latest": "latest report", "short": "short-term average", "long": "long-term average"}


def find_comment(column: str) -> str | None:
    """Find what a column holds, by its name alone; None: nothing is written about the name."""
    if column in COMMENTS:
        return COMMENTS[column]
    for pattern, comment in _FAMILIES:
        if found := re.fullmatch(pattern, column):
            groups = found.groupdict().items()
            return comment.format(
                **{name: _WHEN.get(value, value.replace("_", " ")) for name, value in groups}
            )
    return None
