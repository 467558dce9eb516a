-- columns: queue
--   queue_id, namespace, name, kind, paused

-- name: create_queue
-- takes: namespace text, name text, kind text
INSERT INTO queues ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.name, q.kind
ON CONFLICT (namespace, name, kind) DO NOTHING;

-- name: get_queue
-- takes: namespace text, name text, kind text
SELECT q.n, {queue}
  FROM {rows} JOIN queues t ON t.namespace = q.namespace AND t.name = q.name AND t.kind = q.kind;

-- name: find_queues
-- takes: namespace text, name text
SELECT q.n, {queue}
  FROM {rows} JOIN queues t ON t.namespace = q.namespace AND t.name = q.name ORDER BY t.kind;

-- name: list_queues
-- takes: namespace text
SELECT q.n, {queue}
  FROM {rows} JOIN queues t ON t.namespace = q.namespace ORDER BY t.name, t.kind;

-- name: lock_queue
-- takes: queue_id bigint
SELECT q.n, {queue}
  FROM {rows} JOIN queues t ON t.queue_id = q.queue_id ORDER BY t.queue_id {lock t};

-- name: lanes_to_place
-- alone
-- takes: queue_id bigint, build_id text
SELECT 1, l.level, l.key, l.tag, l.weight_milli, l.wanted_milli, l.count, l.place,
       CASE WHEN EXISTS (
         SELECT 1 FROM tasks t
          WHERE t.queue_id = l.queue_id AND t.level = l.level AND t.key = l.key AND t.state = 'ready'
            AND (t.compatibility IS NULL OR t.compatibility = :build_id) LIMIT 1 OFFSET 0) THEN 1 ELSE 0 END
  FROM lanes l WHERE l.queue_id = :queue_id AND l.count > 0 AND l.place = 1
 ORDER BY l.level, l.key LIMIT 256;

-- name: lanes_to_place_of_routes
-- alone
-- takes: queue_id bigint, routes text
SELECT 1, l.level, l.key, l.tag, l.weight_milli, l.wanted_milli, l.count, l.place,
       CASE WHEN EXISTS (
         SELECT 1 FROM {each :routes} WHERE EXISTS (
           SELECT 1 FROM tasks t
            WHERE t.queue_id = l.queue_id AND t.level = l.level AND t.key = l.key AND t.route = each_.value
              AND t.state = 'ready' LIMIT 1 OFFSET 0) LIMIT 1 OFFSET 0) THEN 1 ELSE 0 END
  FROM lanes l WHERE l.queue_id = :queue_id AND l.count > 0 AND l.place = 1
 ORDER BY l.level, l.key LIMIT 256;

-- name: least_lanes
-- alone
-- takes: queue_id bigint, build_id text, most bigint
SELECT 1, l.level, l.key, l.tag, l.weight_milli, l.wanted_milli, l.count, l.place, 1
  FROM lanes l WHERE l.queue_id = :queue_id AND l.count > 0 AND l.place = 0
   AND EXISTS (
         SELECT 1 FROM tasks t
          WHERE t.queue_id = l.queue_id AND t.level = l.level AND t.key = l.key AND t.state = 'ready'
            AND (t.compatibility IS NULL OR t.compatibility = :build_id) LIMIT 1 OFFSET 0)
 ORDER BY l.level, l.tag, l.key LIMIT :most;

-- name: least_lanes_of_routes
-- alone
-- takes: queue_id bigint, routes text, most bigint
SELECT 1, l.level, l.key, l.tag, l.weight_milli, l.wanted_milli, l.count, l.place, 1
  FROM lanes l WHERE l.queue_id = :queue_id AND l.count > 0 AND l.place = 0
   AND EXISTS (
         SELECT 1 FROM {each :routes} WHERE EXISTS (
           SELECT 1 FROM tasks t
            WHERE t.queue_id = l.queue_id AND t.level = l.level AND t.key = l.key AND t.route = each_.value
              AND t.state = 'ready' LIMIT 1 OFFSET 0) LIMIT 1 OFFSET 0)
 ORDER BY l.level, l.tag, l.key LIMIT :most;

