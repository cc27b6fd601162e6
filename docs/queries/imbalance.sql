-- How even is throughput, round by round? (busiest ÷ mean: 1 is perfect; deviation ÷ mean: 0 is)
SELECT cluster, seq, timestamp_millis(min(now_ms)) AS seen_at,
       round(max(bytes_per_s) / nullif(avg(bytes_per_s), 0), 3) AS max_over_mean,
       round(stddev_pop(bytes_per_s) / nullif(avg(bytes_per_s), 0), 3) AS std_over_mean
FROM (
    SELECT cluster, seq, now_ms, latest_throughput_in_bytes_per_s + latest_throughput_out_bytes_per_s AS bytes_per_s
    FROM broker_loads
    WHERE active
) loads
GROUP BY cluster, seq
ORDER BY cluster, seq
