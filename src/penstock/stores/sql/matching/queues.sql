-- columns: queue
--   queue_id, namespace, name, kind, paused, policy, worker_rate_micro, worker_rate_by, worker_rate_at_ms,
--   paid_until_ns, aging_turn, dispatched, stamp, worker_rate_until_ms, worker_rate_burst_ms, worker_rate_conflict

-- columns: lane
--   level, key, tag, weight_milli, wanted_milli, count, state, override_milli, rank, open_at_ms, base

-- fragment: has_task_for_build
--   EXISTS (
--     SELECT 1 FROM tasks w
--      WHERE w.queue_id = t.queue_id AND w.level = t.level AND w.key = t.key AND w.state = 'ready'
--        AND (w.compatibility IS NULL OR w.compatibility = :build_id) AND {may_be_taken_w} LIMIT 1 OFFSET 0)

-- fragment: has_task_of_routes
--   EXISTS (
--     SELECT 1 FROM {each :routes} WHERE EXISTS (
--       SELECT 1 FROM tasks w
--        WHERE w.queue_id = t.queue_id AND w.level = t.level AND w.key = t.key AND w.route = each_.value
--          AND w.state = 'ready' AND {may_be_taken_w} LIMIT 1 OFFSET 0) LIMIT 1 OFFSET 0)

-- name: create_queue
-- takes: namespace text, name text, kind text, stamp text
INSERT INTO queues ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.name, q.kind
ON CONFLICT (namespace, name, kind) DO NOTHING;

-- name: get_queue
-- takes: namespace text, name text, kind text
SELECT q.n, {queue}, coalesce(s.fair, 1)
  FROM {rows} JOIN queues t ON t.namespace = q.namespace AND t.name = q.name AND t.kind = q.kind
  LEFT JOIN namespaces s ON s.name = t.namespace;

-- name: find_queues
-- takes: namespace text, name text
SELECT q.n, {queue}, coalesce(s.fair, 1)
  FROM {rows} JOIN queues t ON t.namespace = q.namespace AND t.name = q.name
  LEFT JOIN namespaces s ON s.name = t.namespace ORDER BY t.kind;

-- name: list_queues
-- takes: namespace text
SELECT q.n, {queue}, coalesce(s.fair, 1)
  FROM {rows} JOIN queues t ON t.namespace = q.namespace
   AND (t.cleared = 0 OR EXISTS (SELECT 1 FROM lanes l WHERE l.queue_id = t.queue_id))
  LEFT JOIN namespaces s ON s.name = t.namespace ORDER BY t.name, t.kind;

-- name: lock_queue
-- takes: queue_id bigint
SELECT q.n, {queue}, coalesce(s.fair, 1)
  FROM {rows} JOIN queues t ON t.queue_id = q.queue_id
  LEFT JOIN namespaces s ON s.name = t.namespace ORDER BY t.queue_id {lock t};

-- name: new_lanes
-- unmerged
-- takes: queue_id bigint, build_id text, sticky_worker_ids text, now_ms bigint, most bigint
SELECT 1, {lane}, CASE WHEN {has_task_for_build} THEN 1 ELSE 0 END
  FROM lanes t {index lanes_new} WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 1
 ORDER BY t.level, t.key LIMIT :most;

-- name: new_lanes_of_routes
-- unmerged
-- takes: queue_id bigint, routes text, sticky_worker_ids text, now_ms bigint, most bigint
SELECT 1, {lane}, CASE WHEN {has_task_of_routes} THEN 1 ELSE 0 END
  FROM lanes t {index lanes_new} WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 1
 ORDER BY t.level, t.key LIMIT :most;

-- name: dirty_lanes
-- unmerged
-- takes: queue_id bigint, build_id text, sticky_worker_ids text, now_ms bigint, most bigint
SELECT 1, {lane}, CASE WHEN {has_task_for_build} THEN 1 ELSE 0 END
  FROM lanes t {index lanes_dirty} WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 2
 ORDER BY t.level, t.key LIMIT :most;

-- name: dirty_lanes_of_routes
-- unmerged
-- takes: queue_id bigint, routes text, sticky_worker_ids text, now_ms bigint, most bigint
SELECT 1, {lane}, CASE WHEN {has_task_of_routes} THEN 1 ELSE 0 END
  FROM lanes t {index lanes_dirty} WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 2
 ORDER BY t.level, t.key LIMIT :most;

