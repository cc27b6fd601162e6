-- one cluster's round in one batch: the log from which other tables follow
CREATE TABLE rounds (
  `app` STRING COMMENT 'id of the pipeline, and uuid of its checkpoint',
  `batch_id` BIGINT COMMENT 'Spark\'s number of the micro-batch within its checkpoint',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints',
  `cluster` STRING COMMENT 'name of the cluster',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `epoch` BIGINT COMMENT 'number of the job\'s start; it grows with each start',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `decisions` STRING COMMENT 'JSON array of decision records, as published',
  `outcomes` STRING COMMENT 'JSON array of outcomes of decisions',
  `ownership` STRING COMMENT 'JSON array of ownership records, as published',
  `refusals` STRING COMMENT 'JSON array of refusals of rules',
  `results` STRING COMMENT 'JSON array of results of commands',
  `memory` STRING COMMENT 'JSON object: the memory with which the next round begins; empty: the cluster has been forgotten',
  `inputs` STRING COMMENT 'JSON object: the offsets and times that were read, whether the job has caught up, settings, acknowledgements, commands',
  `files` STRING COMMENT 'JSON object: table → the Parquet file that the batch\'s task wrote for it; each file is named in one round',
  `blocks` STRING COMMENT 'JSON array: for each shard, the files of its brokers, bundle names and values; the files are kept for some batches',
  `error` STRING COMMENT 'error of the round; null: none',
  `shadows` STRING COMMENT 'JSON array: the cluster\'s own policy and each shadow, as in shadow_rounds; empty without shadows',
  `shadow_memory` STRING COMMENT 'JSON object: shadow → the memory with which its next round begins',
  `merge_advice` STRING COMMENT 'JSON array of new rows of the table of that name',
  `proposals` STRING COMMENT 'JSON array of new rows of the table of that name',
  `rollout` STRING COMMENT 'JSON array of new rows of the table rollouts'
) USING DELTA;

-- one decision; its outcome is in outcomes
CREATE TABLE decisions (
  `decision_id` STRING COMMENT 'id of the decision, cluster:seq:ordinal',
  `cluster` STRING COMMENT 'name of the cluster',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `epoch` BIGINT COMMENT 'number of the job\'s start; it grows with each start',
  `kind` STRING COMMENT 'unload, transfer, assign, split or merge',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `source` STRING COMMENT 'the broker that has the bundle and gives it up',
  `destination` STRING COMMENT 'the broker that takes the bundle',
  `expected_owner` STRING COMMENT 'the bundle\'s owner when the decision was made',
  `expected_version` BIGINT COMMENT 'version of the bundle\'s ownership record when the decision was made',
  `children` ARRAY<STRING> COMMENT 'bundles that the split or merge makes',
  `boundaries` ARRAY<BIGINT> COMMENT 'hashes at which the split cuts the bundle',
  `algorithm` STRING COMMENT 'split algorithm that finds the boundaries',
  `unload_children` BOOLEAN COMMENT 'whether the children are unloaded after the split',
  `reason` STRING COMMENT 'Pulsar\'s name for the reason',
  `rule` STRING COMMENT 'rule that led to the decision',
  `strategy` STRING COMMENT 'strategy that made the decision',
  `issued_ms` BIGINT COMMENT 'when the decision was made',
  `expires_ms` BIGINT COMMENT 'until when an agent may carry out the decision',
  `dry_run` BOOLEAN COMMENT 'whether the decision was logged only, and not published',
  `explain` STRING COMMENT 'JSON object: the figures behind the decision, and its candidates',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints',
  `neighbour` STRING COMMENT 'of a merge: the bundle whose hash range follows',
  `approved_by` STRING COMMENT 'who approved the decision; null: it needed no approval',
  `proposal_id` STRING COMMENT 'id of the proposal whose approval led to the decision; null: none'
) USING DELTA;

-- the outcome of one decision: confirmed, superseded, refused, expired or failed
CREATE TABLE outcomes (
  `decision_id` STRING COMMENT 'id of the decision, cluster:seq:ordinal',
  `cluster` STRING COMMENT 'name of the cluster',
  `seq` BIGINT COMMENT 'number of the round that found the outcome',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `outcome` STRING COMMENT 'confirmed, superseded, refused, expired or failed',
  `detail` STRING COMMENT 'explanation of the outcome',
  `at_ms` BIGINT COMMENT 'when the decision ended',
  `took_ms` BIGINT COMMENT 'time from the decision to its outcome',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints',
  `released_ms` BIGINT COMMENT 'since when no broker served the bundle of a move or an assignment: when its release was acknowledged or reported, or the last sign of life of its dead broker; null: it has not left its broker, or no broker had it before'
) USING DELTA;

