-- What did a round see? (parameters: cluster, seq; without a new report, what the one before saw)
SELECT broker, alive, timestamp_millis(reported_ms) AS reported_at, round(100 * usage_ratio, 1) AS usage_percent, bundles, topics,
       round(latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s) AS bytes_per_s,
       round(latest_rate_in_msgs_per_s + latest_rate_out_msgs_per_s) AS msgs_per_s
FROM broker_loads
WHERE cluster = :cluster AND seq = (SELECT max(seq) FROM broker_loads WHERE cluster = :cluster AND seq <= :seq)
ORDER BY broker
