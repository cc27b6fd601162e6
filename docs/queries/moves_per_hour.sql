-- How many bundles were moved in each hour, and how did that end?
SELECT d.cluster, timestamp_millis(d.issued_ms - d.issued_ms % 3600000) AS in_hour, count(*) AS moves,
       count(CASE WHEN o.outcome = 'confirmed' THEN 1 END) AS confirmed,
       count(CASE WHEN o.outcome IN ('refused', 'expired', 'failed') THEN 1 END) AS failed,
       round(avg(o.took_ms)) AS mean_ms
FROM decisions d LEFT JOIN outcomes o ON d.decision_id = o.decision_id
WHERE d.kind IN ('unload', 'transfer') AND NOT d.dry_run
GROUP BY 1, 2
ORDER BY 1, 2
