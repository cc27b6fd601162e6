-- one cluster's round in one batch: the log that everything else follows from
CREATE TABLE rounds (
  `app` STRING COMMENT 'the pipeline\'s id and its checkpoint\'s uuid',
  `batch_id` BIGINT COMMENT 'Spark\'s number of the micro-batch within its checkpoint',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `epoch` BIGINT COMMENT 'numbers the starts of the job: the greatest leads',
  `now_ms` BIGINT COMMENT 'the round\'s time: the newest append time that it has read',
  `decisions` STRING COMMENT 'JSON array of decision records, as published',
  `outcomes` STRING COMMENT 'JSON array of how decisions ended',
  `ownership` STRING COMMENT 'JSON array of ownership records, as published',
  `refusals` STRING COMMENT 'JSON array of what rules refused',
  `results` STRING COMMENT 'JSON array of the answers to commands',
  `memory` STRING COMMENT 'JSON object: what the next round starts from; empty: the cluster has been forgotten',
  `inputs` STRING COMMENT 'JSON object: offsets and times read, whether caught up, the settings, acknowledgements, commands',
  `files` STRING COMMENT 'JSON object: table → the Parquet file that the batch\'s task wrote for it; named in one of its rounds',
  `blocks` STRING COMMENT 'JSON array: of each shard, where its brokers, bundle names and values are; kept for some batches',
  `error` STRING COMMENT 'what went wrong in this cluster, if anything',
  `shadows` STRING COMMENT 'JSON array: what the cluster\'s own policy and each shadow made of the round; empty without shadows',
  `shadow_memory` STRING COMMENT 'JSON object: shadow → what its next round starts from',
  `merge_advice` STRING COMMENT 'JSON array of what is new in the table of that name',
  `proposals` STRING COMMENT 'JSON array of what is new in the table of that name'
) USING DELTA;

-- one decision; how it ended is in outcomes
CREATE TABLE decisions (
  `decision_id` STRING COMMENT 'the decision\'s id, cluster:seq:ordinal',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `epoch` BIGINT COMMENT 'numbers the starts of the job: the greatest leads',
  `kind` STRING COMMENT 'unload, transfer, assign, split or merge',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `source` STRING COMMENT 'the broker that has the bundle, and is to give it up',
  `destination` STRING COMMENT 'the broker that is to have the bundle',
  `expected_owner` STRING COMMENT 'who owned the bundle as the decision saw it',
  `expected_version` BIGINT COMMENT 'the version of the bundle\'s ownership record as the decision saw it',
  `children` ARRAY<STRING> COMMENT 'bundles that a split or a merge makes',
  `boundaries` ARRAY<BIGINT> COMMENT 'hashes at which a split cuts',
  `algorithm` STRING COMMENT 'how a split finds its boundaries',
  `unload_children` BOOLEAN COMMENT 'whether a split\'s children are unloaded afterwards',
  `reason` STRING COMMENT 'Pulsar\'s word for why',
  `rule` STRING COMMENT 'the rule that decided it',
  `strategy` STRING COMMENT 'the strategy that decided it',
  `issued_ms` BIGINT COMMENT 'when it was decided',
  `expires_ms` BIGINT COMMENT 'until when an agent may act on it',
  `dry_run` BOOLEAN COMMENT 'whether it was only logged',
  `explain` STRING COMMENT 'JSON object: the figures behind it, and the candidates',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints',
  `neighbour` STRING COMMENT 'the bundle whose range follows, of a merge',
  `approved_by` STRING COMMENT 'who approved it, if it had to be',
  `proposal_id` STRING COMMENT 'the proposal that was approved, if it was one'
) USING DELTA;

-- how one decision ended: confirmed, superseded, refused, expired or failed
CREATE TABLE outcomes (
  `decision_id` STRING COMMENT 'the decision\'s id, cluster:seq:ordinal',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `seq` BIGINT COMMENT 'the round that saw how it ended',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `outcome` STRING COMMENT 'confirmed, superseded, refused, expired or failed',
  `detail` STRING COMMENT 'how it ended, in words',
  `at_ms` BIGINT COMMENT 'when it ended',
  `took_ms` BIGINT COMMENT 'from the decision to its end',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints',
  `released_ms` BIGINT COMMENT 'since when no broker served the bundle of a move or an assignment: its release as acknowledged or reported, or the last sign of life of its dead broker; none: it has not left, or no broker had it before'
) USING DELTA;

