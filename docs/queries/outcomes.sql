-- What was decided, and did it come about?
SELECT d.kind, d.reason, coalesce(o.outcome, 'open') AS outcome, count(*) AS decisions, round(avg(o.took_ms)) AS mean_ms
FROM decisions d LEFT JOIN outcomes o ON d.decision_id = o.decision_id
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
