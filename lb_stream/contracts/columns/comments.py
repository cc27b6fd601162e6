"""One sentence about every column of the tables: by its name, of a table's own meaning by
`table.column`, of families by a pattern."""

from __future__ import annotations

import re

from lb_stream.contracts.columns.rounds import MEANINGS

_BY_NAME: dict[str, str] = {
    # who, where, when
    "app": "the pipeline's id and its checkpoint's uuid",
    "pipeline": "the pipeline's id",
    "epoch": "numbers the starts of the job: the greatest leads",
    "batch_id": "Spark's number of the micro-batch within its checkpoint",
    "log_seq": "numbers the pipeline's batches for ever, across checkpoints",
    "batches.log_seq": "the batch's number in the log; none: nothing was logged",
    "seq": "numbers the cluster's rounds for ever",
    "outcomes.seq": "the round that saw how it ended",
    "cluster": "the cluster's name",
    "broker": "the broker, host:port as in its reports",
    "bundle": "the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH",
    "namespace": "tenant/namespace",
    "refusals.namespace": "whose limit it is, where it is a namespace's",
    "topic": "the Kafka topic of the record",
    "partition": "the record's partition",
    "offset": "the record's offset",
    "host": "the machine of the job",
    "pid": "the job's process",
    "now_ms": "the round's time: the newest append time that it has read",
    "merge_advice.now_ms": "when this was so",
    "commands.now_ms": "when it was answered",
    "at_ms": "when it ended",
    "commands.at_ms": "when the command came",
    "since_ms": "since when this is so",
    "merge_advice.since_ms": "since when both are small",
    "leaders.since_ms": "since when it leads, by its host's clock",
    "until_ms": "until when a rejection holds",
    "refusals.until_ms": "until when a namespace's limit holds, where that is known",
    "slot_ms": "begin of the slot of time",
    "seen_ms": "when the broker was heard of last",
    "reported_ms": "when its last report came",
    "append_ms": "when Kafka took the record",
    "owner_since_ms": "since when the owner has it",
    "issued_ms": "when it was decided",
    "expires_ms": "until when an agent may act on it",
    "proposals.expires_ms": "until when it waits for approval",
    "proposed_ms": "when it was proposed",
    "started_ms": "when the batch began, by the driver's clock",
    "made_ms": "when the trial was made",
    "from_ms": "begin of the window",
    "to_ms": "end of the window, which is not part of it",
    "took_ms": "from the decision to its end",
    "active": "whether the broker counts in means and maxima: alive, heard lately and not drained",
    "outcomes.released_ms": "since when no broker served the bundle of a move or an assignment:"
    " its release as acknowledged or reported, or the last sign of life of its dead broker;"
    " none: it has not left, or no broker had it before",
    # decisions
    "decision_id": "the decision's id, cluster:seq:ordinal",
    "ownership.decision_id": "the decision that led to this record",
    "proposals.decision_id": "the decision that an approval has led to",
    "proposal_id": "the proposal's id, cluster:seq:pNUMBER",
    "decisions.proposal_id": "the proposal that was approved, if it was one",
    "kind": "unload, transfer, assign, split or merge",
    "commands.kind": "what kind of command it is",
    "source": "the broker that has the bundle, and is to give it up",
    "destination": "the broker that is to have the bundle",
    "expected_owner": "who owned the bundle as the decision saw it",
    "expected_version": "the version of the bundle's ownership record as the decision saw it",
    "children": "bundles that a split or a merge makes",
    "boundaries": "hashes at which a split cuts",
    "algorithm": "how a split finds its boundaries",
    "unload_children": "whether a split's children are unloaded afterwards",
    "neighbour": "the bundle whose range follows, of a merge",
    "reason": "Pulsar's word for why",
    "rule": "the rule that decided it",
    "refusals.rule": "the rule that refused it",
    "commands.rule": "the rule that refused the command",
    "strategy": "the strategy that decided it",
    "dry_run": "whether it was only logged",
    "explain": "JSON object: the figures behind it, and the candidates",
    "approved_by": "who approved it, if it had to be",
    "outcome": "confirmed, superseded, refused, expired or failed",
    "commands.outcome": "done, accepted, refused or failed",
    "shadow_rounds.outcome": "done, skipped or failed",
    "detail": "how it ended, in words",
    "shadow_rounds.detail": "why it failed; of real: whether it was a dry run",
    # ownership
    "state": "the state of the bundle's ownership",
    "proposals.state": "waiting, approved, rejected, expired, stale, superseded or withdrawn",
    "owner": "the broker that has the bundle; none: nobody",
    "version": "counts the changes of the bundle's record",
    "force": "whether the record goes over a conflicting one",
    # the log
    **{f"rounds.{name}": meaning for name, meaning in MEANINGS.items()},
    # loads
    "alive": "whether the broker lived",
    "left": "whether it said goodbye",
    "usage_ratio": "its greatest usage ÷ limit of all resources, as the strategies weigh them",
    "topics": "topics that it has",
    "bundles": "bundles that it has",
    "producers": "producers of the bundle",
    "consumers": "consumers of the bundle",
    "cache_size_bytes": "cache of the bundle",
    "part": "what is written anew at once: a shard of a large cluster, or several small clusters",
    # refusals, rejected records, commands, proposals
    "count": "how often the rule refused",
    "limit": "the limit, in `unit`",
    "least": "the least figure that was refused",
    "greatest": "the greatest figure that was refused",
    "unit": "of the figures beside it",
    "subjects": "bundles or brokers that were refused, 20 at most",
    "field": "the field that was wrong",
    "value": "what it held",
    "expected": "what was expected",
    "id": "the command's id, chosen by its sender",
    "arguments": "JSON object: the command's own fields",
    "by": "who sent it, as the sender says",
    "proposals.by": "who ended it",
    "text": "what happened, or why not",
    "decision_ids": "decisions that the command has led to",
    "together": "the first of the proposals that are approved and rejected together",
    "plan": "the plan that a move is part of, cluster:seq of the round that made it;"
    " empty: a split, or a move that parts an anti-affinity group",
    "step": "its place in the plan",
    "source_usage": "usage of the source in the round of this row, a ratio, as all of these",
    "destination_usage": "usage of the destination",
    "max_usage": "usage of the busiest broker",
    "usage_alone": "usage of the busiest broker if this step alone were approved",
    "usage_in_order": "usage of the busiest broker if this step and all before it were approved",
    "why": "why it was rejected",
    "bytes_per_s": "the bundle's traffic, its short-term average, bytes/s",
    # shadows
    "policy": "real: the cluster's own; else the shadow's name",
    "strategies": "shedder + placement",
    "shed": "whether this was a shedding pass",
    "moves": "moves that the shedder decided",
    "assignments": "owners that were given to bundles without one",
    "moved_bytes_per_s": "traffic of the moved bundles, bytes/s",
    "arrived": "of real: bundles that reports showed at another broker than before",
    "elsewhere": "of a shadow: bundles that are in its world where they are not really",
    "before_max_ratio": "greatest usage before its decisions",
    "max_ratio": "greatest usage: of real as reported, of a shadow as predicted with its decisions",
    "mean_ratio": "mean usage, likewise",
    "refused_by": "rules that refused something",
    "number": "the decision's place within its round",
    "saw": "the figure that led to it, in `unit`",
    # batches
    "input_records": "records that it read",
    "lag_records": "records that were there when it was planned, and that it didn't read",
    "batches.rounds": "rounds of clusters in it",
    "batches.decisions": "decisions that it made",
    "batches.refusals": "what rules refused in it",
    "errors": "rounds that failed",
    "whole_ms": "how long it took",
    "offsets_ms": "... of which: asking Kafka what there is",
    "planning_ms": "... of which: Spark's planning",
    "wal_ms": "... of which: Spark writes down what it will read",
    "decide_ms": "... of which: read, decode, fold, decide: one Spark job",
    "log_ms": "... of which: appending to the log",
    "publish_ms": "... of which: publishing decisions, in one transaction",
    "project_ms": "... of which: what is left then of writing the other tables",
    "averages_ms": "... of which: a Spark job that writes the files of bundle_averages and "
    "history; the other tables are written meanwhile",
    "next_ms": "... of which: writing down what the next batch must know",
    "commit_ms": "... of which: Spark writes down that it is done",
    "state_updates_ms": "updates of state, summed over tasks: part of decide_ms",
    "state_commit_ms": "commits of state, summed over tasks: part of decide_ms",
    "state_rows": "rows of state",
    "state_bytes": "memory of the state",
    # back-tests
    "run": "the same for runs of the same trials",
    "backtests.policy": "the policy's name",
    "settings": "JSON object: the policy's settings",
    "backtests.moves": "moves in the window",
    "failovers": "bundles that got another owner because theirs died",
    "violation_count": "rules broken",
    "max_over_bound_median": "greatest usage ÷ the least that is possible, the median over time",
    "max_over_bound_p95": "greatest usage ÷ the least that is possible, its 95th percentile over "
    "time",
    "tick_s": "length of a tick, s",
    "balanced_share": "share of the time in which the load was even",
    "client_seconds_lost": "seconds lost by clients, summed",
    "overload_s_85": "seconds of brokers above 85 % usage, summed",
    "measures": "JSON object: all measures",
    "backtests.error": "why there are no measures",
    "loop": "closed: played; open: decided only",
}
_RESOURCES = r"(?P<resource>cpu|memory|direct_memory|bandwidth_in|bandwidth_out)"
_FAMILIES = (
    (r"(?P<when>latest|short|long)_samples", "reports that the {when} holds"),
    (
        r"(?P<when>latest|short|long)_throughput_(?P<way>in|out)_bytes_per_s",
        "traffic {way}, {when}, bytes/s",
    ),
    (
        r"(?P<when>latest|short|long)_rate_(?P<way>in|out)_msgs_per_s",
        "messages {way}, {when}, messages/s",
    ),
    (r"throughput_(?P<way>in|out)_bytes_per_s", "traffic {way}, bytes/s"),
    (r"rate_(?P<way>in|out)_msgs_per_s", "messages {way}, messages/s"),
    (rf"{_RESOURCES}_ratio", "usage ÷ limit of {resource}"),
    (
        rf"{_RESOURCES}_(?P<part>usage|limit)",
        "{part} of {resource}, as reported: cpu in % of a core, memories in MiB, bandwidths in "
        "kbit/s",
    ),
    (
        r"(?P<what>topics|sessions|rate|bandwidth)_ratio",
        "what both have together ÷ the limit of {what} at which a split begins",
    ),
)
_WHEN = {"latest": "as reported last", "short": "short-term average", "long": "long-term average"}


def comment(table: str, column: str) -> str:
    """What a column of a table is. Raises KeyError for one of which nothing is said."""
    if f"{table}.{column}" in _BY_NAME:
        return _BY_NAME[f"{table}.{column}"]
    if column in _BY_NAME:
        return _BY_NAME[column]
    for pattern, told in _FAMILIES:
        if found := re.fullmatch(pattern, column):
            values = found.groupdict()
            return told.format(
                **{
                    name: _WHEN.get(value, value.replace("_", " "))
                    for name, value in values.items()
                }
            )
    raise KeyError(f"{table}.{column}: say what it is, in lb_stream/contracts/columns/comments.py")


def said() -> frozenset[str]:
    """Every name that something is said of, as `column` or `table.column`."""
    return frozenset(_BY_NAME)
