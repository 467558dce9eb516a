-- name: reserve_instance
-- takes: namespace text, workflow_id text, run_id text, run_count bigint
WITH made AS (
     INSERT INTO instances ({columns})
     SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.workflow_id
     ON CONFLICT (namespace, workflow_id) DO NOTHING
     RETURNING {columns})
SELECT q.n, made.namespace, made.workflow_id, made.run_id, made.run_count
  FROM {rows} JOIN made ON made.namespace = q.namespace AND made.workflow_id = q.workflow_id;