-- the ownership record of one bundle, as on the topic; earlier ones are in the log
CREATE TABLE ownership (
  `cluster` STRING COMMENT 'the cluster\'s name',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `state` STRING COMMENT 'the state of the bundle\'s ownership',
  `owner` STRING COMMENT 'the broker that has the bundle; none: nobody',
  `source` STRING COMMENT 'the broker that has the bundle, and is to give it up',
  `destination` STRING COMMENT 'the broker that is to have the bundle',
  `children` ARRAY<STRING> COMMENT 'bundles that a split or a merge makes',
  `version` BIGINT COMMENT 'counts the changes of the bundle\'s record',
  `force` BOOLEAN COMMENT 'whether the record goes over a conflicting one',
  `since_ms` BIGINT COMMENT 'since when this is so',
  `epoch` BIGINT COMMENT 'numbers the starts of the job: the greatest leads',
  `decision_id` STRING COMMENT 'the decision that led to this record',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints'
) USING DELTA;

-- two neighbouring bundles that people could merge: what they carry together, as shares of the limits that a split begins at
CREATE TABLE merge_advice (
  `cluster` STRING COMMENT 'the cluster\'s name',
  `namespace` STRING COMMENT 'tenant/namespace',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `neighbour` STRING COMMENT 'the bundle whose range follows, of a merge',
  `owner` STRING COMMENT 'the broker that has the bundle; none: nobody',
  `since_ms` BIGINT COMMENT 'since when both are small',
  `topics_ratio` DOUBLE COMMENT 'what both have together ÷ the limit of topics at which a split begins',
  `sessions_ratio` DOUBLE COMMENT 'what both have together ÷ the limit of sessions at which a split begins',
  `rate_ratio` DOUBLE COMMENT 'what both have together ÷ the limit of rate at which a split begins',
  `bandwidth_ratio` DOUBLE COMMENT 'what both have together ÷ the limit of bandwidth at which a split begins',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `now_ms` BIGINT COMMENT 'when this was so',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints'
) USING DELTA;

-- one bundle now: its owner, latest statistics, short- and long-term averages
CREATE TABLE bundle_averages (
  `cluster` STRING COMMENT 'the cluster\'s name',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `owner` STRING COMMENT 'the broker that has the bundle; none: nobody',
  `owner_since_ms` BIGINT COMMENT 'since when the owner has it',
  `topics` BIGINT COMMENT 'topics that it has',
  `latest_throughput_in_bytes_per_s` DOUBLE COMMENT 'traffic in, as reported last, bytes/s',
  `latest_throughput_out_bytes_per_s` DOUBLE COMMENT 'traffic out, as reported last, bytes/s',
  `latest_rate_in_msgs_per_s` DOUBLE COMMENT 'messages in, as reported last, messages/s',
  `latest_rate_out_msgs_per_s` DOUBLE COMMENT 'messages out, as reported last, messages/s',
  `short_samples` INT COMMENT 'reports that the short-term average holds',
  `short_throughput_in_bytes_per_s` DOUBLE COMMENT 'traffic in, short-term average, bytes/s',
  `short_throughput_out_bytes_per_s` DOUBLE COMMENT 'traffic out, short-term average, bytes/s',
  `short_rate_in_msgs_per_s` DOUBLE COMMENT 'messages in, short-term average, messages/s',
  `short_rate_out_msgs_per_s` DOUBLE COMMENT 'messages out, short-term average, messages/s',
  `long_samples` INT COMMENT 'reports that the long-term average holds',
  `long_throughput_in_bytes_per_s` DOUBLE COMMENT 'traffic in, long-term average, bytes/s',
  `long_throughput_out_bytes_per_s` DOUBLE COMMENT 'traffic out, long-term average, bytes/s',
  `long_rate_in_msgs_per_s` DOUBLE COMMENT 'messages in, long-term average, messages/s',
  `long_rate_out_msgs_per_s` DOUBLE COMMENT 'messages out, long-term average, messages/s',
  `now_ms` BIGINT COMMENT 'the round\'s time: the newest append time that it has read',
  `part` STRING COMMENT 'what is written anew at once: a shard of a large cluster, or several small clusters'
) USING DELTA
PARTITIONED BY (`part`);