-- name: lanes_due
-- unmerged
-- takes: queue_id bigint, build_id text, sticky_worker_ids text, now_ms bigint, most bigint
SELECT 1, {lane}, CASE WHEN {has_task_for_build} THEN 1 ELSE 0 END
  FROM lanes t WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 3 AND t.open_at_ms <= :now_ms
 ORDER BY t.open_at_ms, t.level, t.key LIMIT :most;

-- name: lanes_due_of_routes
-- unmerged
-- takes: queue_id bigint, routes text, sticky_worker_ids text, now_ms bigint, most bigint
SELECT 1, {lane}, CASE WHEN {has_task_of_routes} THEN 1 ELSE 0 END
  FROM lanes t WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 3 AND t.open_at_ms <= :now_ms
 ORDER BY t.open_at_ms, t.level, t.key LIMIT :most;

-- name: least_lanes
-- unmerged
-- takes: queue_id bigint, build_id text, sticky_worker_ids text, now_ms bigint, from_level bigint, to_level bigint, most bigint
SELECT 1, {lane}, 1
  FROM lanes t WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 0
   AND t.level BETWEEN :from_level AND :to_level
   AND {has_task_for_build}
 ORDER BY t.level, t.rank, t.tag, t.key LIMIT :most;

-- name: least_lanes_of_routes
-- unmerged
-- takes: queue_id bigint, routes text, sticky_worker_ids text, now_ms bigint, from_level bigint, to_level bigint, most bigint
SELECT 1, {lane}, 1
  FROM lanes t WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 0
   AND t.level BETWEEN :from_level AND :to_level
   AND {has_task_of_routes}
 ORDER BY t.level, t.rank, t.tag, t.key LIMIT :most;

-- name: arrivals
-- unmerged
-- takes: queue_id bigint, build_id text, sticky_worker_ids text, now_ms bigint, from_level bigint, to_level bigint, most bigint
-- In order of arrival; tasks of throttled and blocked lanes are skipped.
SELECT 1, w.seq, {lane}, 1
  FROM tasks w CROSS JOIN lanes t
 WHERE w.queue_id = :queue_id AND w.state = 'ready' AND w.level BETWEEN :from_level AND :to_level
   AND (w.compatibility IS NULL OR w.compatibility = :build_id) AND {may_be_taken_w}
   AND t.queue_id = :queue_id AND t.level = w.level AND t.key = w.key
   AND (t.state < 3 OR (t.state = 3 AND t.open_at_ms <= :now_ms))
 ORDER BY w.level, w.seq LIMIT :most;

-- name: arrivals_of_route
-- unmerged
-- takes: queue_id bigint, route text, sticky_worker_ids text, now_ms bigint, from_level bigint, to_level bigint, most bigint
SELECT 1, w.seq, {lane}, 1
  FROM tasks w CROSS JOIN lanes t
 WHERE w.queue_id = :queue_id AND w.route = :route AND w.state = 'ready' AND {may_be_taken_w}
   AND w.level BETWEEN :from_level AND :to_level
   AND t.queue_id = :queue_id AND t.level = w.level AND t.key = w.key
   AND (t.state < 3 OR (t.state = 3 AND t.open_at_ms <= :now_ms))
 ORDER BY w.level, w.seq LIMIT :most;

-- name: blocked_lanes
-- unmerged
-- takes: queue_id bigint
SELECT 1,
       (SELECT min(t.open_at_ms) FROM lanes t {index lanes_throttled}
         WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 3),
       CASE WHEN EXISTS (
         SELECT 1 FROM lanes t {index lanes_blocked} WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 4)
            THEN 1 ELSE 0 END;

-- name: starving_level
-- unmerged
-- takes: queue_id bigint, level bigint, since_ms bigint, most bigint
SELECT 1, min(w.enqueued_at_ms), count(*)
  FROM (SELECT t.enqueued_at_ms FROM tasks t
         WHERE t.queue_id = :queue_id AND t.level = :level AND t.state = 'ready' ORDER BY t.seq LIMIT :most) w
 WHERE w.enqueued_at_ms <= :since_ms;

-- name: count_running
-- unmerged
-- takes: queue_id bigint, most bigint
SELECT 1, count(*)
  FROM (SELECT 1 FROM tasks t WHERE t.queue_id = :queue_id AND t.state = 'leased' AND t.claimed = 0 LIMIT :most) w;

