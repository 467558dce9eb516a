-- columns: namespace
--   name, description, retention_days, status, external_storage, created_at_ms, updated_at_ms, fair

-- name: get_namespace
-- takes: name text
SELECT q.n, {namespace}
  FROM {rows} JOIN namespaces t ON t.name = q.name;

-- name: list_namespaces
-- takes: every bigint
SELECT q.n, {namespace}
  FROM {rows} JOIN namespaces t ON true ORDER BY t.name;

-- name: namespace_in_use
-- takes: name text
SELECT q.n, CASE WHEN EXISTS (SELECT 1 FROM runs r WHERE r.namespace = q.name)
               OR EXISTS (SELECT 1 FROM workers w WHERE w.namespace = q.name)
               OR EXISTS (SELECT 1 FROM schedules s WHERE s.namespace = q.name AND s.status <> 'deleted')
               OR EXISTS (SELECT 1 FROM queues u WHERE u.namespace = q.name AND u.cleared = 0) THEN 1 ELSE 0 END
  FROM {rows};

-- name: reserve_namespace
-- unmerged
-- takes: name text, description text, retention_days bigint, status text, external_storage text, created_at_ms bigint, updated_at_ms bigint, fair bigint
INSERT INTO namespaces ({columns})
VALUES ({values})
ON CONFLICT (name) DO NOTHING
RETURNING 1, name;

-- name: save_namespace
-- takes: name text, description text, retention_days bigint, status text, external_storage text, created_at_ms bigint, updated_at_ms bigint, fair bigint
UPDATE namespaces
   SET description = q.description, retention_days = q.retention_days, status = q.status,
       external_storage = q.external_storage, updated_at_ms = q.updated_at_ms, fair = q.fair
  FROM {rows} WHERE namespaces.name = q.name;

-- name: delete_namespace
-- takes: name text
DELETE FROM namespaces WHERE name IN (SELECT q.name FROM {rows});

-- name: namespace_has_runs
-- takes: name text
SELECT q.n, CASE WHEN EXISTS (SELECT 1 FROM runs r WHERE r.namespace = q.name) THEN 1 ELSE 0 END
  FROM {rows};

-- name: clear_namespace_workers
-- unmerged
-- takes: name text
DELETE FROM workers WHERE namespace = :name RETURNING 1, worker_id;

-- name: clear_namespace_cohorts
-- unmerged
-- takes: name text
DELETE FROM cohorts WHERE namespace = :name;

-- name: clear_namespace_change_sets
-- unmerged
-- takes: name text
DELETE FROM change_sets WHERE namespace = :name;

-- name: clear_namespace_simulations
-- unmerged
-- takes: name text
DELETE FROM simulations WHERE namespace = :name;

-- name: clear_queue_lanes
-- unmerged
-- takes: queue_id bigint
DELETE FROM lanes WHERE queue_id = :queue_id;

-- name: clear_queue_clocks
-- unmerged
-- takes: queue_id bigint
DELETE FROM clocks WHERE queue_id = :queue_id;

-- name: clear_queue_meters
-- unmerged
-- takes: queue_id bigint
DELETE FROM meters WHERE queue_id = :queue_id;

-- name: clear_queue_keys
-- unmerged
-- takes: queue_id bigint
DELETE FROM keys WHERE queue_id = :queue_id;

-- name: clear_queue_policy_changes
-- unmerged
-- takes: queue_id bigint
DELETE FROM policy_changes WHERE queue_id = :queue_id;

-- name: clear_queue_retry_budgets
-- unmerged
-- takes: queue_id bigint
DELETE FROM retry_budgets WHERE queue_id = :queue_id;

-- name: clear_queue_samples
-- unmerged
-- takes: queue_id bigint
DELETE FROM samples WHERE queue_id = :queue_id;

-- name: clear_namespace_queues
-- The rows stay, because servers cache their ids.
-- unmerged
-- takes: name text
UPDATE queues
   SET cleared = 1, paused = 0, policy = NULL, worker_rate_micro = NULL, worker_rate_by = NULL,
       worker_rate_at_ms = NULL, worker_rate_until_ms = NULL, worker_rate_burst_ms = NULL,
       worker_rate_conflict = NULL, paid_until_ns = 0, aging_turn = 0, dispatched = NULL
 WHERE namespace = :name
RETURNING 1, queue_id;
