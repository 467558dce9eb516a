-- columns: child
--   parent_run_id, step, namespace, workflow_id, run_id, workflow_type, policy, extra, state

-- name: get_child
-- takes: parent_run_id text, step bigint
SELECT q.n, {child}
  FROM {rows} JOIN children t ON t.parent_run_id = q.parent_run_id AND t.step = q.step;

-- name: open_children
-- takes: parent_run_id text
SELECT q.n, {child}
  FROM {rows} JOIN children t ON t.parent_run_id = q.parent_run_id AND t.state = 'open' ORDER BY t.step;

-- name: all_children
-- takes: parent_run_id text
SELECT q.n, {child}
  FROM {rows} JOIN children t ON t.parent_run_id = q.parent_run_id ORDER BY t.step;

-- name: insert_child
-- takes: parent_run_id text, step bigint, namespace text, workflow_id text, run_id text, workflow_type text, policy text, extra text, state text
INSERT INTO children ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_child
-- takes: parent_run_id text, step bigint, state text
UPDATE children SET state = q.state
  FROM {rows} WHERE children.parent_run_id = q.parent_run_id AND children.step = q.step;
