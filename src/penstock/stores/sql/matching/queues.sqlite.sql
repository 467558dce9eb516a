-- name: count_added
-- takes: queue_id bigint, minute bigint, times bigint
-- coalesce
INSERT INTO meters (queue_id, minute, added, dispatched) SELECT q.queue_id, q.minute, q.times, 0 FROM {rows} WHERE true
ON CONFLICT (queue_id, minute) DO UPDATE SET added = meters.added + excluded.added;