-- name: get_clocks
-- takes: queue_id bigint
SELECT q.n, t.level, t.virtual, t.placed FROM {rows} JOIN clocks t ON t.queue_id = q.queue_id ORDER BY t.level;

-- name: take_tasks
-- alone
-- takes: queue_id bigint, level bigint, key text, most bigint, build_id text
SELECT 1, {task}
  FROM tasks t
 WHERE t.queue_id = :queue_id AND t.level = :level AND t.key = :key AND t.state = 'ready'
   AND (t.compatibility IS NULL OR t.compatibility = :build_id)
 ORDER BY t.seq LIMIT :most {lock t};

-- name: first_routes
-- alone
-- takes: queue_id bigint, level bigint, key text, most bigint, routes text
-- The routes whose heads have waited longest: no other route holds one of the lane's next `most` tasks.
SELECT 1, h.route
  FROM (SELECT each_.value AS route, (
          SELECT t.seq FROM tasks t
           WHERE t.queue_id = :queue_id AND t.route = each_.value AND t.level = :level AND t.key = :key
             AND t.state = 'ready' ORDER BY t.seq LIMIT 1) AS seq
          FROM {each :routes}) h
 WHERE h.seq IS NOT NULL ORDER BY h.seq LIMIT :most;

-- name: take_tasks_of_route
-- alone
-- takes: queue_id bigint, level bigint, key text, most bigint, route text
SELECT 1, {task}
  FROM tasks t
 WHERE t.queue_id = :queue_id AND t.level = :level AND t.key = :key AND t.route = :route AND t.state = 'ready'
 ORDER BY t.seq LIMIT :most {lock t};

-- name: count_ready
-- takes: queue_id bigint
SELECT q.n, coalesce(sum(t.count), 0) FROM {rows} LEFT JOIN lanes t ON t.queue_id = q.queue_id GROUP BY q.n;

-- name: count_delayed
-- takes: queue_id bigint
SELECT q.n, count(t.seq) FROM {rows} LEFT JOIN tasks t ON t.queue_id = q.queue_id AND t.state = 'delayed' GROUP BY q.n;

-- name: count_leased
-- takes: queue_id bigint, now_ms bigint
SELECT q.n, coalesce(sum(CASE WHEN t.lease_expires_at_ms > q.now_ms THEN 1 ELSE 0 END), 0),
       coalesce(sum(CASE WHEN t.lease_expires_at_ms <= q.now_ms THEN 1 ELSE 0 END), 0)
  FROM {rows} LEFT JOIN tasks t ON t.queue_id = q.queue_id AND t.state = 'leased' GROUP BY q.n;

-- name: get_meter
-- takes: queue_id bigint, minute bigint
SELECT q.n, t.added, t.dispatched FROM {rows} JOIN meters t ON t.queue_id = q.queue_id AND t.minute = q.minute;

-- name: oldest_ready
-- alone
-- takes: queue_id bigint
-- The head of each lane is its oldest; lanes are few beside tasks.
SELECT 1, {task}
  FROM lanes l JOIN tasks t
    ON t.queue_id = l.queue_id AND t.level = l.level AND t.key = l.key AND t.state = 'ready' AND t.seq = (
       SELECT min(h.seq) FROM tasks h
        WHERE h.queue_id = l.queue_id AND h.level = l.level AND h.key = l.key AND h.state = 'ready')
 WHERE l.queue_id = :queue_id AND l.count > 0
 ORDER BY t.enqueued_at_ms, t.seq LIMIT 1;

-- name: join_lane
-- takes: queue_id bigint, level bigint, key text, weight_milli bigint
-- A task becomes ready. An idle lane, or one whose weight changed, is to be placed by the next claim.
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, place)
SELECT q.queue_id, q.level, q.key, 0, q.weight_milli, q.weight_milli, 1, 1 FROM {rows} WHERE true
ON CONFLICT (queue_id, level, key) DO UPDATE
   SET wanted_milli = excluded.wanted_milli, count = lanes.count + excluded.count,
       place = CASE WHEN lanes.place = 1 OR lanes.count = 0 OR excluded.wanted_milli <> lanes.weight_milli
                    THEN 1 ELSE 0 END;

