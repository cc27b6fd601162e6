-- Which bundles came back to a broker that they had left, and after how many rounds?
SELECT moved.cluster, moved.bundle, moved.source AS broker, moved.seq AS left_in, min(back.seq) AS back_in, min(back.seq) - moved.seq AS rounds
FROM decisions moved
JOIN decisions back
  ON back.cluster = moved.cluster AND back.bundle = moved.bundle AND back.destination = moved.source AND back.seq > moved.seq
 AND back.kind = 'assign' AND NOT back.dry_run
WHERE moved.kind IN ('unload', 'transfer') AND NOT moved.dry_run
GROUP BY moved.cluster, moved.bundle, moved.source, moved.seq
ORDER BY rounds, moved.cluster, moved.bundle
