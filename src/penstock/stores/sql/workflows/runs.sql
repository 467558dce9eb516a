-- columns: run
--   run_id, namespace, workflow_id, run_number, host, workflow_type, task_queue, business_key, level, key,
--   weight_milli, compatibility, input, memo, search_attributes, execution_timeout_s, run_timeout_s,
--   execution_deadline_at_ms, run_deadline_at_ms, started_at_ms, start_key, status, closed_reason, output,
--   closed_at_ms, last_progress_at_ms, deadline_at_ms, last_sequence, last_step, last_task,
--   open_activities, open_timers, buffered, task_failures, task_error, lineage, open_children, open_updates,
--   unseen_signals, last_request, owed, waits, blocked, archived_at_ms

-- name: reserve_instance
-- takes: namespace text, workflow_id text, run_id text, run_count bigint
-- The first insert reserves the id; a concurrent one on another server waits here for its commit.
INSERT INTO instances ({columns})
SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.workflow_id
ON CONFLICT (namespace, workflow_id) DO NOTHING
RETURNING 1, namespace, workflow_id, run_id, run_count;

-- name: get_instance
-- takes: namespace text, workflow_id text
SELECT q.n, t.namespace, t.workflow_id, t.run_id, t.run_count
  FROM {rows} JOIN instances t ON t.namespace = q.namespace AND t.workflow_id = q.workflow_id;

-- name: get_named_run
-- takes: namespace text, workflow_id text, run_id text
SELECT q.n, i.namespace, i.workflow_id, i.run_id, i.run_count, {run}
  FROM {rows} JOIN instances i ON i.namespace = q.namespace AND i.workflow_id = q.workflow_id
  LEFT JOIN runs t ON t.run_id = coalesce(q.run_id, i.run_id);

-- name: get_run
-- takes: run_id text
SELECT q.n, {run}
  FROM {rows} JOIN runs t ON t.run_id = q.run_id;

-- name: lock_run
-- takes: run_id text
SELECT q.n, {run}
  FROM {rows} JOIN runs t ON t.run_id = q.run_id ORDER BY t.run_id {lock t};

-- name: runs_of_instance
-- unmerged
-- takes: namespace text, workflow_id text, after_ms bigint, after_id text, most bigint
SELECT 1, {run}
  FROM runs t
 WHERE t.namespace = :namespace AND t.workflow_id = :workflow_id
   AND (t.started_at_ms, t.run_id) > (:after_ms, :after_id)
 ORDER BY t.started_at_ms, t.run_id LIMIT :most;

-- name: overdue_runs
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.run_id FROM runs t WHERE t.deadline_at_ms <= :now_ms ORDER BY t.deadline_at_ms LIMIT :most;

-- name: insert_run
-- takes: run_id text, namespace text, workflow_id text, run_number bigint, host text, workflow_type text, task_queue text, business_key text, level bigint, key text, weight_milli bigint, compatibility text, input text, memo text, search_attributes text, execution_timeout_s bigint, run_timeout_s bigint, execution_deadline_at_ms bigint, run_deadline_at_ms bigint, started_at_ms bigint, start_key text, status text, closed_reason text, output text, closed_at_ms bigint, last_progress_at_ms bigint, deadline_at_ms bigint, last_sequence bigint, last_step bigint, last_task bigint, open_activities bigint, open_timers bigint, buffered bigint, task_failures bigint, task_error text, lineage text, open_children bigint, open_updates bigint, unseen_signals bigint, last_request bigint, owed bigint, waits text, blocked text, archived_at_ms bigint
INSERT INTO runs ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_run
-- takes: run_id text, status text, closed_reason text, output text, closed_at_ms bigint, last_progress_at_ms bigint, deadline_at_ms bigint, last_sequence bigint, last_step bigint, last_task bigint, open_activities bigint, open_timers bigint, buffered bigint, task_failures bigint, task_error text, open_children bigint, open_updates bigint, unseen_signals bigint, last_request bigint, owed bigint, waits text, blocked text, archived_at_ms bigint
UPDATE runs
   SET status = q.status, closed_reason = q.closed_reason, output = q.output, closed_at_ms = q.closed_at_ms,
       last_progress_at_ms = q.last_progress_at_ms, deadline_at_ms = q.deadline_at_ms,
       last_sequence = q.last_sequence, last_step = q.last_step, last_task = q.last_task,
       open_activities = q.open_activities, open_timers = q.open_timers, buffered = q.buffered,
       task_failures = q.task_failures, task_error = q.task_error, open_children = q.open_children,
       open_updates = q.open_updates, unseen_signals = q.unseen_signals, last_request = q.last_request,
       owed = q.owed, waits = q.waits, blocked = q.blocked, archived_at_ms = q.archived_at_ms
  FROM {rows} WHERE runs.run_id = q.run_id;

-- name: save_run_attributes
-- takes: run_id text, memo text, search_attributes text
UPDATE runs SET memo = q.memo, search_attributes = q.search_attributes FROM {rows} WHERE runs.run_id = q.run_id;

-- name: replace_run_input
-- takes: run_id text, input text, execution_deadline_at_ms bigint, run_deadline_at_ms bigint
UPDATE runs SET input = q.input, execution_deadline_at_ms = q.execution_deadline_at_ms,
       run_deadline_at_ms = q.run_deadline_at_ms
  FROM {rows} WHERE runs.run_id = q.run_id;

-- name: release_instance
-- takes: namespace text, workflow_id text, run_id text
DELETE FROM instances WHERE (namespace, workflow_id, run_id) IN (SELECT q.namespace, q.workflow_id, q.run_id FROM {rows});

-- name: succeed_instance
-- takes: namespace text, workflow_id text, run_id text, run_count bigint
UPDATE instances SET run_id = q.run_id, run_count = q.run_count
  FROM {rows} WHERE instances.namespace = q.namespace AND instances.workflow_id = q.workflow_id;

-- name: blocked_runs
-- unmerged
-- takes: namespace text, task_queue text, most bigint
SELECT 1, t.run_id FROM runs t
 WHERE t.namespace = :namespace AND t.task_queue = :task_queue AND t.blocked IS NOT NULL
 ORDER BY t.run_id LIMIT :most;

-- name: page_runs
-- unmerged
-- takes: namespace text, host text, type text, bucket text, pattern text, before_ms bigint, before_id text, most bigint
SELECT 1, {run}
  FROM runs t
 WHERE t.namespace = :namespace AND t.host = :host AND (:type IS NULL OR t.workflow_type = :type)
   AND (:bucket IS NULL
        OR (:bucket = 'running' AND t.status IN ('pending', 'running', 'waiting'))
        OR (:bucket = 'completed' AND t.status = 'completed')
        OR (:bucket = 'failed' AND t.status IN ('failed', 'cancelled', 'terminated'))
        OR (:bucket IN ('cancelled', 'terminated') AND t.status = :bucket))
   AND (:pattern IS NULL OR instr(t.workflow_id, :pattern) > 0 OR instr(coalesce(t.business_key, ''), :pattern) > 0)
   AND (:before_ms IS NULL OR (t.started_at_ms, t.run_id) < (:before_ms, :before_id))
 ORDER BY t.started_at_ms DESC, t.run_id DESC LIMIT :most;