-- name: rank_lanes_by_running
-- unmerged
-- takes: queue_id bigint
UPDATE lanes
   SET rank = (2 * coalesce((SELECT k.running FROM keys k WHERE k.queue_id = lanes.queue_id AND k.key = lanes.key), 0)
              + 1) * {stride weight_milli}
 WHERE queue_id = :queue_id AND count > 0;

-- name: reopen_due_lanes
-- unmerged
-- takes: queue_id bigint, now_ms bigint
UPDATE lanes {index lanes_throttled} SET state = 2
 WHERE queue_id = :queue_id AND count > 0 AND state = 3 AND open_at_ms <= :now_ms;

-- name: rebase_lanes
-- unmerged
-- takes: queue_id bigint, level bigint, virtual bigint
-- Virtual time restarts at 0, long before it overflows; the distances between tags stay.
UPDATE lanes SET tag = tag - :virtual, base = base - :virtual WHERE queue_id = :queue_id AND level = :level;

-- name: rebase_clock
-- unmerged
-- takes: queue_id bigint, level bigint
UPDATE clocks SET virtual = 0 WHERE queue_id = :queue_id AND level = :level;

-- name: unrank_lanes
-- unmerged
-- takes: queue_id bigint
UPDATE lanes SET rank = 0 WHERE queue_id = :queue_id AND rank <> 0;

-- name: get_clocks
-- takes: queue_id bigint
SELECT q.n, t.level, t.virtual, t.placed FROM {rows} JOIN clocks t ON t.queue_id = q.queue_id ORDER BY t.level;

-- name: take_tasks
-- unmerged
-- takes: queue_id bigint, level bigint, key text, most bigint, build_id text, sticky_worker_ids text, now_ms bigint
SELECT 1, {task}
  FROM tasks t
 WHERE t.queue_id = :queue_id AND t.level = :level AND t.key = :key AND t.state = 'ready'
   AND (t.compatibility IS NULL OR t.compatibility = :build_id) AND {may_be_taken_t}
 ORDER BY t.seq LIMIT :most {lock t};

-- name: first_routes
-- unmerged
-- takes: queue_id bigint, level bigint, key text, most bigint, routes text, sticky_worker_ids text, now_ms bigint
-- The routes with the oldest heads: no other route holds one of the next `most` tasks of the lane.
SELECT 1, h.route
  FROM (SELECT each_.value AS route, (
          SELECT t.seq FROM tasks t
           WHERE t.queue_id = :queue_id AND t.route = each_.value AND t.level = :level AND t.key = :key
             AND t.state = 'ready' AND {may_be_taken_t} ORDER BY t.seq LIMIT 1) AS seq
          FROM {each :routes}) h
 WHERE h.seq IS NOT NULL ORDER BY h.seq LIMIT :most;

-- name: take_tasks_of_route
-- unmerged
-- takes: queue_id bigint, level bigint, key text, most bigint, route text, sticky_worker_ids text, now_ms bigint
SELECT 1, {task}
  FROM tasks t
 WHERE t.queue_id = :queue_id AND t.level = :level AND t.key = :key AND t.route = :route AND t.state = 'ready'
   AND {may_be_taken_t}
 ORDER BY t.seq LIMIT :most {lock t};

-- name: queue_stats
-- takes: queue_id bigint, now_ms bigint, minute bigint
SELECT q.n,
       (SELECT coalesce(sum(l.count), 0) FROM lanes l WHERE l.queue_id = q.queue_id),
       coalesce(sum(CASE WHEN t.lease_expires_at_ms > q.now_ms THEN 1 ELSE 0 END), 0),
       coalesce(sum(CASE WHEN t.lease_expires_at_ms <= q.now_ms THEN 1 ELSE 0 END), 0),
       (SELECT count(*) FROM tasks w WHERE w.queue_id = q.queue_id AND w.state = 'delayed'),
       (SELECT m.added FROM meters m WHERE m.queue_id = q.queue_id AND m.minute = q.minute),
       (SELECT m.dispatched FROM meters m WHERE m.queue_id = q.queue_id AND m.minute = q.minute),
       coalesce(sum(CASE WHEN t.lease_expires_at_ms > q.now_ms AND t.claimed > 0 THEN 1 ELSE 0 END), 0),
       coalesce(sum(CASE WHEN t.claimed = 0 THEN 1 ELSE 0 END), 0)
  FROM {rows} LEFT JOIN tasks t ON t.queue_id = q.queue_id AND t.state = 'leased'
 GROUP BY q.n, q.queue_id, q.now_ms, q.minute;

