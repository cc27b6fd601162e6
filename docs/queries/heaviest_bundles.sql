-- Which bundles carry the most, of those that have an owner?
SELECT cluster, bundle, owner, short_samples, long_samples,
       round((short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s) / 1e6, 2) AS short_mb_per_s,
       round((long_throughput_in_bytes_per_s + long_throughput_out_bytes_per_s) / 1e6, 2) AS long_mb_per_s,
       round(long_rate_in_msgs_per_s + long_rate_out_msgs_per_s) AS long_msgs_per_s,
       round(hottest_topic_ratio, 2) AS hottest_topic
FROM bundle_averages
WHERE owner IS NOT NULL
ORDER BY short_throughput_in_bytes_per_s + short_throughput_out_bytes_per_s DESC, cluster, bundle
LIMIT 10
