-- name: join_lane
-- takes: queue_id bigint, level bigint, key text, weight_milli bigint, times bigint
-- tally
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, place, base)
SELECT q.queue_id, q.level, q.key, 0, q.weight_milli, q.weight_milli, q.times, 1, coalesce(c.virtual, 0)
  FROM {rows} LEFT JOIN clocks c ON c.queue_id = q.queue_id AND c.level = q.level WHERE true
ON CONFLICT (queue_id, level, key) DO UPDATE
   SET wanted_milli = excluded.wanted_milli, count = lanes.count + excluded.count,
       base = CASE WHEN lanes.count = 0 THEN excluded.base ELSE lanes.base END,
       place = CASE WHEN lanes.count = 0
                      OR coalesce(lanes.override_milli, excluded.wanted_milli) <> lanes.weight_milli
                    THEN 1 ELSE lanes.place END;

-- name: count_added
-- takes: queue_id bigint, minute bigint, times bigint
-- tally
INSERT INTO meters (queue_id, minute, added, dispatched) SELECT q.queue_id, q.minute, q.times, 0 FROM {rows} WHERE true
ON CONFLICT (queue_id, minute) DO UPDATE SET added = meters.added + excluded.added;