-- name: oldest_of_levels
-- takes: queue_id bigint
SELECT q.n, {task}
  FROM {rows} CROSS JOIN ({level rows}) v JOIN tasks t ON t.task_id = (
    SELECT w.task_id FROM tasks w WHERE w.queue_id = q.queue_id AND w.level = v.level AND w.state = 'ready'
     ORDER BY w.seq LIMIT 1);

-- name: get_meter
-- takes: queue_id bigint, minute bigint
SELECT q.n, t.added, t.dispatched FROM {rows} JOIN meters t ON t.queue_id = q.queue_id AND t.minute = q.minute;

-- name: namespace_totals
-- unmerged
-- takes: namespace text, kind text, minute bigint
SELECT 1,
       (SELECT count(*) FROM tasks t {index tasks_held_by}
         WHERE t.namespace = :namespace AND t.state = 'leased' AND t.kind = :kind AND t.claimed = 0),
       (SELECT coalesce(sum(m.dispatched), 0) FROM queues u JOIN meters m ON m.queue_id = u.queue_id AND m.minute = :minute
         WHERE u.namespace = :namespace AND u.kind = :kind);

-- name: oldest_at_level
-- unmerged
-- takes: queue_id bigint, level bigint
SELECT 1, {task}
  FROM tasks t WHERE t.queue_id = :queue_id AND t.level = :level AND t.state = 'ready' ORDER BY t.seq LIMIT 1;

-- name: backlog_by_level
-- unmerged
-- takes: queue_id bigint, minute bigint
SELECT 1, t.level, sum(t.count), count(*), sum(coalesce(t.override_milli, t.wanted_milli)),
       sum(CASE WHEN t.minute = :minute THEN t.dispatched ELSE 0 END),
       sum(CASE WHEN t.minute = :minute THEN t.dispatched_before
                WHEN t.minute = :minute - 1 THEN t.dispatched ELSE 0 END)
  FROM lanes t WHERE t.queue_id = :queue_id AND t.count > 0 GROUP BY t.level ORDER BY t.level;

-- name: largest_lanes
-- unmerged
-- takes: queue_id bigint, minute bigint, search text, only text, count bigint, level bigint, key text, most bigint
-- The oldest task is looked up for the lanes that are returned, not for all that are sorted. `0 +` keeps SQLite from
-- planning anew for each count, as it does for values that a partial index compares.
SELECT 1, {lane}, 1,
       CASE WHEN t.minute = :minute THEN t.dispatched ELSE 0 END,
       CASE WHEN t.minute = :minute THEN t.dispatched_before
            WHEN t.minute = :minute - 1 THEN t.dispatched ELSE 0 END,
       (SELECT w.enqueued_at_ms FROM tasks w
         WHERE w.queue_id = t.queue_id AND w.level = t.level AND w.key = t.key AND w.state = 'ready'
         ORDER BY w.seq LIMIT 1)
  FROM (SELECT l.* FROM lanes l
         WHERE l.queue_id = :queue_id AND l.count > 0 AND (:search = '' OR instr(l.key, :search) > 0)
           AND (:only = '' OR l.key = :only)
           AND (l.count < 0 + :count OR (l.count = 0 + :count AND (l.level, l.key) > (:level, :key)))
         ORDER BY l.count DESC, l.level, l.key LIMIT :most) t
 ORDER BY t.count DESC, t.level, t.key;

-- name: get_lane
-- unmerged
-- takes: queue_id bigint, level bigint, key text, minute bigint
SELECT 1, {lane}, 1,
       CASE WHEN t.minute = :minute THEN t.dispatched ELSE 0 END,
       CASE WHEN t.minute = :minute THEN t.dispatched_before
            WHEN t.minute = :minute - 1 THEN t.dispatched ELSE 0 END
  FROM lanes t WHERE t.queue_id = :queue_id AND t.level = :level AND t.key = :key AND t.count > 0;

