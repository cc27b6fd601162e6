-- one cluster's round in one batch: the log that everything else follows from
CREATE TABLE rounds (
  `app` STRING,
  `batch_id` BIGINT,
  `log_seq` BIGINT,
  `cluster` STRING,
  `seq` BIGINT,
  `epoch` BIGINT,
  `now_ms` BIGINT,
  `decisions` STRING,
  `outcomes` STRING,
  `ownership` STRING,
  `refusals` STRING,
  `results` STRING,
  `memory` STRING,
  `inputs` STRING,
  `files` STRING,
  `blocks` STRING,
  `error` STRING,
  `shadows` STRING,
  `shadow_memory` STRING,
  `merge_advice` STRING,
  `proposals` STRING
) USING DELTA;

-- one decision; how it ended is in outcomes
CREATE TABLE decisions (
  `decision_id` STRING,
  `cluster` STRING,
  `seq` BIGINT,
  `epoch` BIGINT,
  `kind` STRING,
  `bundle` STRING,
  `source` STRING,
  `destination` STRING,
  `expected_owner` STRING,
  `expected_version` BIGINT,
  `children` ARRAY<STRING>,
  `boundaries` ARRAY<BIGINT>,
  `algorithm` STRING,
  `unload_children` BOOLEAN,
  `reason` STRING,
  `rule` STRING,
  `strategy` STRING,
  `issued_ms` BIGINT,
  `expires_ms` BIGINT,
  `dry_run` BOOLEAN,
  `explain` STRING,
  `log_seq` BIGINT,
  `neighbour` STRING,
  `approved_by` STRING,
  `proposal_id` STRING
) USING DELTA;

-- how one decision ended: confirmed, superseded, refused, expired or failed
CREATE TABLE outcomes (
  `decision_id` STRING,
  `cluster` STRING,
  `seq` BIGINT,
  `bundle` STRING,
  `outcome` STRING,
  `detail` STRING,
  `at_ms` BIGINT,
  `took_ms` BIGINT,
  `log_seq` BIGINT
) USING DELTA;

-- the ownership record of one bundle, as on the topic; earlier ones are in the log
CREATE TABLE ownership (
  `cluster` STRING,
  `bundle` STRING,
  `state` STRING,
  `owner` STRING,
  `source` STRING,
  `destination` STRING,
  `children` ARRAY<STRING>,
  `version` BIGINT,
  `force` BOOLEAN,
  `since_ms` BIGINT,
  `epoch` BIGINT,
  `decision_id` STRING,
  `log_seq` BIGINT
) USING DELTA;

-- two neighbouring bundles that people could merge: what they carry together, as shares of the limits that a split begins at
CREATE TABLE merge_advice (
  `cluster` STRING,
  `namespace` STRING,
  `bundle` STRING,
  `neighbour` STRING,
  `owner` STRING,
  `since_ms` BIGINT,
  `topics_ratio` DOUBLE,
  `sessions_ratio` DOUBLE,
  `rate_ratio` DOUBLE,
  `bandwidth_ratio` DOUBLE,
  `seq` BIGINT,
  `now_ms` BIGINT,
  `log_seq` BIGINT
) USING DELTA;

-- one bundle now: its owner, latest statistics, short- and long-term averages
CREATE TABLE bundle_averages (
  `cluster` STRING,
  `bundle` STRING,
  `owner` STRING,
  `owner_since_ms` BIGINT,
  `topics` BIGINT,
  `latest_throughput_in_bytes_per_s` DOUBLE,
  `latest_throughput_out_bytes_per_s` DOUBLE,
  `latest_rate_in_msgs_per_s` DOUBLE,
  `latest_rate_out_msgs_per_s` DOUBLE,
  `short_samples` INT,
  `short_throughput_in_bytes_per_s` DOUBLE,
  `short_throughput_out_bytes_per_s` DOUBLE,
  `short_rate_in_msgs_per_s` DOUBLE,
  `short_rate_out_msgs_per_s` DOUBLE,
  `long_samples` INT,
  `long_throughput_in_bytes_per_s` DOUBLE,
  `long_throughput_out_bytes_per_s` DOUBLE,
  `long_rate_in_msgs_per_s` DOUBLE,
  `long_rate_out_msgs_per_s` DOUBLE,
  `now_ms` BIGINT,
  `part` STRING
) USING DELTA
PARTITIONED BY (`part`);

