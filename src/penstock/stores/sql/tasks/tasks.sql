-- columns: task
--   task_id, queue_id, namespace, task_queue, kind, run_id, activity_id, type, compatibility, level, key,
--   state, available_at_ms, enqueued_at_ms, attempt, lease_owner, lease_token, lease_expires_at_ms,
--   leased_at_ms, poll_request_id, done_token, done_digest, done_outcome, last_error, counted, cost, scopes, claimed, granted_at_ms,
--   update_id, retry_due_at_ms, sticky_worker_id, sticky_until_ms, held_by, seq

-- fragment: may_be_taken_t
--   (t.sticky_until_ms IS NULL OR t.sticky_until_ms <= :now_ms
--     OR instr(:sticky_worker_ids, char(31) || t.sticky_worker_id || char(31)) > 0)

-- fragment: may_be_taken_w
--   (w.sticky_until_ms IS NULL OR w.sticky_until_ms <= :now_ms
--     OR instr(:sticky_worker_ids, char(31) || w.sticky_worker_id || char(31)) > 0)

-- name: get_task
-- takes: task_id text
SELECT q.n, {task}
  FROM {rows} JOIN tasks t ON t.task_id = q.task_id;

-- name: task_times
-- The ids of a run's tasks begin with the id of the run, so that the primary key finds them.
-- unmerged
-- takes: run_id text, most bigint
SELECT 1, t.task_id, t.kind, t.activity_id, t.state, t.available_at_ms, t.enqueued_at_ms, t.granted_at_ms,
       t.held_by
  FROM tasks t WHERE t.task_id > :run_id || '-' AND t.task_id < :run_id || '.' AND t.run_id = :run_id LIMIT :most;

-- name: lock_task
-- takes: task_id text
SELECT q.n, {task}
  FROM {rows} JOIN tasks t ON t.task_id = q.task_id ORDER BY t.task_id {lock t};

-- name: lock_live_tasks
-- takes: run_id text
SELECT q.n, {task}
  FROM {rows} JOIN tasks t ON t.run_id = q.run_id AND t.state <> 'done' AND t.state <> 'cancelled'
 ORDER BY t.task_id {lock t};

-- name: live_tasks_by_state
-- takes: run_id text
SELECT q.n, t.kind, t.state, count(*), min(t.task_queue), min(t.type), min(t.available_at_ms)
  FROM {rows} JOIN tasks t ON t.run_id = q.run_id AND t.state <> 'done' AND t.state <> 'cancelled'
 GROUP BY q.n, t.kind, t.state ORDER BY 1, 2, 3;

-- name: lock_workflow_task
-- takes: run_id text
SELECT q.n, {task}
  FROM {rows} JOIN tasks t
    ON t.run_id = q.run_id AND t.kind = 'workflow' AND t.state <> 'done' AND t.state <> 'cancelled'
 ORDER BY t.task_id {lock t};

-- name: redelivered_tasks
-- Locked, because a report, a cancel or a hand-back may come between this read and the redelivery.
-- takes: namespace text, worker_id text, poll_request_id text
SELECT q.n, {task}
  FROM {rows} JOIN tasks t
    ON t.namespace = q.namespace AND t.lease_owner = q.worker_id AND t.state = 'leased'
   AND t.poll_request_id = q.poll_request_id
 ORDER BY t.seq {lock t};

-- name: tasks_leased_by
-- takes: namespace text, worker_id text
SELECT q.n, t.task_id
  FROM {rows} JOIN tasks t ON t.namespace = q.namespace AND t.lease_owner = q.worker_id AND t.state = 'leased'
 ORDER BY t.task_id;

-- name: held_by_worker
-- The leases of a worker session: running and prefetched.
-- takes: namespace text, worker_id text, kind text, since_ms bigint
SELECT q.n, count(CASE WHEN t.claimed = 0 THEN 1 END), count(CASE WHEN t.claimed > 0 THEN 1 END),
       count(CASE WHEN t.counted = 0 THEN 1 END)
  FROM {rows} JOIN tasks t
    ON t.namespace = q.namespace AND t.lease_owner = q.worker_id AND t.state = 'leased'
   AND t.kind = q.kind AND t.granted_at_ms >= q.since_ms
 GROUP BY q.n;