-- name: lanes_before
-- unmerged
-- takes: queue_id bigint, level bigint, rank bigint, tag bigint, most bigint
SELECT 1, {lane}, 1
  FROM lanes t WHERE t.queue_id = :queue_id AND t.level = :level AND t.count > 0 AND t.state = 0
   AND (t.rank, t.tag) <= (:rank, :tag)
 ORDER BY t.rank, t.tag, t.key LIMIT :most;

-- name: count_lanes_before
-- unmerged
-- takes: queue_id bigint, level bigint, rank bigint, tag bigint, most bigint
SELECT 1, count(*)
  FROM (SELECT 1 FROM lanes t WHERE t.queue_id = :queue_id AND t.level = :level AND t.count > 0 AND t.state = 0
           AND (t.rank, t.tag) <= (:rank, :tag) LIMIT :most) w;

-- name: new_lanes_of_level
-- unmerged
-- takes: queue_id bigint, level bigint, most bigint
SELECT 1, {lane}, 1
  FROM lanes t {index lanes_new}
 WHERE t.queue_id = :queue_id AND t.count > 0 AND t.state = 1 AND t.level = :level
 ORDER BY t.key LIMIT :most;

-- name: count_before_in_lane
-- unmerged
-- takes: queue_id bigint, level bigint, key text, seq bigint, most bigint
-- ORDER BY key, though there is only one: the planner may scan the whole level by arrival otherwise.
SELECT 1, count(*)
  FROM (SELECT 1 FROM tasks t {index tasks_ready}
         WHERE t.queue_id = :queue_id AND t.level = :level AND t.key BETWEEN :key AND :key
           AND t.state = 'ready' AND t.seq < :seq ORDER BY t.key, t.seq LIMIT :most) w;

-- name: count_before_in_level
-- unmerged
-- takes: queue_id bigint, level bigint, seq bigint, most bigint
SELECT 1, count(*)
  FROM (SELECT 1 FROM tasks t WHERE t.queue_id = :queue_id AND t.level = :level
           AND t.state = 'ready' AND t.seq < :seq LIMIT :most) w;

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
  JOIN tasks t ON t.task_id = (
    SELECT w.task_id FROM tasks w
     WHERE w.queue_id = r.queue_id AND w.route = r.route AND w.state = 'ready'
     ORDER BY w.level, w.key, w.seq LIMIT 1)
 ORDER BY r.n, r.number;

-- name: count_route
-- unmerged
-- takes: queue_id bigint, route text, most bigint
SELECT 1, count(*)
  FROM (SELECT 1 FROM tasks t
         WHERE t.queue_id = :queue_id AND t.route = :route AND t.state = 'ready' LIMIT :most) w;

-- name: head_of_lane
-- unmerged
-- takes: queue_id bigint, level bigint, key text
SELECT 1, {task}
  FROM tasks t {index tasks_ready}
 WHERE t.queue_id = :queue_id AND t.level = :level AND t.key BETWEEN :key AND :key AND t.state = 'ready'
 ORDER BY t.key, t.seq LIMIT 1;

-- name: heads_of_lane
-- unmerged
-- takes: queue_id bigint, level bigint, key text, most bigint
SELECT 1, {task}
  FROM tasks t {index tasks_ready}
 WHERE t.queue_id = :queue_id AND t.level = :level AND t.key BETWEEN :key AND :key AND t.state = 'ready'
 ORDER BY t.key, t.seq LIMIT :most;

-- name: level_summary
-- unmerged
-- takes: queue_id bigint, level bigint, minute bigint, now_ms bigint, most bigint
-- Includes idle lanes, for their recent dispatches.
SELECT 1, coalesce(sum(w.is_open), 0), coalesce(sum(CASE WHEN w.is_open = 1 THEN w.count ELSE 0 END), 0),
       coalesce(sum(CASE WHEN w.minute = :minute THEN w.dispatched ELSE 0 END), 0),
       coalesce(sum(CASE WHEN w.minute = :minute THEN w.dispatched_before
                         WHEN w.minute = :minute - 1 THEN w.dispatched ELSE 0 END), 0), count(*)
  FROM (SELECT t.count, t.minute, t.dispatched, t.dispatched_before,
               CASE WHEN t.count > 0 AND (t.state < 3 OR (t.state = 3 AND t.open_at_ms <= :now_ms))
                    THEN 1 ELSE 0 END AS is_open
          FROM lanes t WHERE t.queue_id = :queue_id AND t.level = :level LIMIT :most) w;

