-- name: take_tasks
-- takes: queue_id bigint, level bigint, key text, most bigint, build_id text
SELECT q.n, {task}
  FROM {rows} CROSS JOIN LATERAL (
       SELECT t.* FROM tasks t
        WHERE t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key AND t.state = 'ready'
          AND (t.compatibility IS NULL OR t.compatibility = q.build_id)
        ORDER BY t.seq LIMIT q.most FOR UPDATE) t
 ORDER BY q.n, t.seq;

-- name: take_tasks_of_route
-- takes: queue_id bigint, level bigint, key text, most bigint, route text
SELECT q.n, {task}
  FROM {rows} CROSS JOIN LATERAL (
       SELECT t.* FROM tasks t
        WHERE t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key AND t.state = 'ready'
          AND t.route = q.route
        ORDER BY t.seq LIMIT q.most FOR UPDATE) t
 ORDER BY q.n, t.seq;

-- name: join_lane
-- takes: queue_id bigint, level bigint, key text, weight_milli bigint
-- Of tasks that join together the last one's weight counts, as if they had come one by one.
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, place)
SELECT q.queue_id, q.level, q.key, 0, q.weight_milli, q.weight_milli, q.joined, 1
  FROM (SELECT q.queue_id, q.level, q.key, (array_agg(q.weight_milli ORDER BY q.n DESC))[1] AS weight_milli,
               count(*) AS joined
          FROM {rows} GROUP BY q.queue_id, q.level, q.key) q
 ORDER BY q.queue_id, q.level, q.key
ON CONFLICT (queue_id, level, key) DO UPDATE
   SET wanted_milli = excluded.wanted_milli, count = lanes.count + excluded.count,
       place = CASE WHEN lanes.place = 1 OR lanes.count = 0 OR excluded.wanted_milli <> lanes.weight_milli
                    THEN 1 ELSE 0 END;