-- name: notify_at_lease_end
-- takes: namespace text, worker_id text, kind text
UPDATE tasks SET counted = 2
  FROM (SELECT t.task_id FROM {rows} JOIN tasks t
            ON t.namespace = q.namespace AND t.lease_owner = q.worker_id AND t.state = 'leased'
           AND t.kind = q.kind AND t.counted = 0) AS held
 WHERE tasks.task_id = held.task_id;

-- name: leases_on_queue
-- unmerged
-- takes: queue_id bigint, most bigint
SELECT 1, {task}
  FROM tasks t WHERE t.queue_id = :queue_id AND t.state = 'leased' ORDER BY t.lease_expires_at_ms LIMIT :most;

-- name: expired_tasks
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.task_id FROM tasks t
 WHERE t.state = 'leased' AND t.lease_expires_at_ms <= :now_ms ORDER BY t.lease_expires_at_ms LIMIT :most;

-- name: due_tasks
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.task_id FROM tasks t
 WHERE t.state = 'delayed' AND t.available_at_ms <= :now_ms ORDER BY t.available_at_ms LIMIT :most;

-- name: next_due_task
-- unmerged
SELECT 1, min(t.available_at_ms) FROM tasks t WHERE t.state = 'delayed';

-- name: ready_tasks
-- unmerged
-- takes: queue_id bigint, build_id text, sticky_worker_ids text, now_ms bigint
SELECT 1, t.seq FROM tasks t
 WHERE t.queue_id = :queue_id AND t.state = 'ready'
   AND (t.compatibility IS NULL OR t.compatibility = :build_id) AND {may_be_taken_t}
 LIMIT 1;

-- name: ready_queues
-- unmerged
-- takes: queue_ids text
SELECT 1, each_.value FROM {each :queue_ids}
 WHERE EXISTS (SELECT 1 FROM tasks t
                WHERE t.queue_id = CAST(each_.value AS bigint) AND t.state = 'ready' LIMIT 1 OFFSET 0);

-- name: ready_tasks_of_routes
-- unmerged
-- takes: queue_id bigint, routes text, sticky_worker_ids text, now_ms bigint
SELECT 1, each_.value FROM {each :routes}
 WHERE EXISTS (SELECT 1 FROM tasks t
                WHERE t.queue_id = :queue_id AND t.route = each_.value AND t.state = 'ready'
                  AND {may_be_taken_t} LIMIT 1 OFFSET 0);

-- name: sticky_tasks
-- unmerged
-- takes: queue_id bigint, now_ms bigint
SELECT 1, t.sticky_worker_id, min(t.sticky_until_ms)
  FROM tasks t {index tasks_sticky}
 WHERE t.queue_id = :queue_id AND t.state = 'ready' AND t.sticky_worker_id IS NOT NULL
   AND t.sticky_until_ms > :now_ms
 GROUP BY t.sticky_worker_id;

-- name: save_task
-- Before insert_task: a run's workflow task must have ended before the next one is inserted.
-- takes: task_id text, state text, available_at_ms bigint, attempt bigint, lease_owner text, lease_token text, lease_expires_at_ms bigint, leased_at_ms bigint, poll_request_id text, done_token text, done_digest text, done_outcome text, last_error text, counted bigint, scopes text, claimed bigint, granted_at_ms bigint, retry_due_at_ms bigint, sticky_worker_id text, sticky_until_ms bigint, held_by text
UPDATE tasks
   SET state = q.state, available_at_ms = q.available_at_ms, attempt = q.attempt, lease_owner = q.lease_owner,
       lease_token = q.lease_token, lease_expires_at_ms = q.lease_expires_at_ms, leased_at_ms = q.leased_at_ms,
       poll_request_id = q.poll_request_id, done_token = q.done_token, done_digest = q.done_digest,
       done_outcome = q.done_outcome, last_error = q.last_error,
       counted = q.counted, scopes = q.scopes, claimed = q.claimed,
       granted_at_ms = q.granted_at_ms, retry_due_at_ms = q.retry_due_at_ms,
       sticky_worker_id = q.sticky_worker_id, sticky_until_ms = q.sticky_until_ms,
       held_by = q.held_by
  FROM {rows} WHERE tasks.task_id = q.task_id;

-- name: insert_task
-- takes: task_id text, queue_id bigint, namespace text, task_queue text, kind text, run_id text, activity_id text, type text, compatibility text, route text, level bigint, key text, state text, available_at_ms bigint, enqueued_at_ms bigint, attempt bigint, cost bigint, update_id text, retry_due_at_ms bigint, sticky_worker_id text, sticky_until_ms bigint
INSERT INTO tasks ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.n;
