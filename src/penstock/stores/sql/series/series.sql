-- name: sampled_at
-- takes: clock_id bigint
SELECT q.n, t.at_ms FROM {rows} JOIN series_steps t ON t.clock_id = q.clock_id;

-- name: advance_series
-- One transaction takes a step; a second one that wants it finds it taken.
-- unmerged
-- takes: clock_id bigint, at_ms bigint
INSERT INTO series_steps (clock_id, at_ms) SELECT CAST(:clock_id AS bigint), CAST(:at_ms AS bigint) WHERE true
ON CONFLICT (clock_id) DO UPDATE SET at_ms = excluded.at_ms WHERE series_steps.at_ms < excluded.at_ms
RETURNING 1, at_ms;

-- name: active_queues
-- unmerged
-- takes: minute bigint, most bigint
SELECT 1, t.queue_id, t.namespace, t.name, t.kind FROM queues t
 WHERE EXISTS (SELECT 1 FROM meters m WHERE m.queue_id = t.queue_id AND m.minute >= :minute - 1)
    OR EXISTS (SELECT 1 FROM tasks r WHERE r.queue_id = t.queue_id AND r.state = 'ready')
    OR EXISTS (SELECT 1 FROM tasks l WHERE l.queue_id = t.queue_id AND l.state = 'leased')
 ORDER BY t.queue_id LIMIT :most;

-- name: meters_from
-- unmerged
-- takes: queue_id bigint, minute bigint
SELECT 1, m.minute, m.added, m.dispatched FROM meters m
 WHERE m.queue_id = :queue_id AND m.minute >= :minute ORDER BY m.minute;

-- name: sample_at
-- takes: queue_id bigint, step_s bigint, slot bigint
SELECT q.n, t.sample
  FROM {rows} JOIN samples t ON t.queue_id = q.queue_id AND t.step_s = q.step_s AND t.slot = q.slot;

-- name: latest_sample
-- takes: queue_id bigint, step_s bigint
SELECT q.n, t.sample
  FROM {rows} JOIN samples t ON t.queue_id = q.queue_id AND t.step_s = q.step_s
   AND t.at_ms = (SELECT max(s.at_ms) FROM samples s WHERE s.queue_id = q.queue_id AND s.step_s = q.step_s);

-- name: samples_between
-- unmerged
-- takes: queue_id bigint, step_s bigint, from_ms bigint, to_ms bigint
SELECT 1, t.sample FROM samples t
 WHERE t.queue_id = :queue_id AND t.step_s = :step_s AND t.at_ms >= :from_ms AND t.at_ms <= :to_ms ORDER BY t.at_ms;

-- name: save_sample
-- takes: queue_id bigint, step_s bigint, slot bigint, at_ms bigint, sample text
INSERT INTO samples ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.queue_id, q.step_s, q.slot
ON CONFLICT (queue_id, step_s, slot) DO UPDATE SET at_ms = excluded.at_ms, sample = excluded.sample;