-- the ownership record of one bundle, as on the topic; earlier records are in the log
CREATE TABLE ownership (
  `cluster` STRING COMMENT 'name of the cluster',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `state` STRING COMMENT 'state of the bundle\'s ownership record',
  `owner` STRING COMMENT 'the broker that serves the bundle; null: none',
  `source` STRING COMMENT 'the broker that has the bundle and gives it up',
  `destination` STRING COMMENT 'the broker that takes the bundle',
  `children` ARRAY<STRING> COMMENT 'bundles that the split or merge makes',
  `version` BIGINT COMMENT 'number of changes of the bundle\'s ownership record',
  `force` BOOLEAN COMMENT 'whether the record overrides a conflicting one',
  `since_ms` BIGINT COMMENT 'since when the record holds',
  `epoch` BIGINT COMMENT 'number of the job\'s start; it grows with each start',
  `decision_id` STRING COMMENT 'id of the decision that led to this record',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- two neighbouring bundles that could be one: what they carry together, as shares of the limits at which a split begins
CREATE TABLE merge_advice (
  `cluster` STRING COMMENT 'name of the cluster',
  `namespace` STRING COMMENT 'the namespace as tenant/namespace',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `neighbour` STRING COMMENT 'the bundle whose hash range follows, in the same namespace',
  `owner` STRING COMMENT 'the broker that serves the bundle; null: none',
  `since_ms` BIGINT COMMENT 'since when both bundles are small',
  `topics_ratio` DOUBLE COMMENT 'what both bundles have together ÷ the limit of topics at which a split begins',
  `sessions_ratio` DOUBLE COMMENT 'what both bundles have together ÷ the limit of sessions at which a split begins',
  `rate_ratio` DOUBLE COMMENT 'what both bundles have together ÷ the limit of rate at which a split begins',
  `bandwidth_ratio` DOUBLE COMMENT 'what both bundles have together ÷ the limit of bandwidth at which a split begins',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- one bundle now: its owner, latest statistics, short-term and long-term averages
CREATE TABLE bundle_averages (
  `cluster` STRING COMMENT 'name of the cluster',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `owner` STRING COMMENT 'the broker that serves the bundle; null: none',
  `owner_since_ms` BIGINT COMMENT 'since when the owner has the bundle',
  `topics` BIGINT COMMENT 'number of topics',
  `latest_throughput_in_bytes_per_s` DOUBLE COMMENT 'throughput in, latest report, bytes/s',
  `latest_throughput_out_bytes_per_s` DOUBLE COMMENT 'throughput out, latest report, bytes/s',
  `latest_rate_in_msgs_per_s` DOUBLE COMMENT 'message rate in, latest report, messages/s',
  `latest_rate_out_msgs_per_s` DOUBLE COMMENT 'message rate out, latest report, messages/s',
  `short_samples` INT COMMENT 'reports in the short-term average',
  `short_throughput_in_bytes_per_s` DOUBLE COMMENT 'throughput in, short-term average, bytes/s',
  `short_throughput_out_bytes_per_s` DOUBLE COMMENT 'throughput out, short-term average, bytes/s',
  `short_rate_in_msgs_per_s` DOUBLE COMMENT 'message rate in, short-term average, messages/s',
  `short_rate_out_msgs_per_s` DOUBLE COMMENT 'message rate out, short-term average, messages/s',
  `long_samples` INT COMMENT 'reports in the long-term average',
  `long_throughput_in_bytes_per_s` DOUBLE COMMENT 'throughput in, long-term average, bytes/s',
  `long_throughput_out_bytes_per_s` DOUBLE COMMENT 'throughput out, long-term average, bytes/s',
  `long_rate_in_msgs_per_s` DOUBLE COMMENT 'message rate in, long-term average, messages/s',
  `long_rate_out_msgs_per_s` DOUBLE COMMENT 'message rate out, long-term average, messages/s',
  `topic_hashes` ARRAY<BIGINT> COMMENT 'hashes of its topics, where its owner reports their shares; light topics that follow one another have the first one\'s; null: not reported',
  `topic_shares` ARRAY<DOUBLE> COMMENT 'parts of the bundle\'s load that these topics carry, in the same order; together 1',
  `hottest_topic_ratio` DOUBLE COMMENT 'the greatest of topic_shares: what a split can\'t divide',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `part` STRING COMMENT 'rows that are written together: a shard of a large cluster, or several small clusters'
) USING DELTA
PARTITIONED BY (`part`);

-- one broker as a round saw it; one row for each round with a new report
CREATE TABLE broker_loads (
  `cluster` STRING COMMENT 'name of the cluster',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `broker` STRING COMMENT 'the broker as host:port, as in its reports',
  `alive` BOOLEAN COMMENT 'whether the broker counts as running',
  `seen_ms` BIGINT COMMENT 'append time of the broker\'s last record of any kind',
  `reported_ms` BIGINT COMMENT 'append time of the broker\'s last load report',
  `usage_ratio` DOUBLE COMMENT 'usage ÷ limit of the broker\'s scarcest resource, as the strategies weigh it',
  `cpu_ratio` DOUBLE COMMENT 'usage ÷ limit of cpu',
  `memory_ratio` DOUBLE COMMENT 'usage ÷ limit of memory',
  `direct_memory_ratio` DOUBLE COMMENT 'usage ÷ limit of direct memory',
  `bandwidth_in_ratio` DOUBLE COMMENT 'usage ÷ limit of bandwidth in',
  `bandwidth_out_ratio` DOUBLE COMMENT 'usage ÷ limit of bandwidth out',
  `bundles` BIGINT COMMENT 'number of bundles',
  `topics` BIGINT COMMENT 'number of topics',
  `latest_throughput_in_bytes_per_s` DOUBLE COMMENT 'throughput in, latest report, bytes/s',
  `latest_throughput_out_bytes_per_s` DOUBLE COMMENT 'throughput out, latest report, bytes/s',
  `latest_rate_in_msgs_per_s` DOUBLE COMMENT 'message rate in, latest report, messages/s',
  `latest_rate_out_msgs_per_s` DOUBLE COMMENT 'message rate out, latest report, messages/s',
  `short_throughput_in_bytes_per_s` DOUBLE COMMENT 'throughput in, short-term average, bytes/s',
  `short_throughput_out_bytes_per_s` DOUBLE COMMENT 'throughput out, short-term average, bytes/s',
  `short_rate_in_msgs_per_s` DOUBLE COMMENT 'message rate in, short-term average, messages/s',
  `short_rate_out_msgs_per_s` DOUBLE COMMENT 'message rate out, short-term average, messages/s',
  `long_throughput_in_bytes_per_s` DOUBLE COMMENT 'throughput in, long-term average, bytes/s',
  `long_throughput_out_bytes_per_s` DOUBLE COMMENT 'throughput out, long-term average, bytes/s',
  `long_rate_in_msgs_per_s` DOUBLE COMMENT 'message rate in, long-term average, messages/s',
  `long_rate_out_msgs_per_s` DOUBLE COMMENT 'message rate out, long-term average, messages/s',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints',
  `active` BOOLEAN COMMENT 'whether the broker counts in means and maxima: alive, not silent, not draining'
) USING DELTA;

-- one bundle in one time slot: its owner and latest statistics; without a row in a slot it is as in its last row before
CREATE TABLE bundle_history (
  `slot_ms` BIGINT COMMENT 'begin of the time slot',
  `cluster` STRING COMMENT 'name of the cluster',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `owner` STRING COMMENT 'the broker that serves the bundle; null: none',
  `throughput_in_bytes_per_s` FLOAT COMMENT 'throughput in, bytes/s',
  `throughput_out_bytes_per_s` FLOAT COMMENT 'throughput out, bytes/s',
  `rate_in_msgs_per_s` FLOAT COMMENT 'message rate in, messages/s',
  `rate_out_msgs_per_s` FLOAT COMMENT 'message rate out, messages/s',
  `topics` INT COMMENT 'number of topics',
  `producers` INT COMMENT 'number of producers',
  `consumers` INT COMMENT 'number of consumers',
  `cache_size_bytes` BIGINT COMMENT 'size of the bundle\'s cache'
) USING DELTA;

-- one broker in one time slot: usage and limit of each resource
CREATE TABLE broker_history (
  `slot_ms` BIGINT COMMENT 'begin of the time slot',
  `cluster` STRING COMMENT 'name of the cluster',
  `broker` STRING COMMENT 'the broker as host:port, as in its reports',
  `seen_ms` BIGINT COMMENT 'append time of the broker\'s last record of any kind',
  `reported_ms` BIGINT COMMENT 'append time of the broker\'s last load report',
  `left` BOOLEAN COMMENT 'whether the broker has sent a goodbye',
  `cpu_usage` DOUBLE COMMENT 'usage of cpu, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `cpu_limit` DOUBLE COMMENT 'limit of cpu, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `memory_usage` DOUBLE COMMENT 'usage of memory, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `memory_limit` DOUBLE COMMENT 'limit of memory, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `direct_memory_usage` DOUBLE COMMENT 'usage of direct memory, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `direct_memory_limit` DOUBLE COMMENT 'limit of direct memory, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `bandwidth_in_usage` DOUBLE COMMENT 'usage of bandwidth in, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `bandwidth_in_limit` DOUBLE COMMENT 'limit of bandwidth in, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `bandwidth_out_usage` DOUBLE COMMENT 'usage of bandwidth out, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `bandwidth_out_limit` DOUBLE COMMENT 'limit of bandwidth out, as reported: cpu in % of a core, memories in MiB, bandwidths in kbit/s',
  `throughput_in_bytes_per_s` DOUBLE COMMENT 'throughput in, bytes/s',
  `throughput_out_bytes_per_s` DOUBLE COMMENT 'throughput out, bytes/s',
  `rate_in_msgs_per_s` DOUBLE COMMENT 'message rate in, messages/s',
  `rate_out_msgs_per_s` DOUBLE COMMENT 'message rate out, messages/s',
  `topics` BIGINT COMMENT 'number of topics',
  `bundles` BIGINT COMMENT 'number of bundles'
) USING DELTA;

-- what one rule refused at one broker in one round
CREATE TABLE refusals (
  `cluster` STRING COMMENT 'name of the cluster',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `rule` STRING COMMENT 'the rule that refused',
  `broker` STRING COMMENT 'the broker as host:port, as in its reports',
  `count` BIGINT COMMENT 'how often the rule refused',
  `limit` DOUBLE COMMENT 'the rule\'s limit, in `unit`',
  `least` DOUBLE COMMENT 'lowest figure that was refused, in `unit`',
  `greatest` DOUBLE COMMENT 'highest figure that was refused, in `unit`',
  `unit` STRING COMMENT 'unit of the figures in this row',
  `subjects` ARRAY<STRING> COMMENT 'bundles or brokers that were refused, 20 at most',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints',
  `namespace` STRING COMMENT 'the namespace whose limit it is; null: it is no namespace\'s',
  `until_ms` BIGINT COMMENT 'until when a namespace\'s limit holds, where that is known'
) USING DELTA;

-- one rejected record: its position, the wrong field, its value, what was expected
CREATE TABLE rejected_reports (
  `topic` STRING COMMENT 'Kafka topic of the record',
  `partition` INT COMMENT 'Kafka partition of the record',
  `offset` BIGINT COMMENT 'Kafka offset of the record',
  `append_ms` BIGINT COMMENT 'when Kafka stored the record',
  `cluster` STRING COMMENT 'name of the cluster',
  `broker` STRING COMMENT 'the broker as host:port, as in its reports',
  `field` STRING COMMENT 'the field that was wrong',
  `value` STRING COMMENT 'value of that field',
  `expected` STRING COMMENT 'what was expected instead',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- one cluster's result of one command; a command that takes time has two: accepted, then done or failed
CREATE TABLE commands (
  `id` STRING COMMENT 'id of the command, chosen by its sender',
  `cluster` STRING COMMENT 'name of the cluster',
  `kind` STRING COMMENT 'kind of the command',
  `arguments` STRING COMMENT 'JSON object: the command\'s own fields',
  `by` STRING COMMENT 'sender of the command, as the record names it',
  `at_ms` BIGINT COMMENT 'append time of the command',
  `outcome` STRING COMMENT 'done, accepted, refused or failed',
  `text` STRING COMMENT 'what happened, or why nothing did',
  `rule` STRING COMMENT 'the rule that refused the command; null: none',
  `decision_ids` ARRAY<STRING> COMMENT 'ids of the decisions that the command led to',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round that answered',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- one answer to one command: who, with which key and right, what, old and new value, decisions; chained by hash
CREATE TABLE audit (
  `cluster` STRING COMMENT 'name of the cluster',
  `number` BIGINT COMMENT 'the row\'s place in its cluster\'s chain, from 1',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `at_ms` BIGINT COMMENT 'append time of the command; of a cut, when upkeep made it',
  `now_ms` BIGINT COMMENT 'time of the round that answered; of a cut, that of the last row that it stands for',
  `by` STRING COMMENT 'sender of the command, as the record names it',
  `key_id` STRING COMMENT 'id of the key that has signed the command; null: no signature was verified',
  `right` STRING COMMENT 'the right that allowed the command, or that is missing; null: none was asked for',
  `kind` STRING COMMENT 'kind of the command; audit-cut: stands for rows that upkeep has deleted',
  `objects` ARRAY<STRING> COMMENT 'brokers, bundles, namespaces, settings and proposals that the command names',
  `arguments` STRING COMMENT 'JSON object: the command\'s own fields',
  `old_value` STRING COMMENT 'JSON object: what the command has changed, as it was before; null: it set nothing',
  `new_value` STRING COMMENT 'JSON object: what the command has changed, as it is now; null: it set nothing',
  `command_id` STRING COMMENT 'id of the command; a later answer to it is a row of its own',
  `outcome` STRING COMMENT 'done, accepted, refused or failed',
  `rule` STRING COMMENT 'the rule that refused the command; null: none',
  `text` STRING COMMENT 'what happened, or why nothing did',
  `decision_ids` ARRAY<STRING> COMMENT 'ids of the decisions that the command led to',
  `repeated` BOOLEAN COMMENT 'whether the command came again and got its first answer again',
  `previous_hash` STRING COMMENT 'hash of the cluster\'s row before this one; empty: there is none',
  `hash` STRING COMMENT 'SHA-256 of previous_hash and all other columns, as docs/security.md says'
) USING DELTA;

-- one state of one proposal: waiting, then approved, rejected, expired, stale, superseded or withdrawn
CREATE TABLE proposals (
  `proposal_id` STRING COMMENT 'id of the proposal, cluster:seq:pNUMBER',
  `cluster` STRING COMMENT 'name of the cluster',
  `together` STRING COMMENT 'first of the proposals that are approved and rejected together',
  `state` STRING COMMENT 'waiting, approved, rejected, expired, stale, superseded or withdrawn',
  `by` STRING COMMENT 'who approved, rejected or withdrew the proposal',
  `why` STRING COMMENT 'why the proposal was rejected',
  `kind` STRING COMMENT 'unload, transfer, assign, split or merge',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `source` STRING COMMENT 'the broker that has the bundle and gives it up',
  `destination` STRING COMMENT 'the broker that takes the bundle',
  `reason` STRING COMMENT 'Pulsar\'s name for the reason',
  `rule` STRING COMMENT 'rule that led to the decision',
  `strategy` STRING COMMENT 'strategy that made the decision',
  `bytes_per_s` DOUBLE COMMENT 'short-term average of the bundle\'s throughput, bytes/s',
  `proposed_ms` BIGINT COMMENT 'when the proposal was made',
  `expires_ms` BIGINT COMMENT 'until when the proposal waits for approval',
  `until_ms` BIGINT COMMENT 'until when the rejection holds',
  `decision_id` STRING COMMENT 'id of the decision that the approval led to',
  `explain` STRING COMMENT 'JSON object: the figures behind the decision, and its candidates',
  `plan` STRING COMMENT 'plan that the move belongs to, as cluster:seq of the round that made it; empty: a split, or a move that separates an anti-affinity group',
  `step` BIGINT COMMENT 'the move\'s place in its plan',
  `source_usage` DOUBLE COMMENT 'usage of the source in the round of this row, ratio',
  `destination_usage` DOUBLE COMMENT 'usage of the destination in the round of this row, ratio',
  `max_usage` DOUBLE COMMENT 'usage of the busiest broker in the round of this row, ratio',
  `usage_alone` DOUBLE COMMENT 'usage of the busiest broker if this step alone were approved, ratio',
  `usage_in_order` DOUBLE COMMENT 'usage of the busiest broker if this and all earlier steps were approved, ratio',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- one event of one rollout: a new phase of one of its brokers, or what happens to it as a whole
CREATE TABLE rollouts (
  `rollout` STRING COMMENT 'id of the rollout: that of the command which started it',
  `cluster` STRING COMMENT 'name of the cluster',
  `broker` STRING COMMENT 'the broker whose phase is new; null: the event is about the whole rollout',
  `phase` STRING COMMENT 'of a broker: draining, empty, down, done or waiting; of the whole: started, stands_still, goes_on, levelling, ended or aborted',
  `at_ms` BIGINT COMMENT 'when it happened',
  `text` STRING COMMENT 'what happened, and why now',
  `moves` BIGINT COMMENT 'bundles that were moved away for the broker\'s restart so far',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- one policy in one round: the cluster's own (real), or a shadow's, which decides and publishes nothing
CREATE TABLE shadow_rounds (
  `cluster` STRING COMMENT 'name of the cluster',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `policy` STRING COMMENT 'real: the cluster\'s own policy; else the shadow\'s name',
  `outcome` STRING COMMENT 'done, skipped or failed',
  `detail` STRING COMMENT 'why it failed; of the real policy: whether the round was a dry run',
  `strategies` STRING COMMENT 'names of the shedder and the placement',
  `shed` BOOLEAN COMMENT 'whether this was a shedding pass',
  `moves` BIGINT COMMENT 'moves that the shedder decided',
  `assignments` BIGINT COMMENT 'unassigned bundles that got an owner',
  `moved_bytes_per_s` DOUBLE COMMENT 'throughput of the moved bundles, bytes/s',
  `arrived` BIGINT COMMENT 'real policy: bundles that reports show at another broker than before',
  `elsewhere` BIGINT COMMENT 'shadow: bundles that it counts at another broker than their real one',
  `before_max_ratio` DOUBLE COMMENT 'max usage before the policy\'s decisions',
  `max_ratio` DOUBLE COMMENT 'max usage: of the real policy as reported, of a shadow as predicted with its decisions',
  `mean_ratio` DOUBLE COMMENT 'mean usage, from the same figures as max_ratio',
  `refused_by` ARRAY<STRING> COMMENT 'rules that refused something',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- one decision that a shadow would have made
CREATE TABLE shadow_decisions (
  `cluster` STRING COMMENT 'name of the cluster',
  `seq` BIGINT COMMENT 'number of the cluster\'s round; it grows across restarts',
  `now_ms` BIGINT COMMENT 'time of the round: the latest append time that it has read',
  `policy` STRING COMMENT 'real: the cluster\'s own policy; else the shadow\'s name',
  `number` BIGINT COMMENT 'the decision\'s place within its round',
  `kind` STRING COMMENT 'unload, transfer, assign, split or merge',
  `bundle` STRING COMMENT 'the bundle as tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `source` STRING COMMENT 'the broker that has the bundle and gives it up',
  `destination` STRING COMMENT 'the broker that takes the bundle',
  `reason` STRING COMMENT 'Pulsar\'s name for the reason',
  `rule` STRING COMMENT 'rule that led to the decision',
  `strategy` STRING COMMENT 'strategy that made the decision',
  `saw` DOUBLE COMMENT 'the figure that led to the decision, in `unit`',
  `limit` DOUBLE COMMENT 'the rule\'s limit, in `unit`',
  `unit` STRING COMMENT 'unit of the figures in this row',
  `bytes_per_s` DOUBLE COMMENT 'short-term average of the bundle\'s throughput, bytes/s',
  `log_seq` BIGINT COMMENT 'number of the pipeline\'s batch in the log; it grows across checkpoints'
) USING DELTA;

-- one start of the job, which leads from then on; the last row is the current leader's
CREATE TABLE leaders (
  `pipeline` STRING COMMENT 'id of the pipeline',
  `epoch` BIGINT COMMENT 'number of the job\'s start; it grows with each start',
  `host` STRING COMMENT 'machine on which the job runs',
  `pid` BIGINT COMMENT 'process id of the job',
  `since_ms` BIGINT COMMENT 'since when the job leads, by its host\'s clock'
) USING DELTA;

-- one micro-batch: how much it read and how long its parts took; written every few seconds, for monitoring only
CREATE TABLE batches (
  `app` STRING COMMENT 'id of the pipeline, and uuid of its checkpoint',
  `epoch` BIGINT COMMENT 'number of the job\'s start; it grows with each start',
  `batch_id` BIGINT COMMENT 'Spark\'s number of the micro-batch within its checkpoint',
  `log_seq` BIGINT COMMENT 'the batch\'s number in the log; null: nothing was logged',
  `started_ms` BIGINT COMMENT 'when the batch began, by the driver\'s clock',
  `input_records` BIGINT COMMENT 'records that the batch read',
  `lag_records` BIGINT COMMENT 'records that were there when the batch was planned, and that it did not read',
  `rounds` BIGINT COMMENT 'number of rounds in the batch',
  `decisions` BIGINT COMMENT 'number of decisions in the batch',
  `refusals` BIGINT COMMENT 'number of refusals in the batch',
  `errors` BIGINT COMMENT 'rounds that failed',
  `whole_ms` BIGINT COMMENT 'duration of the batch',
  `offsets_ms` BIGINT COMMENT 'part of whole_ms: Kafka is asked for its offsets',
  `planning_ms` BIGINT COMMENT 'part of whole_ms: Spark plans the batch',
  `wal_ms` BIGINT COMMENT 'part of whole_ms: Spark records the offsets that it will read',
  `decide_ms` DOUBLE COMMENT 'part of whole_ms: one Spark job reads, decodes, folds and decides',
  `log_ms` DOUBLE COMMENT 'part of whole_ms: the rounds are appended to the log',
  `publish_ms` DOUBLE COMMENT 'part of whole_ms: decisions are published in one transaction',
  `project_ms` DOUBLE COMMENT 'part of whole_ms: tables are written, and get the files of others',
  `averages_ms` DOUBLE COMMENT 'part of whole_ms: the rest of a Spark job that writes the files of bundle_averages and history; it begins with publishing',
  `next_ms` DOUBLE COMMENT 'part of whole_ms: what the next batch needs is written',
  `commit_ms` BIGINT COMMENT 'part of whole_ms: Spark records that the batch is done',
  `state_updates_ms` BIGINT COMMENT 'part of decide_ms: updates of the state, summed over tasks',
  `state_commit_ms` BIGINT COMMENT 'part of decide_ms: commits of the state, summed over tasks',
  `state_rows` BIGINT COMMENT 'rows of the state',
  `state_bytes` BIGINT COMMENT 'memory that the state takes'
) USING DELTA;

-- one trial of a back-test: one policy on what one cluster carried in one window of time
CREATE TABLE backtests (
  `run` STRING COMMENT 'name of the run; runs of the same trials have the same name',
  `cluster` STRING COMMENT 'name of the cluster',
  `policy` STRING COMMENT 'name of the policy',
  `settings` STRING COMMENT 'JSON object: the policy\'s settings',
  `made_ms` BIGINT COMMENT 'when the trial\'s row was written',
  `from_ms` BIGINT COMMENT 'begin of the window of time',
  `to_ms` BIGINT COMMENT 'end of the window of time, excluded',
  `moves` BIGINT COMMENT 'moves in the window',
  `failovers` BIGINT COMMENT 'bundles that got another owner because theirs died',
  `violation_count` BIGINT COMMENT 'how often a rule of the scenario was broken',
  `max_over_bound_median` DOUBLE COMMENT 'max usage ÷ the lowest possible max usage, median over time',
  `max_over_bound_p95` DOUBLE COMMENT 'max usage ÷ the lowest possible max usage, 95th percentile over time',
  `tick_s` DOUBLE COMMENT 'length of a tick',
  `balanced_share` DOUBLE COMMENT 'share of the time in which the load was even',
  `client_seconds_lost` DOUBLE COMMENT 'seconds without a broker, summed over clients',
  `overload_s_85` DOUBLE COMMENT 'seconds above 85 % usage, summed over brokers',
  `measures` STRING COMMENT 'JSON object: all measures',
  `error` STRING COMMENT 'why there are no measures; null: the trial succeeded',
  `loop` STRING COMMENT 'closed: the window was simulated; open: logged rounds were decided again'
) USING DELTA;
