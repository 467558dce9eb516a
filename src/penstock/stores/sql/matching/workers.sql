-- columns: worker
--   namespace, worker_id, task_queue, runtime, sdk_version, build_id, workflow_types, activity_types,
--   fingerprints, workflow_slots, activity_slots, status, advertised, task_slots, process_metrics,
--   heartbeat_interval_s, registered_at_ms, heartbeat_at_ms, updated_at_ms, session_at_ms

-- name: get_worker
-- takes: namespace text, worker_id text
SELECT q.n, {worker}
  FROM {rows} JOIN workers t ON t.namespace = q.namespace AND t.worker_id = q.worker_id;

-- name: list_workers
-- takes: namespace text, task_queue text
-- Of a namespace or one queue, latest heartbeat first.
SELECT q.n, {worker}
  FROM {rows} JOIN workers t
    ON t.namespace = q.namespace AND (q.task_queue IS NULL OR t.task_queue = q.task_queue)
 ORDER BY t.heartbeat_at_ms DESC, t.worker_id;

-- name: save_worker
-- takes: namespace text, worker_id text, task_queue text, runtime text, sdk_version text, build_id text, workflow_types text, activity_types text, fingerprints text, workflow_slots bigint, activity_slots bigint, status text, advertised text, task_slots text, process_metrics text, heartbeat_interval_s bigint, registered_at_ms bigint, heartbeat_at_ms bigint, updated_at_ms bigint, session_at_ms bigint
INSERT INTO workers ({columns})
SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.worker_id
ON CONFLICT (namespace, worker_id) DO UPDATE
   SET task_queue = excluded.task_queue, runtime = excluded.runtime, sdk_version = excluded.sdk_version,
       build_id = excluded.build_id, workflow_types = excluded.workflow_types,
       activity_types = excluded.activity_types, fingerprints = excluded.fingerprints,
       workflow_slots = excluded.workflow_slots, activity_slots = excluded.activity_slots,
       status = excluded.status, advertised = excluded.advertised, task_slots = excluded.task_slots,
       process_metrics = excluded.process_metrics, heartbeat_interval_s = excluded.heartbeat_interval_s,
       registered_at_ms = excluded.registered_at_ms, heartbeat_at_ms = excluded.heartbeat_at_ms,
       updated_at_ms = excluded.updated_at_ms, session_at_ms = excluded.session_at_ms;

-- name: touch_worker
-- takes: namespace text, worker_id text, heartbeat_at_ms bigint
-- Timestamps of a worker never decrease, in whatever order its heartbeats arrive.
UPDATE workers SET heartbeat_at_ms = q.heartbeat_at_ms
  FROM {rows}
 WHERE workers.namespace = q.namespace AND workers.worker_id = q.worker_id
   AND workers.heartbeat_at_ms < q.heartbeat_at_ms;

-- name: mark_worker
-- takes: namespace text, worker_id text, status text, updated_at_ms bigint
UPDATE workers SET status = q.status, updated_at_ms = q.updated_at_ms
  FROM {rows} WHERE workers.namespace = q.namespace AND workers.worker_id = q.worker_id;

-- name: record_heartbeat
-- takes: namespace text, worker_id text, status text, workflow_slots bigint, activity_slots bigint, task_slots text, process_metrics text, heartbeat_interval_s bigint, heartbeat_at_ms bigint
UPDATE workers
   SET status = q.status, workflow_slots = q.workflow_slots, activity_slots = q.activity_slots,
       task_slots = coalesce(q.task_slots, workers.task_slots),
       process_metrics = coalesce(q.process_metrics, workers.process_metrics),
       heartbeat_interval_s = coalesce(q.heartbeat_interval_s, workers.heartbeat_interval_s),
       heartbeat_at_ms = CASE WHEN q.heartbeat_at_ms > workers.heartbeat_at_ms THEN q.heartbeat_at_ms
                              ELSE workers.heartbeat_at_ms END,
       updated_at_ms = q.heartbeat_at_ms
  FROM {rows} WHERE workers.namespace = q.namespace AND workers.worker_id = q.worker_id;

-- name: silent_workers
-- unmerged
-- takes: since_ms bigint, most bigint
SELECT 1, t.namespace, t.worker_id FROM workers t
 WHERE t.heartbeat_at_ms < :since_ms ORDER BY t.heartbeat_at_ms LIMIT :most;

-- name: delete_worker
-- takes: namespace text, worker_id text
DELETE FROM workers WHERE (namespace, worker_id) IN (SELECT q.namespace, q.worker_id FROM {rows});
