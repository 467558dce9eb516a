-- columns: activity
--   activity_id, run_id, task_id, step, activity_type, task_queue, arguments, retry, timeouts, extra,
--   scheduled_at_ms, status, attempt, started_at_ms, heartbeat_at_ms, heartbeat_details, deadline_at_ms,
--   closed_at_ms, worker_deaths, quarantined

-- name: get_activity
-- takes: activity_id text
SELECT q.n, {activity}
  FROM {rows} JOIN activities t ON t.activity_id = q.activity_id;

-- name: open_activities
-- takes: run_id text
SELECT q.n, {activity}
  FROM {rows} JOIN activities t ON t.run_id = q.run_id AND t.closed_at_ms IS NULL
 ORDER BY t.step;

-- name: overdue_activities
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.activity_id FROM activities t WHERE t.deadline_at_ms <= :now_ms ORDER BY t.deadline_at_ms LIMIT :most;

-- name: insert_activity
-- takes: activity_id text, run_id text, task_id text, step bigint, activity_type text, task_queue text, arguments text, retry text, timeouts text, extra text, scheduled_at_ms bigint, status text, attempt bigint, started_at_ms bigint, heartbeat_at_ms bigint, heartbeat_details text, deadline_at_ms bigint, closed_at_ms bigint, worker_deaths bigint, quarantined bigint
INSERT INTO activities ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_activity
-- takes: activity_id text, status text, attempt bigint, started_at_ms bigint, heartbeat_at_ms bigint, heartbeat_details text, deadline_at_ms bigint, closed_at_ms bigint, worker_deaths bigint, quarantined bigint
UPDATE activities
   SET status = q.status, attempt = q.attempt, started_at_ms = q.started_at_ms, heartbeat_at_ms = q.heartbeat_at_ms,
       heartbeat_details = q.heartbeat_details, deadline_at_ms = q.deadline_at_ms, closed_at_ms = q.closed_at_ms,
       worker_deaths = q.worker_deaths, quarantined = q.quarantined
  FROM {rows} WHERE activities.activity_id = q.activity_id;

-- name: replace_activity_arguments
-- takes: activity_id text, arguments text, scheduled_at_ms bigint
UPDATE activities SET arguments = q.arguments, scheduled_at_ms = q.scheduled_at_ms
  FROM {rows} WHERE activities.activity_id = q.activity_id;

-- name: change_activity
-- takes: activity_id text, task_id text, task_queue text, retry text, timeouts text
UPDATE activities
   SET task_id = q.task_id, task_queue = q.task_queue, retry = q.retry, timeouts = q.timeouts
  FROM {rows} WHERE activities.activity_id = q.activity_id;