-- one broker as a round saw it; a row for each round with a new report
CREATE TABLE broker_loads (
  `cluster` STRING COMMENT 'the cluster\'s name',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `now_ms` BIGINT COMMENT 'the round\'s time: the newest append time that it has read',
  `broker` STRING COMMENT 'the broker, host:port as in its reports',
  `alive` BOOLEAN COMMENT 'whether the broker lived',
  `seen_ms` BIGINT COMMENT 'when the broker was heard of last',
  `reported_ms` BIGINT COMMENT 'when its last report came',
  `usage_ratio` DOUBLE COMMENT 'its greatest usage ÷ limit of all resources, as the strategies weigh them',
  `cpu_ratio` DOUBLE COMMENT 'usage ÷ limit of cpu',
  `memory_ratio` DOUBLE COMMENT 'usage ÷ limit of memory',
  `direct_memory_ratio` DOUBLE COMMENT 'usage ÷ limit of direct memory',
  `bandwidth_in_ratio` DOUBLE COMMENT 'usage ÷ limit of bandwidth in',
  `bandwidth_out_ratio` DOUBLE COMMENT 'usage ÷ limit of bandwidth out',
  `bundles` BIGINT COMMENT 'bundles that it has',
  `topics` BIGINT COMMENT 'topics that it has',
  `latest_throughput_in_bytes_per_s` DOUBLE COMMENT 'traffic in, as reported last, bytes/s',
  `latest_throughput_out_bytes_per_s` DOUBLE COMMENT 'traffic out, as reported last, bytes/s',
  `latest_rate_in_msgs_per_s` DOUBLE COMMENT 'messages in, as reported last, messages/s',
  `latest_rate_out_msgs_per_s` DOUBLE COMMENT 'messages out, as reported last, messages/s',
  `short_throughput_in_bytes_per_s` DOUBLE COMMENT 'traffic in, short-term average, bytes/s',
  `short_throughput_out_bytes_per_s` DOUBLE COMMENT 'traffic out, short-term average, bytes/s',
  `short_rate_in_msgs_per_s` DOUBLE COMMENT 'messages in, short-term average, messages/s',
  `short_rate_out_msgs_per_s` DOUBLE COMMENT 'messages out, short-term average, messages/s',
  `long_throughput_in_bytes_per_s` DOUBLE COMMENT 'traffic in, long-term average, bytes/s',
  `long_throughput_out_bytes_per_s` DOUBLE COMMENT 'traffic out, long-term average, bytes/s',
  `long_rate_in_msgs_per_s` DOUBLE COMMENT 'messages in, long-term average, messages/s',
  `long_rate_out_msgs_per_s` DOUBLE COMMENT 'messages out, long-term average, messages/s',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints',
  `active` BOOLEAN COMMENT 'whether the broker counts in means and maxima: alive, heard lately and not drained'
) USING DELTA;

-- one bundle as a slot of time found it: its owner and latest statistics; without a row it is as in its row before
CREATE TABLE bundle_history (
  `slot_ms` BIGINT COMMENT 'begin of the slot of time',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `owner` STRING COMMENT 'the broker that has the bundle; none: nobody',
  `throughput_in_bytes_per_s` FLOAT COMMENT 'traffic in, bytes/s',
  `throughput_out_bytes_per_s` FLOAT COMMENT 'traffic out, bytes/s',
  `rate_in_msgs_per_s` FLOAT COMMENT 'messages in, messages/s',
  `rate_out_msgs_per_s` FLOAT COMMENT 'messages out, messages/s',
  `topics` INT COMMENT 'topics that it has',
  `producers` INT COMMENT 'producers of the bundle',
  `consumers` INT COMMENT 'consumers of the bundle',
  `cache_size_bytes` BIGINT COMMENT 'cache of the bundle'
) USING DELTA;