-- one broker as a round saw it; a row for each round with a new report
CREATE TABLE broker_loads (
  `cluster` STRING,
  `seq` BIGINT,
  `now_ms` BIGINT,
  `broker` STRING,
  `alive` BOOLEAN,
  `seen_ms` BIGINT,
  `reported_ms` BIGINT,
  `usage_ratio` DOUBLE,
  `cpu_ratio` DOUBLE,
  `memory_ratio` DOUBLE,
  `direct_memory_ratio` DOUBLE,
  `bandwidth_in_ratio` DOUBLE,
  `bandwidth_out_ratio` DOUBLE,
  `bundles` BIGINT,
  `topics` BIGINT,
  `latest_throughput_in_bytes_per_s` DOUBLE,
  `latest_throughput_out_bytes_per_s` DOUBLE,
  `latest_rate_in_msgs_per_s` DOUBLE,
  `latest_rate_out_msgs_per_s` DOUBLE,
  `short_throughput_in_bytes_per_s` DOUBLE,
  `short_throughput_out_bytes_per_s` DOUBLE,
  `short_rate_in_msgs_per_s` DOUBLE,
  `short_rate_out_msgs_per_s` DOUBLE,
  `long_throughput_in_bytes_per_s` DOUBLE,
  `long_throughput_out_bytes_per_s` DOUBLE,
  `long_rate_in_msgs_per_s` DOUBLE,
  `long_rate_out_msgs_per_s` DOUBLE,
  `log_seq` BIGINT
) USING DELTA;

-- one bundle as a slot of time found it: its owner and latest statistics; without a row it is as in its row before
CREATE TABLE bundle_history (
  `slot_ms` BIGINT,
  `cluster` STRING,
  `bundle` STRING,
  `owner` STRING,
  `throughput_in_bytes_per_s` FLOAT,
  `throughput_out_bytes_per_s` FLOAT,
  `rate_in_msgs_per_s` FLOAT,
  `rate_out_msgs_per_s` FLOAT,
  `topics` INT,
  `producers` INT,
  `consumers` INT,
  `cache_size_bytes` BIGINT
) USING DELTA;

-- one broker as a slot of time found it: what it used, and what it has of each resource
CREATE TABLE broker_history (
  `slot_ms` BIGINT,
  `cluster` STRING,
  `broker` STRING,
  `seen_ms` BIGINT,
  `reported_ms` BIGINT,
  `left` BOOLEAN,
  `cpu_usage` DOUBLE,
  `cpu_limit` DOUBLE,
  `memory_usage` DOUBLE,
  `memory_limit` DOUBLE,
  `direct_memory_usage` DOUBLE,
  `direct_memory_limit` DOUBLE,
  `bandwidth_in_usage` DOUBLE,
  `bandwidth_in_limit` DOUBLE,
  `bandwidth_out_usage` DOUBLE,
  `bandwidth_out_limit` DOUBLE,
  `throughput_in_bytes_per_s` DOUBLE,
  `throughput_out_bytes_per_s` DOUBLE,
  `rate_in_msgs_per_s` DOUBLE,
  `rate_out_msgs_per_s` DOUBLE,
  `topics` BIGINT,
  `bundles` BIGINT
) USING DELTA;

-- what one rule refused at one broker in one round
CREATE TABLE refusals (
  `cluster` STRING,
  `seq` BIGINT,
  `now_ms` BIGINT,
  `rule` STRING,
  `broker` STRING,
  `count` BIGINT,
  `limit` DOUBLE,
  `least` DOUBLE,
  `greatest` DOUBLE,
  `unit` STRING,
  `subjects` ARRAY<STRING>,
  `log_seq` BIGINT,
  `namespace` STRING,
  `until_ms` BIGINT
) USING DELTA;

-- a record that was not taken: where it is, which field, what it held, what was expected
CREATE TABLE rejected_reports (
  `topic` STRING,
  `partition` INT,
  `offset` BIGINT,
  `append_ms` BIGINT,
  `cluster` STRING,
  `broker` STRING,
  `field` STRING,
  `value` STRING,
  `expected` STRING,
  `log_seq` BIGINT
) USING DELTA;

-- one cluster's answer to one command; one that takes time has two: accepted, then done or failed
CREATE TABLE commands (
  `id` STRING,
  `cluster` STRING,
  `kind` STRING,
  `arguments` STRING,
  `by` STRING,
  `at_ms` BIGINT,
  `outcome` STRING,
  `text` STRING,
  `rule` STRING,
  `decision_ids` ARRAY<STRING>,
  `seq` BIGINT,
  `now_ms` BIGINT,
  `log_seq` BIGINT
) USING DELTA;

