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

-- name: insert_request
-- takes: namespace text, workflow_id text, kind text, request_id text, run_id text, number bigint, name text, digest text, receipt text, at_ms bigint
INSERT INTO requests ({columns}) SELECT {q.columns} FROM {rows};