-- one broker as a slot of time found it: what it used, and what it has of each resource
CREATE TABLE broker_history (
  `slot_ms` BIGINT COMMENT 'begin of the slot of time',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `broker` STRING COMMENT 'the broker, host:port as in its reports',
  `seen_ms` BIGINT COMMENT 'when the broker was heard of last',
  `reported_ms` BIGINT COMMENT 'when its last report came',
  `left` BOOLEAN COMMENT 'whether it said goodbye',
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
  `throughput_in_bytes_per_s` DOUBLE COMMENT 'traffic in, bytes/s',
  `throughput_out_bytes_per_s` DOUBLE COMMENT 'traffic out, bytes/s',
  `rate_in_msgs_per_s` DOUBLE COMMENT 'messages in, messages/s',
  `rate_out_msgs_per_s` DOUBLE COMMENT 'messages out, messages/s',
  `topics` BIGINT COMMENT 'topics that it has',
  `bundles` BIGINT COMMENT 'bundles that it has'
) USING DELTA;

-- what one rule refused at one broker in one round
CREATE TABLE refusals (
  `cluster` STRING COMMENT 'the cluster\'s name',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `now_ms` BIGINT COMMENT 'the round\'s time: the newest append time that it has read',
  `rule` STRING COMMENT 'the rule that refused it',
  `broker` STRING COMMENT 'the broker, host:port as in its reports',
  `count` BIGINT COMMENT 'how often the rule refused',
  `limit` DOUBLE COMMENT 'the limit, in `unit`',
  `least` DOUBLE COMMENT 'the least figure that was refused',
  `greatest` DOUBLE COMMENT 'the greatest figure that was refused',
  `unit` STRING COMMENT 'of the figures beside it',
  `subjects` ARRAY<STRING> COMMENT 'bundles or brokers that were refused, 20 at most',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints',
  `namespace` STRING COMMENT 'whose limit it is, where it is a namespace\'s',
  `until_ms` BIGINT COMMENT 'until when a namespace\'s limit holds, where that is known'
) USING DELTA;

-- a record that was not taken: where it is, which field, what it held, what was expected
CREATE TABLE rejected_reports (
  `topic` STRING COMMENT 'the Kafka topic of the record',
  `partition` INT COMMENT 'the record\'s partition',
  `offset` BIGINT COMMENT 'the record\'s offset',
  `append_ms` BIGINT COMMENT 'when Kafka took the record',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `broker` STRING COMMENT 'the broker, host:port as in its reports',
  `field` STRING COMMENT 'the field that was wrong',
  `value` STRING COMMENT 'what it held',
  `expected` STRING COMMENT 'what was expected',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints'
) USING DELTA;

-- one cluster's answer to one command; one that takes time has two: accepted, then done or failed
CREATE TABLE commands (
  `id` STRING COMMENT 'the command\'s id, chosen by its sender',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `kind` STRING COMMENT 'what kind of command it is',
  `arguments` STRING COMMENT 'JSON object: the command\'s own fields',
  `by` STRING COMMENT 'who sent it, as the sender says',
  `at_ms` BIGINT COMMENT 'when the command came',
  `outcome` STRING COMMENT 'done, accepted, refused or failed',
  `text` STRING COMMENT 'what happened, or why not',
  `rule` STRING COMMENT 'the rule that refused the command',
  `decision_ids` ARRAY<STRING> COMMENT 'decisions that the command has led to',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `now_ms` BIGINT COMMENT 'when it was answered',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints'
) USING DELTA;

-- what has become of one proposal: it waits for approval; approved, rejected, expired, stale, superseded, withdrawn
CREATE TABLE proposals (
  `proposal_id` STRING COMMENT 'the proposal\'s id, cluster:seq:pNUMBER',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `together` STRING COMMENT 'the first of the proposals that are approved and rejected together',
  `state` STRING COMMENT 'waiting, approved, rejected, expired, stale, superseded or withdrawn',
  `by` STRING COMMENT 'who ended it',
  `why` STRING COMMENT 'why it was rejected',
  `kind` STRING COMMENT 'unload, transfer, assign, split or merge',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `source` STRING COMMENT 'the broker that has the bundle, and is to give it up',
  `destination` STRING COMMENT 'the broker that is to have the bundle',
  `reason` STRING COMMENT 'Pulsar\'s word for why',
  `rule` STRING COMMENT 'the rule that decided it',
  `strategy` STRING COMMENT 'the strategy that decided it',
  `bytes_per_s` DOUBLE COMMENT 'the bundle\'s traffic, its short-term average, bytes/s',
  `proposed_ms` BIGINT COMMENT 'when it was proposed',
  `expires_ms` BIGINT COMMENT 'until when it waits for approval',
  `until_ms` BIGINT COMMENT 'until when a rejection holds',
  `decision_id` STRING COMMENT 'the decision that an approval has led to',
  `explain` STRING COMMENT 'JSON object: the figures behind it, and the candidates',
  `plan` STRING COMMENT 'the plan that a move is part of, cluster:seq of the round that made it; empty: a split, or a move that parts an anti-affinity group',
  `step` BIGINT COMMENT 'its place in the plan',
  `source_usage` DOUBLE COMMENT 'usage of the source in the round of this row, a ratio, as all of these',
  `destination_usage` DOUBLE COMMENT 'usage of the destination',
  `max_usage` DOUBLE COMMENT 'usage of the busiest broker',
  `usage_alone` DOUBLE COMMENT 'usage of the busiest broker if this step alone were approved',
  `usage_in_order` DOUBLE COMMENT 'usage of the busiest broker if this step and all before it were approved',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `now_ms` BIGINT COMMENT 'the round\'s time: the newest append time that it has read',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints'
) USING DELTA;