-- name: refund_lane
-- takes: queue_id bigint, level bigint, key text, stride bigint, minute bigint
-- Tasks were granted and never delivered. Tag, weight and minute change only under the queue's lock, which is held.
UPDATE lanes
   SET tag = lanes.tag - q.paid, dispatched = lanes.dispatched - q.now,
       dispatched_before = lanes.dispatched_before - q.before
  FROM (SELECT t.queue_id, t.level, t.key,
               sum(CASE WHEN q.stride < {stride t.weight_milli} THEN q.stride ELSE {stride t.weight_milli} END) AS paid,
               sum(CASE WHEN q.minute = t.minute AND t.dispatched > 0 THEN 1 ELSE 0 END) AS now,
               sum(CASE WHEN q.minute = t.minute - 1 AND t.dispatched_before > 0 THEN 1 ELSE 0 END) AS before
          FROM {rows} JOIN lanes t ON t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key
         GROUP BY t.queue_id, t.level, t.key) q
 WHERE lanes.queue_id = q.queue_id AND lanes.level = q.level AND lanes.key = q.key;

-- fragment: or_join_existing_lane
--   ON CONFLICT (queue_id, level, key) DO UPDATE
--      SET wanted_milli = excluded.wanted_milli, count = lanes.count + excluded.count,
--          base = CASE WHEN lanes.count = 0 THEN excluded.base ELSE lanes.base END,
--          state = CASE WHEN lanes.count = 0
--                         OR coalesce(lanes.override_milli, excluded.wanted_milli) <> lanes.weight_milli
--                       THEN 1 ELSE lanes.state END

-- name: join_lane
-- takes: queue_id bigint, level bigint, key text, weight_milli bigint, times bigint
-- coalesce
-- Tasks become ready. An idle lane, or one whose weight changed, becomes NEW: the next claim computes its tag.
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, state, base)
SELECT q.queue_id, q.level, q.key, 0, q.weight_milli, q.weight_milli, q.times, 1, coalesce(c.virtual, 0)
  FROM {rows} LEFT JOIN clocks c ON c.queue_id = q.queue_id AND c.level = q.level WHERE true
{or_join_existing_lane};

-- name: rejoin_lane
-- takes: queue_id bigint, level bigint, key text
-- Like join_lane, for a task that is requeued: it leaves the weight as it is.
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, state, base)
SELECT q.queue_id, q.level, q.key, 0, 1000, 1000, count(*), 1, coalesce(max(c.virtual), 0)
  FROM {rows} LEFT JOIN clocks c ON c.queue_id = q.queue_id AND c.level = q.level
 WHERE true GROUP BY q.queue_id, q.level, q.key ORDER BY 1, 2, 3
ON CONFLICT (queue_id, level, key) DO UPDATE
   SET count = lanes.count + excluded.count,
       base = CASE WHEN lanes.count = 0 THEN excluded.base ELSE lanes.base END,
       state = CASE WHEN lanes.count = 0 THEN 1 ELSE lanes.state END;

-- name: leave_lane
-- takes: queue_id bigint, level bigint, key text
-- Tasks that leave without being dispatched: cancelled with their run.
UPDATE lanes SET count = lanes.count - q.gone
  FROM (SELECT q.queue_id, q.level, q.key, count(*) AS gone FROM {rows} GROUP BY q.queue_id, q.level, q.key) q
 WHERE lanes.queue_id = q.queue_id AND lanes.level = q.level AND lanes.key = q.key;

-- name: settle_lane
-- takes: queue_id bigint, level bigint, key text, tag bigint, rank bigint, weight_milli bigint, override_milli bigint, state bigint, open_at_ms bigint, held_at bigint, taken bigint, minute bigint
-- The count is lowered, not set: enqueues add to it without the queue's lock. A lane is blocked at a lease cap, or
-- ranked by its key's leases, only if the key, whose row this transaction has locked, still has as many.
UPDATE lanes
   SET tag = q.tag, rank = q.rank, weight_milli = q.weight_milli, override_milli = q.override_milli,
       open_at_ms = q.open_at_ms, count = lanes.count - q.taken,
       state = CASE WHEN coalesce(q.override_milli, lanes.wanted_milli) <> q.weight_milli THEN 1
                    WHEN q.held_at IS NOT NULL AND coalesce((
                           SELECT k.running FROM keys k WHERE k.queue_id = q.queue_id AND k.key = q.key), 0) < q.held_at
                    THEN 2
                    WHEN q.rank > 0 AND q.rank <> (2 * coalesce((
                           SELECT k.running FROM keys k WHERE k.queue_id = q.queue_id AND k.key = q.key), 0) + 1)
                         * {stride q.weight_milli}
                    THEN 2 ELSE q.state END,
       dispatched_before = CASE WHEN lanes.minute = q.minute THEN lanes.dispatched_before
                                WHEN lanes.minute = q.minute - 1 THEN lanes.dispatched ELSE 0 END,
       dispatched = CASE WHEN lanes.minute = q.minute THEN lanes.dispatched + q.taken ELSE q.taken END,
       minute = q.minute
  FROM {rows locking lanes}
 WHERE lanes.queue_id = q.queue_id AND lanes.level = q.level AND lanes.key = q.key;

