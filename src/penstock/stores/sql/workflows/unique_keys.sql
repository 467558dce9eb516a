-- name: get_unique_key
-- takes: namespace text, scope text, unique_key text
SELECT q.n, t.run_id, t.until, t.starts, t.latest_at_ms
  FROM {rows} JOIN unique_keys t
    ON t.namespace = q.namespace AND t.scope = q.scope AND t.unique_key = q.unique_key;

-- name: lock_unique_key
-- takes: namespace text, scope text, unique_key text
SELECT q.n, t.run_id, t.until, t.starts, t.latest_at_ms
  FROM {rows} JOIN unique_keys t
    ON t.namespace = q.namespace AND t.scope = q.scope AND t.unique_key = q.unique_key
 ORDER BY t.namespace, t.scope, t.unique_key {lock t};

-- name: reserve_unique_key
-- takes: namespace text, scope text, unique_key text, run_id text, until text, starts bigint, latest_at_ms bigint
-- The first insert takes the key; a concurrent one on another server waits here for its commit.
INSERT INTO unique_keys ({columns})
SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.scope, q.unique_key
ON CONFLICT (namespace, scope, unique_key) DO NOTHING
RETURNING 1, run_id;

-- name: save_unique_key
-- takes: namespace text, scope text, unique_key text, run_id text, until text, starts bigint, latest_at_ms bigint
UPDATE unique_keys SET run_id = q.run_id, until = q.until, starts = q.starts, latest_at_ms = q.latest_at_ms
  FROM {rows}
 WHERE unique_keys.namespace = q.namespace AND unique_keys.scope = q.scope AND unique_keys.unique_key = q.unique_key;

-- name: hand_on_unique_key
-- takes: run_id text, successor text
UPDATE unique_keys SET run_id = q.successor FROM {rows} WHERE unique_keys.run_id = q.run_id;

-- name: forget_unique_key
-- takes: run_id text
DELETE FROM unique_keys WHERE run_id IN (SELECT q.run_id FROM {rows});