-- one policy in one round: the cluster's own (real), or a shadow's, which decides and publishes nothing
CREATE TABLE shadow_rounds (
  `cluster` STRING COMMENT 'the cluster\'s name',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `now_ms` BIGINT COMMENT 'the round\'s time: the newest append time that it has read',
  `policy` STRING COMMENT 'real: the cluster\'s own; else the shadow\'s name',
  `outcome` STRING COMMENT 'done, skipped or failed',
  `detail` STRING COMMENT 'why it failed; of real: whether it was a dry run',
  `strategies` STRING COMMENT 'shedder + placement',
  `shed` BOOLEAN COMMENT 'whether this was a shedding pass',
  `moves` BIGINT COMMENT 'moves that the shedder decided',
  `assignments` BIGINT COMMENT 'owners that were given to bundles without one',
  `moved_bytes_per_s` DOUBLE COMMENT 'traffic of the moved bundles, bytes/s',
  `arrived` BIGINT COMMENT 'of real: bundles that reports showed at another broker than before',
  `elsewhere` BIGINT COMMENT 'of a shadow: bundles that are in its world where they are not really',
  `before_max_ratio` DOUBLE COMMENT 'greatest usage before its decisions',
  `max_ratio` DOUBLE COMMENT 'greatest usage: of real as reported, of a shadow as predicted with its decisions',
  `mean_ratio` DOUBLE COMMENT 'mean usage, likewise',
  `refused_by` ARRAY<STRING> COMMENT 'rules that refused something',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints'
) USING DELTA;

-- one decision that a shadow would have made
CREATE TABLE shadow_decisions (
  `cluster` STRING COMMENT 'the cluster\'s name',
  `seq` BIGINT COMMENT 'numbers the cluster\'s rounds for ever',
  `now_ms` BIGINT COMMENT 'the round\'s time: the newest append time that it has read',
  `policy` STRING COMMENT 'real: the cluster\'s own; else the shadow\'s name',
  `number` BIGINT COMMENT 'the decision\'s place within its round',
  `kind` STRING COMMENT 'unload, transfer, assign, split or merge',
  `bundle` STRING COMMENT 'the bundle, tenant/namespace/0xLLLLLLLL_0xHHHHHHHH',
  `source` STRING COMMENT 'the broker that has the bundle, and is to give it up',
  `destination` STRING COMMENT 'the broker that is to have the bundle',
  `reason` STRING COMMENT 'Pulsar\'s word for why',
  `rule` STRING COMMENT 'the rule that decided it',
  `strategy` STRING COMMENT 'the strategy that decided it',
  `saw` DOUBLE COMMENT 'the figure that led to it, in `unit`',
  `limit` DOUBLE COMMENT 'the limit, in `unit`',
  `unit` STRING COMMENT 'of the figures beside it',
  `bytes_per_s` DOUBLE COMMENT 'the bundle\'s traffic, its short-term average, bytes/s',
  `log_seq` BIGINT COMMENT 'numbers the pipeline\'s batches for ever, across checkpoints'
) USING DELTA;