-- name: rejoin_lane
-- takes: queue_id bigint, level bigint, key text
-- As join_lane, for a task that comes back: it brings no opinion about the weight.
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, place)
SELECT q.queue_id, q.level, q.key, 0, 1000, 1000, count(*), 1
  FROM {rows} WHERE true GROUP BY q.queue_id, q.level, q.key ORDER BY 1, 2, 3
ON CONFLICT (queue_id, level, key) DO UPDATE
   SET count = lanes.count + excluded.count,
       place = CASE WHEN lanes.place = 1 OR lanes.count = 0 THEN 1 ELSE 0 END;

-- name: leave_lane
-- takes: queue_id bigint, level bigint, key text
-- Tasks that leave the line without being granted: cancelled with their run.
UPDATE lanes SET count = lanes.count - q.gone
  FROM (SELECT q.queue_id, q.level, q.key, count(*) AS gone FROM {rows} GROUP BY q.queue_id, q.level, q.key) q
 WHERE lanes.queue_id = q.queue_id AND lanes.level = q.level AND lanes.key = q.key;

-- name: settle_lane
-- takes: queue_id bigint, level bigint, key text, tag bigint, weight_milli bigint, taken bigint
-- The count is lowered, not set: enqueues add to it without the queue's lock.
UPDATE lanes
   SET tag = q.tag, weight_milli = q.weight_milli, count = lanes.count - q.taken,
       place = CASE WHEN lanes.wanted_milli = q.weight_milli THEN 0 ELSE 1 END
  FROM {rows} WHERE lanes.queue_id = q.queue_id AND lanes.level = q.level AND lanes.key = q.key;

-- name: save_clock
-- takes: queue_id bigint, level bigint, virtual bigint, placed bigint
INSERT INTO clocks ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.queue_id, q.level
ON CONFLICT (queue_id, level) DO UPDATE SET virtual = excluded.virtual, placed = excluded.placed;

-- name: count_added
-- takes: queue_id bigint, minute bigint
INSERT INTO meters (queue_id, minute, added, dispatched)
SELECT q.queue_id, q.minute, count(*), 0 FROM {rows} WHERE true GROUP BY q.queue_id, q.minute ORDER BY 1, 2
ON CONFLICT (queue_id, minute) DO UPDATE SET added = meters.added + excluded.added;

-- name: count_dispatched
-- takes: queue_id bigint, minute bigint, dispatched bigint
INSERT INTO meters (queue_id, minute, added, dispatched)
SELECT q.queue_id, q.minute, 0, sum(q.dispatched) FROM {rows} WHERE true GROUP BY q.queue_id, q.minute ORDER BY 1, 2
ON CONFLICT (queue_id, minute) DO UPDATE SET dispatched = meters.dispatched + excluded.dispatched;

-- name: any_meter_before
-- alone
-- takes: minute bigint
SELECT 1 FROM meters WHERE minute < :minute LIMIT 1;

-- name: forget_meters
-- takes: before_minute bigint
DELETE FROM meters WHERE minute < (SELECT max(q.before_minute) FROM {rows});

-- name: idle_lanes
-- alone
-- takes: most bigint
SELECT 1, l.queue_id, l.level, l.key
  FROM clocks c JOIN lanes l ON l.queue_id = c.queue_id AND l.level = c.level AND l.count = 0 AND l.tag <= c.virtual
 WHERE l.key <> '' LIMIT :most;

-- name: drop_lane
-- takes: queue_id bigint, level bigint, key text
DELETE FROM lanes
 WHERE count = 0 AND (queue_id, level, key) IN (SELECT q.queue_id, q.level, q.key FROM {rows})
   AND tag <= (SELECT c.virtual FROM clocks c WHERE c.queue_id = lanes.queue_id AND c.level = lanes.level);