-- what has become of one proposal: it waits for approval; approved, rejected, expired, stale, withdrawn
CREATE TABLE proposals (
  `proposal_id` STRING,
  `cluster` STRING,
  `together` STRING,
  `state` STRING,
  `by` STRING,
  `why` STRING,
  `kind` STRING,
  `bundle` STRING,
  `source` STRING,
  `destination` STRING,
  `reason` STRING,
  `rule` STRING,
  `strategy` STRING,
  `bytes_per_s` DOUBLE,
  `proposed_ms` BIGINT,
  `expires_ms` BIGINT,
  `until_ms` BIGINT,
  `decision_id` STRING,
  `explain` STRING,
  `seq` BIGINT,
  `now_ms` BIGINT,
  `log_seq` BIGINT
) USING DELTA;

-- one policy in one round: the cluster's own (real), or a shadow's, which decides and publishes nothing
CREATE TABLE shadow_rounds (
  `cluster` STRING,
  `seq` BIGINT,
  `now_ms` BIGINT,
  `policy` STRING,
  `outcome` STRING,
  `detail` STRING,
  `strategies` STRING,
  `shed` BOOLEAN,
  `moves` BIGINT,
  `assignments` BIGINT,
  `moved_bytes_per_s` DOUBLE,
  `arrived` BIGINT,
  `elsewhere` BIGINT,
  `before_max_ratio` DOUBLE,
  `max_ratio` DOUBLE,
  `mean_ratio` DOUBLE,
  `refused_by` ARRAY<STRING>,
  `log_seq` BIGINT
) USING DELTA;

-- one decision that a shadow would have made
CREATE TABLE shadow_decisions (
  `cluster` STRING,
  `seq` BIGINT,
  `now_ms` BIGINT,
  `policy` STRING,
  `number` BIGINT,
  `kind` STRING,
  `bundle` STRING,
  `source` STRING,
  `destination` STRING,
  `reason` STRING,
  `rule` STRING,
  `strategy` STRING,
  `saw` DOUBLE,
  `limit` DOUBLE,
  `unit` STRING,
  `bytes_per_s` DOUBLE,
  `log_seq` BIGINT
) USING DELTA;

-- one start of the job: who leads from then on; the last row leads
CREATE TABLE leaders (
  `pipeline` STRING,
  `epoch` BIGINT,
  `host` STRING,
  `pid` BIGINT,
  `since_ms` BIGINT
) USING DELTA;

-- one micro-batch: how much it read and where its time went; written now and then, for watching only
CREATE TABLE batches (
  `app` STRING,
  `epoch` BIGINT,
  `batch_id` BIGINT,
  `log_seq` BIGINT,
  `started_ms` BIGINT,
  `input_records` BIGINT,
  `lag_records` BIGINT,
  `rounds` BIGINT,
  `decisions` BIGINT,
  `refusals` BIGINT,
  `errors` BIGINT,
  `whole_ms` BIGINT,
  `offsets_ms` BIGINT,
  `planning_ms` BIGINT,
  `wal_ms` BIGINT,
  `decide_ms` DOUBLE,
  `log_ms` DOUBLE,
  `publish_ms` DOUBLE,
  `project_ms` DOUBLE,
  `averages_ms` DOUBLE,
  `next_ms` DOUBLE,
  `commit_ms` BIGINT,
  `state_updates_ms` BIGINT,
  `state_commit_ms` BIGINT,
  `state_rows` BIGINT,
  `state_bytes` BIGINT
) USING DELTA;

-- one trial of a back-test: one policy, with what one cluster has carried in one window of time
CREATE TABLE backtests (
  `run` STRING,
  `cluster` STRING,
  `policy` STRING,
  `settings` STRING,
  `made_ms` BIGINT,
  `from_ms` BIGINT,
  `to_ms` BIGINT,
  `moves` BIGINT,
  `failovers` BIGINT,
  `violation_count` BIGINT,
  `max_over_bound_median` DOUBLE,
  `max_over_bound_p95` DOUBLE,
  `tick_s` DOUBLE,
  `balanced_share` DOUBLE,
  `client_seconds_lost` DOUBLE,
  `overload_s_85` DOUBLE,
  `measures` STRING,
  `error` STRING,
  `loop` STRING
) USING DELTA;
