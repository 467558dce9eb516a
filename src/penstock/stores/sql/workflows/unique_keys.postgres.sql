-- name: reserve_unique_key
-- takes: namespace text, scope text, unique_key text, run_id text, until text, starts bigint, latest_at_ms bigint
WITH made AS (
     INSERT INTO unique_keys ({columns})
     SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.scope, q.unique_key
     ON CONFLICT (namespace, scope, unique_key) DO NOTHING
     RETURNING namespace, scope, unique_key, run_id)
SELECT q.n, made.run_id
  FROM {rows} JOIN made
    ON made.namespace = q.namespace AND made.scope = q.scope AND made.unique_key = q.unique_key;
