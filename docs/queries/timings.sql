-- Where does the time go? (medians in milliseconds of the hundred last batches of each run)
SELECT app, epoch, count(*) AS batches, CAST(sum(input_records) AS BIGINT) AS records, median(whole_ms) AS whole,
       median(offsets_ms + planning_ms + wal_ms + commit_ms) AS spark, median(decide_ms) AS decide, median(log_ms) AS log,
       median(publish_ms) AS publish, median(project_ms + coalesce(averages_ms, 0)) AS tables
FROM (SELECT *, row_number() OVER (PARTITION BY app, epoch ORDER BY batch_id DESC) AS nth FROM batches) numbered
WHERE nth <= 100
GROUP BY app, epoch
ORDER BY app, epoch
