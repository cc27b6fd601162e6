-- Who sends what can't be read?
SELECT cluster, broker, field, expected, count(*) AS records, timestamp_millis(max(append_ms)) AS last_at
FROM rejected_reports
GROUP BY cluster, broker, field, expected
ORDER BY records DESC, cluster, broker, field
