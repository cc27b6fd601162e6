-- How loaded is each broker now?
SELECT l.cluster, l.broker, l.alive, round(100 * l.usage_ratio, 1) AS usage_percent, round(100 * l.cpu_ratio, 1) AS cpu_percent,
       round((l.latest_throughput_in_bytes_per_s + l.latest_throughput_out_bytes_per_s) / 1e6, 2) AS mb_per_s,
       round((l.short_throughput_in_bytes_per_s + l.short_throughput_out_bytes_per_s) / 1e6, 2) AS short_mb_per_s,
       round((l.long_throughput_in_bytes_per_s + l.long_throughput_out_bytes_per_s) / 1e6, 2) AS long_mb_per_s, l.bundles
FROM broker_loads l
JOIN (SELECT cluster, max(log_seq) AS log_seq FROM broker_loads GROUP BY cluster) newest
  ON l.cluster = newest.cluster AND l.log_seq = newest.log_seq
ORDER BY l.cluster, usage_percent DESC, l.broker
