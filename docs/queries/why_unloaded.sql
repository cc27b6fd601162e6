-- Why was a bundle unloaded, from where to where, and did it come about? (parameter: bundle)
SELECT d.decision_id, timestamp_millis(d.issued_ms) AS decided_at, d.source, d.destination, d.strategy, d.rule,
       round(CAST(get_json_object(d.explain, '$.saw') AS DOUBLE), 3) AS saw,
       round(CAST(get_json_object(d.explain, '$.limit') AS DOUBLE), 3) AS allowed,
       round(CAST(get_json_object(d.explain, '$.average') AS DOUBLE), 3) AS average,
       get_json_object(d.explain, '$.unit') AS unit, coalesce(o.outcome, 'open') AS outcome, o.took_ms
FROM decisions d LEFT JOIN outcomes o ON d.decision_id = o.decision_id
WHERE d.bundle = :bundle AND d.kind IN ('unload', 'transfer')
ORDER BY d.issued_ms
