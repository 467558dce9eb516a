-- columns: update_row
--   update_id, run_id, namespace, workflow_id, number, name, arguments, request_id, status, outcome,
--   accepted_at_ms, closed_at_ms

-- name: get_update
-- takes: update_id text
SELECT q.n, {update_row}
  FROM {rows} JOIN updates t ON t.update_id = q.update_id;

-- name: next_accepted_update
-- takes: run_id text
SELECT q.n, {update_row}
  FROM {rows} JOIN updates t ON t.run_id = q.run_id AND t.status = 'accepted'
   AND t.number = (SELECT min(u.number) FROM updates u WHERE u.run_id = q.run_id AND u.status = 'accepted');

-- name: accepted_updates
-- takes: run_id text
SELECT q.n, {update_row}
  FROM {rows} JOIN updates t ON t.run_id = q.run_id AND t.status = 'accepted' ORDER BY t.number;

-- name: all_updates
-- takes: run_id text
SELECT q.n, {update_row}
  FROM {rows} JOIN updates t ON t.run_id = q.run_id ORDER BY t.number;

-- name: latest_updates
-- unmerged
-- takes: run_id text, most bigint
SELECT 1, {update_row}
  FROM updates t WHERE t.run_id = :run_id ORDER BY t.number DESC LIMIT :most;

-- name: insert_update
-- takes: update_id text, run_id text, namespace text, workflow_id text, number bigint, name text, arguments text, request_id text, status text, outcome text, accepted_at_ms bigint, closed_at_ms bigint
INSERT INTO updates ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_update
-- takes: update_id text, run_id text, status text, outcome text, closed_at_ms bigint
UPDATE updates SET run_id = q.run_id, status = q.status, outcome = q.outcome, closed_at_ms = q.closed_at_ms
  FROM {rows} WHERE updates.update_id = q.update_id;
