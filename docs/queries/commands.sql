-- Who ordered what, and what came of it?
SELECT latest.cluster, timestamp_millis(latest.at_ms) AS ordered_at, latest.by AS ordered_by, latest.kind, latest.arguments, latest.outcome,
       latest.text, latest.rule
FROM (SELECT *, row_number() OVER (PARTITION BY cluster, id ORDER BY log_seq DESC) AS nth FROM commands) latest
WHERE latest.nth = 1
ORDER BY latest.at_ms DESC
LIMIT 20
