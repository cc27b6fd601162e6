-- Did a round fail?
SELECT cluster, seq, timestamp_millis(now_ms) AS failed_at, error
FROM rounds
WHERE error IS NOT NULL
ORDER BY log_seq DESC
LIMIT 5
