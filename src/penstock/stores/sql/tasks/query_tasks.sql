-- columns: query
--   query_id, namespace, task_queue, run_id, workflow_type, compatibility, name, arguments, created_at_ms,
--   expires_at_ms, state, attempt, lease_owner, lease_expires_at_ms, outcome, kind

-- name: get_query
-- takes: query_id text
SELECT q.n, {query}
  FROM {rows} JOIN query_tasks t ON t.query_id = q.query_id;

-- name: lock_query
-- takes: query_id text
SELECT q.n, {query}
  FROM {rows} JOIN query_tasks t ON t.query_id = q.query_id ORDER BY t.query_id {lock t};

-- name: count_pending_queries
-- takes: namespace text, task_queue text, kind text, now_ms bigint
SELECT q.n, count(t.query_id)
  FROM {rows} LEFT JOIN query_tasks t
    ON t.namespace = q.namespace AND t.task_queue = q.task_queue AND t.kind = q.kind AND t.state = 'pending'
   AND t.expires_at_ms > q.now_ms
 GROUP BY q.n;

-- name: lock_next_query
-- unmerged
-- takes: namespace text, task_queue text, kind text, types text, build_id text, now_ms bigint
SELECT 1, {query}
  FROM query_tasks t
 WHERE t.namespace = :namespace AND t.task_queue = :task_queue AND t.kind = :kind AND t.state = 'pending'
   AND t.expires_at_ms > :now_ms
   AND (:types = '' OR instr(:types, char(31) || t.workflow_type || char(31)) > 0)
   AND (t.compatibility IS NULL OR t.compatibility = :build_id)
 ORDER BY t.created_at_ms, t.query_id LIMIT 1 {lock t};

-- name: expired_queries
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.query_id FROM query_tasks t
 WHERE t.expires_at_ms <= :now_ms OR (t.state = 'leased' AND t.lease_expires_at_ms <= :now_ms)
 LIMIT :most;

-- name: insert_query
-- takes: query_id text, namespace text, task_queue text, run_id text, workflow_type text, compatibility text, name text, arguments text, created_at_ms bigint, expires_at_ms bigint, state text, attempt bigint, lease_owner text, lease_expires_at_ms bigint, outcome text, kind text
INSERT INTO query_tasks ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_query
-- takes: query_id text, state text, attempt bigint, lease_owner text, lease_expires_at_ms bigint, outcome text
UPDATE query_tasks
   SET state = q.state, attempt = q.attempt, lease_owner = q.lease_owner,
       lease_expires_at_ms = q.lease_expires_at_ms, outcome = q.outcome
  FROM {rows} WHERE query_tasks.query_id = q.query_id;

-- name: delete_query
-- takes: query_id text
DELETE FROM query_tasks WHERE query_id IN (SELECT q.query_id FROM {rows});
