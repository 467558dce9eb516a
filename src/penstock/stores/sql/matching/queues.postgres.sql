-- name: take_tasks
-- takes: queue_id bigint, level bigint, key text, most bigint, build_id text, sticky_worker_ids text, now_ms bigint
SELECT q.n, {task}
  FROM {rows} CROSS JOIN LATERAL (
       SELECT t.* FROM tasks t
        WHERE t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key AND t.state = 'ready'
          AND (t.compatibility IS NULL OR t.compatibility = q.build_id)
          AND (t.sticky_until_ms IS NULL OR t.sticky_until_ms <= q.now_ms
               OR instr(q.sticky_worker_ids, char(31) || t.sticky_worker_id || char(31)) > 0)
        ORDER BY t.seq LIMIT q.most FOR UPDATE) t
 ORDER BY q.n, t.seq;

-- name: take_tasks_of_route
-- takes: queue_id bigint, level bigint, key text, most bigint, route text, sticky_worker_ids text, now_ms bigint
SELECT q.n, {task}
  FROM {rows} CROSS JOIN LATERAL (
       SELECT t.* FROM tasks t
        WHERE t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key AND t.state = 'ready'
          AND t.route = q.route
          AND (t.sticky_until_ms IS NULL OR t.sticky_until_ms <= q.now_ms
               OR instr(q.sticky_worker_ids, char(31) || t.sticky_worker_id || char(31)) > 0)
        ORDER BY t.seq LIMIT q.most FOR UPDATE) t
 ORDER BY q.n, t.seq;

-- name: join_lane
-- takes: queue_id bigint, level bigint, key text, weight_milli bigint
-- Of tasks enqueued together the last one's weight counts, as if they had been enqueued one by one.
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, state, base)
SELECT q.queue_id, q.level, q.key, 0, q.weight_milli, q.weight_milli, q.joined, 1, coalesce(c.virtual, 0)
  FROM (SELECT q.queue_id, q.level, q.key, (array_agg(q.weight_milli ORDER BY q.n DESC))[1] AS weight_milli,
               count(*) AS joined
          FROM {rows} GROUP BY q.queue_id, q.level, q.key) q
  LEFT JOIN clocks c ON c.queue_id = q.queue_id AND c.level = q.level
 ORDER BY q.queue_id, q.level, q.key
{or_join_existing_lane};

-- name: arrivals
-- unmerged
-- takes: queue_id bigint, build_id text, sticky_worker_ids text, now_ms bigint, from_level bigint, to_level bigint, most bigint
-- OFFSET 0 makes the planner look up the lane per task; it may sort a whole lane for its first tasks otherwise.
SELECT 1, w.seq, {lane}, 1
  FROM tasks w CROSS JOIN LATERAL (
       SELECT l.* FROM lanes l
        WHERE l.queue_id = w.queue_id AND l.level = w.level AND l.key = w.key
          AND (l.state < 3 OR (l.state = 3 AND l.open_at_ms <= :now_ms)) OFFSET 0) t
 WHERE w.queue_id = :queue_id AND w.state = 'ready' AND w.level BETWEEN :from_level AND :to_level
   AND (w.compatibility IS NULL OR w.compatibility = :build_id) AND {may_be_taken_w}
 ORDER BY w.level, w.seq LIMIT :most;

-- name: arrivals_of_route
-- takes: queue_id bigint, route text, sticky_worker_ids text, now_ms bigint, from_level bigint, to_level bigint, most bigint
SELECT q.n, t.seq, t.level, t.key, t.tag, t.weight_milli, t.wanted_milli, t.count, t.state, t.override_milli, t.rank,
       t.open_at_ms, t.base, 1
  FROM {rows} CROSS JOIN LATERAL (
       SELECT w.seq, l.* FROM tasks w CROSS JOIN LATERAL (
              SELECT l.* FROM lanes l
               WHERE l.queue_id = w.queue_id AND l.level = w.level AND l.key = w.key
                 AND (l.state < 3 OR (l.state = 3 AND l.open_at_ms <= q.now_ms)) OFFSET 0) l
        WHERE w.queue_id = q.queue_id AND w.route = q.route AND w.state = 'ready'
          AND w.level BETWEEN q.from_level AND q.to_level
          AND (w.sticky_until_ms IS NULL OR w.sticky_until_ms <= q.now_ms
               OR instr(q.sticky_worker_ids, char(31) || w.sticky_worker_id || char(31)) > 0)
        ORDER BY w.level, w.seq LIMIT q.most) t
 ORDER BY q.n, t.level, t.seq;

-- name: starving_level
-- takes: queue_id bigint, level bigint, since_ms bigint, most bigint
SELECT q.n, min(w.enqueued_at_ms), count(w.enqueued_at_ms)
  FROM {rows} LEFT JOIN LATERAL (
       SELECT t.enqueued_at_ms FROM tasks t
        WHERE t.queue_id = q.queue_id AND t.level = q.level AND t.state = 'ready' ORDER BY t.seq LIMIT q.most) w
    ON w.enqueued_at_ms <= q.since_ms
 GROUP BY q.n ORDER BY q.n;

-- name: leave_lane
-- takes: queue_id bigint, level bigint, key text
UPDATE lanes SET count = lanes.count - q.gone
  FROM (SELECT t.queue_id, t.level, t.key, q.gone
          FROM (SELECT q.queue_id, q.level, q.key, count(*) AS gone
                  FROM {rows} GROUP BY q.queue_id, q.level, q.key) q
          JOIN lanes t ON t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key
         ORDER BY t.queue_id, t.level, t.key {lock t}) q
 WHERE lanes.queue_id = q.queue_id AND lanes.level = q.level AND lanes.key = q.key;

-- name: release_lanes
-- new snapshot
-- takes: queue_id bigint, key text
-- Also finds lanes that were blocked while this waited for the lock on the key.
UPDATE lanes SET state = 2
  FROM (SELECT t.queue_id, t.level, t.key
          FROM (SELECT DISTINCT q.queue_id, q.key FROM {rows}) q
          JOIN lanes t ON t.queue_id = q.queue_id AND t.key = q.key AND t.level IN ({levels})
         WHERE t.count > 0 AND (t.state = 4 OR (t.state = 0 AND t.rank > 0))
         ORDER BY t.queue_id, t.level, t.key {lock t}) q
 WHERE lanes.queue_id = q.queue_id AND lanes.level = q.level AND lanes.key = q.key;

-- name: heads_of_routes
-- takes: queue_id bigint, most bigint
-- A loose index scan over `tasks_ready_route`: one probe per route, however many tasks wait.
SELECT r.n, {task}
  FROM (WITH RECURSIVE r (n, queue_id, most, route, number) AS (
          SELECT q.n, q.queue_id, q.most,
                 (SELECT min(w.route) FROM tasks w WHERE w.queue_id = q.queue_id AND w.state = 'ready'), 1
            FROM {rows}
          UNION ALL
          SELECT r.n, r.queue_id, r.most,
                 (SELECT min(w.route) FROM tasks w
                   WHERE w.queue_id = r.queue_id AND w.state = 'ready' AND w.route > r.route), r.number + 1
            FROM r WHERE r.route IS NOT NULL AND r.number < r.most
        ) SELECT * FROM r) r
 CROSS JOIN LATERAL (
    SELECT w.* FROM tasks w
     WHERE w.queue_id = r.queue_id AND w.route = r.route AND w.state = 'ready'
     ORDER BY w.level, w.key, w.seq LIMIT 1) t
 ORDER BY r.n, r.number;