-- one start of the job: who leads from then on; the last row leads
CREATE TABLE leaders (
  `pipeline` STRING COMMENT 'the pipeline\'s id',
  `epoch` BIGINT COMMENT 'numbers the starts of the job: the greatest leads',
  `host` STRING COMMENT 'the machine of the job',
  `pid` BIGINT COMMENT 'the job\'s process',
  `since_ms` BIGINT COMMENT 'since when it leads, by its host\'s clock'
) USING DELTA;

-- one micro-batch: how much it read and where its time went; written now and then, for watching only
CREATE TABLE batches (
  `app` STRING COMMENT 'the pipeline\'s id and its checkpoint\'s uuid',
  `epoch` BIGINT COMMENT 'numbers the starts of the job: the greatest leads',
  `batch_id` BIGINT COMMENT 'Spark\'s number of the micro-batch within its checkpoint',
  `log_seq` BIGINT COMMENT 'the batch\'s number in the log; none: nothing was logged',
  `started_ms` BIGINT COMMENT 'when the batch began, by the driver\'s clock',
  `input_records` BIGINT COMMENT 'records that it read',
  `lag_records` BIGINT COMMENT 'records that were there when it was planned, and that it didn\'t read',
  `rounds` BIGINT COMMENT 'rounds of clusters in it',
  `decisions` BIGINT COMMENT 'decisions that it made',
  `refusals` BIGINT COMMENT 'what rules refused in it',
  `errors` BIGINT COMMENT 'rounds that failed',
  `whole_ms` BIGINT COMMENT 'how long it took',
  `offsets_ms` BIGINT COMMENT '... of which: asking Kafka what there is',
  `planning_ms` BIGINT COMMENT '... of which: Spark\'s planning',
  `wal_ms` BIGINT COMMENT '... of which: Spark writes down what it will read',
  `decide_ms` DOUBLE COMMENT '... of which: read, decode, fold, decide: one Spark job',
  `log_ms` DOUBLE COMMENT '... of which: appending to the log',
  `publish_ms` DOUBLE COMMENT '... of which: publishing decisions, in one transaction',
  `project_ms` DOUBLE COMMENT '... of which: what is left then of writing the other tables',
  `averages_ms` DOUBLE COMMENT '... of which: a Spark job that writes the files of bundle_averages and history; the other tables are written meanwhile',
  `next_ms` DOUBLE COMMENT '... of which: writing down what the next batch must know',
  `commit_ms` BIGINT COMMENT '... of which: Spark writes down that it is done',
  `state_updates_ms` BIGINT COMMENT 'updates of state, summed over tasks: part of decide_ms',
  `state_commit_ms` BIGINT COMMENT 'commits of state, summed over tasks: part of decide_ms',
  `state_rows` BIGINT COMMENT 'rows of state',
  `state_bytes` BIGINT COMMENT 'memory of the state'
) USING DELTA;

-- one trial of a back-test: one policy, with what one cluster has carried in one window of time
CREATE TABLE backtests (
  `run` STRING COMMENT 'the same for runs of the same trials',
  `cluster` STRING COMMENT 'the cluster\'s name',
  `policy` STRING COMMENT 'the policy\'s name',
  `settings` STRING COMMENT 'JSON object: the policy\'s settings',
  `made_ms` BIGINT COMMENT 'when the trial was made',
  `from_ms` BIGINT COMMENT 'begin of the window',
  `to_ms` BIGINT COMMENT 'end of the window, which is not part of it',
  `moves` BIGINT COMMENT 'moves in the window',
  `failovers` BIGINT COMMENT 'bundles that got another owner because theirs died',
  `violation_count` BIGINT COMMENT 'rules broken',
  `max_over_bound_median` DOUBLE COMMENT 'greatest usage ÷ the least that is possible, the median over time',
  `max_over_bound_p95` DOUBLE COMMENT 'greatest usage ÷ the least that is possible, its 95th percentile over time',
  `tick_s` DOUBLE COMMENT 'length of a tick, s',
  `balanced_share` DOUBLE COMMENT 'share of the time in which the load was even',
  `client_seconds_lost` DOUBLE COMMENT 'seconds lost by clients, summed',
  `overload_s_85` DOUBLE COMMENT 'seconds of brokers above 85 % usage, summed',
  `measures` STRING COMMENT 'JSON object: all measures',
  `error` STRING COMMENT 'why there are no measures',
  `loop` STRING COMMENT 'closed: played; open: decided only'
) USING DELTA;
