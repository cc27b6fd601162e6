-- What did a round decide, and what became of it? (parameters: cluster, seq)
SELECT d.decision_id, d.kind, d.bundle, d.source, d.destination, d.rule, coalesce(o.outcome, 'open') AS outcome, o.detail
FROM decisions d LEFT JOIN outcomes o ON d.decision_id = o.decision_id
WHERE d.cluster = :cluster AND d.seq = :seq
ORDER BY length(d.decision_id), d.decision_id
