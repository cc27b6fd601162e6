-- What was considered and not done: which rule said no, how often, to how many brokers?
SELECT cluster, rule, CAST(sum(refusals.count) AS BIGINT) AS times, count(DISTINCT broker) AS brokers,
       max(refusals.limit) AS allowed, min(least) AS least, max(greatest) AS greatest, max(unit) AS unit,
       timestamp_millis(max(now_ms)) AS last_at
FROM refusals
GROUP BY cluster, rule
ORDER BY times DESC, cluster, rule
