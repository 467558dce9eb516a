-- name: live_tasks_of_run
-- unmerged
-- takes: run_id text, most bigint
SELECT 1, {task}
  FROM tasks t WHERE t.run_id = :run_id AND t.state <> 'done' AND t.state <> 'cancelled'
 ORDER BY t.task_id LIMIT :most;

-- name: count_open_runs
-- unmerged
-- takes: namespace text, most bigint
SELECT 1, t.status, count(*), CAST(sum(t.last_sequence) AS bigint), max(t.last_sequence),
       count(t.blocked), CAST(sum(CASE WHEN t.task_failures > 0 THEN 1 ELSE 0 END) AS bigint)
  FROM (SELECT r.status, r.last_sequence, r.blocked, r.task_failures FROM runs r
         WHERE r.namespace = :namespace AND coalesce(r.closed_reason, 'open') = 'open' AND r.host <> 'activity'
         ORDER BY r.started_at_ms, r.run_id LIMIT :most) t
 GROUP BY t.status;

-- name: count_closed_runs
-- unmerged
-- takes: namespace text, most bigint
SELECT 1, t.status, count(*), count(t.archived_at_ms)
  FROM (SELECT r.status, r.archived_at_ms FROM runs r
         WHERE r.namespace = :namespace AND r.closed_at_ms IS NOT NULL
         ORDER BY r.closed_at_ms DESC, r.run_id DESC LIMIT :most) t
 GROUP BY t.status;

-- name: failing_runs_by_type
-- unmerged
-- takes: namespace text, most bigint
SELECT 1, t.workflow_type, max(t.task_failures), count(*)
  FROM (SELECT r.workflow_type, r.task_failures FROM runs r
         WHERE r.namespace = :namespace AND r.task_failures > 0 AND r.closed_at_ms IS NULL
         ORDER BY r.run_id LIMIT :most) t
 GROUP BY t.workflow_type ORDER BY max(t.task_failures) DESC, t.workflow_type;

-- name: runs_without_task
-- unmerged
-- takes: namespace text, looked bigint, most bigint
SELECT 1, t.run_id
  FROM (SELECT r.run_id, r.started_at_ms, r.owed, r.open_activities, r.open_timers, r.open_children FROM runs r
         WHERE r.namespace = :namespace AND coalesce(r.closed_reason, 'open') = 'open' AND r.host <> 'activity'
         ORDER BY r.started_at_ms, r.run_id LIMIT :looked) t
 WHERE (t.owed = 1 OR t.open_activities + t.open_timers + t.open_children = 0)
   AND NOT EXISTS (SELECT 1 FROM tasks k
                    WHERE k.run_id = t.run_id AND k.state <> 'done' AND k.state <> 'cancelled')
 ORDER BY t.started_at_ms, t.run_id LIMIT :most;

-- name: overdue_tasks_of_namespace
-- unmerged
-- takes: namespace text, now_ms bigint, most bigint
SELECT 1, {task}
  FROM tasks t
 WHERE t.state = 'leased' AND t.lease_expires_at_ms <= :now_ms AND t.namespace = :namespace
 ORDER BY t.lease_expires_at_ms, t.task_id LIMIT :most;

-- name: overdue_activities_of_namespace
-- unmerged
-- takes: namespace text, now_ms bigint, most bigint
SELECT 1, t.activity_id
  FROM activities t JOIN runs r ON r.run_id = t.run_id
 WHERE t.deadline_at_ms <= :now_ms AND r.namespace = :namespace
 ORDER BY t.deadline_at_ms, t.activity_id LIMIT :most;
