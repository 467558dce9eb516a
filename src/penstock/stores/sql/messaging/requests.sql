-- columns: request_row
--   namespace, workflow_id, kind, request_id, run_id, number, name, digest, receipt, at_ms

-- name: get_request
-- takes: namespace text, workflow_id text, kind text, request_id text
SELECT q.n, {request_row}
  FROM {rows} JOIN requests t ON t.namespace = q.namespace AND t.workflow_id = q.workflow_id
   AND t.kind = q.kind AND t.request_id = q.request_id;

-- name: requests_of_run
-- takes: run_id text
SELECT q.n, {request_row}
  FROM {rows} JOIN requests t ON t.run_id = q.run_id ORDER BY t.number, t.request_id;

-- name: operator_requests_of_run
-- takes: run_id text
SELECT q.n, {request_row}
  FROM {rows} JOIN requests t ON t.run_id = q.run_id
 WHERE t.kind IN ('repair', 'archive', 'rerun', 'reset', 'fork', 'pause', 'resume', 'pause_activity',
                  'resume_activity', 'reset_activity', 'update_activity', 'run_activity')
 ORDER BY t.at_ms, t.request_id;

-- name: deletions
-- The newest first, below a key. Records of deletions are kept under the empty workflow id of their namespace.
-- unmerged
-- takes: namespace text, workflow_id text, before text, most bigint
SELECT 1, {request_row} FROM requests t
 WHERE t.namespace = :namespace AND t.workflow_id = '' AND t.kind = 'deletion' AND t.request_id < :before
   AND (:workflow_id IS NULL OR t.name = :workflow_id)
 ORDER BY t.request_id DESC LIMIT :most;

-- name: insert_request
-- takes: namespace text, workflow_id text, kind text, request_id text, run_id text, number bigint, name text, digest text, receipt text, at_ms bigint
INSERT INTO requests ({columns}) SELECT {q.columns} FROM {rows};
