-- columns: timer
--   timer_id, run_id, step, delay_s, fire_at_ms, extra, state

-- name: get_timer
-- takes: timer_id text
SELECT q.n, {timer}
  FROM {rows} JOIN timers t ON t.timer_id = q.timer_id;

-- name: open_timers
-- takes: run_id text
SELECT q.n, {timer}
  FROM {rows} JOIN timers t ON t.run_id = q.run_id AND t.state = 'open' ORDER BY t.step;

-- name: due_timers
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.timer_id FROM timers t
 WHERE t.state = 'open' AND t.fire_at_ms <= :now_ms ORDER BY t.fire_at_ms, t.timer_id LIMIT :most;

-- name: next_timer
-- unmerged
SELECT 1, min(t.fire_at_ms) FROM timers t WHERE t.state = 'open';

-- name: insert_timer
-- takes: timer_id text, run_id text, step bigint, delay_s bigint, fire_at_ms bigint, extra text, state text
INSERT INTO timers ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_timer
-- takes: timer_id text, state text
UPDATE timers SET state = q.state FROM {rows} WHERE timers.timer_id = q.timer_id;
