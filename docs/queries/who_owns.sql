-- Who owns a bundle, since when, and by which decision? (parameter: bundle)
SELECT cluster, state, owner, destination, version, timestamp_millis(since_ms) AS since, decision_id
FROM ownership
WHERE bundle = :bundle
ORDER BY cluster