-- name: release_lanes
-- takes: queue_id bigint, key text
-- A lease of the key has ended: lanes that it blocked, or that are ranked by leases, are DIRTY.
UPDATE lanes SET state = 2
  FROM (SELECT DISTINCT q.queue_id, q.key FROM {rows}) q
 WHERE lanes.queue_id = q.queue_id AND lanes.key = q.key AND lanes.level IN ({levels})
   AND lanes.count > 0 AND (lanes.state = 4 OR (lanes.state = 0 AND lanes.rank > 0));

-- name: rerank_other_lanes
-- new snapshot
-- takes: queue_id bigint, key text, level bigint
-- The key was dispatched at one level, so its rank at the others has changed.
UPDATE lanes SET state = 2
  FROM {rows}
 WHERE lanes.queue_id = q.queue_id AND lanes.key = q.key AND lanes.level IN ({levels})
   AND lanes.level <> q.level AND lanes.count > 0 AND lanes.state = 0;

-- name: mark_lanes
-- new snapshot
-- takes: queue_id bigint, key text, state bigint
-- The settings of a key have changed.
UPDATE lanes SET state = CASE WHEN lanes.state = 1 THEN 1 ELSE q.state END
  FROM {rows}
 WHERE lanes.queue_id = q.queue_id AND lanes.key = q.key AND lanes.level IN ({levels})
   AND lanes.count > 0;

-- name: reset_dirty_lanes
-- unmerged
-- takes: queue_id bigint, state bigint
-- The limits of the queue have changed: lanes that are dirty, throttled or blocked get this state.
UPDATE lanes {index lanes_dirty} SET state = :state WHERE queue_id = :queue_id AND count > 0 AND state = 2;

-- name: reset_throttled_lanes
-- unmerged
-- takes: queue_id bigint, state bigint
UPDATE lanes {index lanes_throttled} SET state = :state WHERE queue_id = :queue_id AND count > 0 AND state = 3;

-- name: reset_blocked_lanes
-- unmerged
-- takes: queue_id bigint, state bigint
UPDATE lanes {index lanes_blocked} SET state = :state WHERE queue_id = :queue_id AND count > 0 AND state = 4;

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
-- unmerged
-- takes: minute bigint
SELECT 1 FROM meters WHERE minute < :minute LIMIT 1;

-- name: forget_meters
-- takes: before_minute bigint
DELETE FROM meters WHERE minute < (SELECT max(q.before_minute) FROM {rows});

-- name: idle_lanes
-- unmerged
-- takes: most bigint
-- A level without a clock has dispatched nothing by shares yet: its virtual time is 0.
SELECT 1, l.queue_id, l.level, l.key
  FROM lanes l LEFT JOIN clocks c ON c.queue_id = l.queue_id AND c.level = l.level
 WHERE l.count = 0 AND l.tag <= coalesce(c.virtual, 0) AND l.key <> '' LIMIT :most;

-- name: drop_lane
-- takes: queue_id bigint, level bigint, key text
DELETE FROM lanes
 WHERE count = 0 AND queue_id IN (SELECT q.queue_id FROM {rows}) AND level IN (SELECT q.level FROM {rows})
   AND key IN (SELECT q.key FROM {rows}) AND (queue_id, level, key) IN (SELECT q.queue_id, q.level, q.key FROM {rows})
   AND tag <= coalesce((
         SELECT c.virtual FROM clocks c WHERE c.queue_id = lanes.queue_id AND c.level = lanes.level), 0);
