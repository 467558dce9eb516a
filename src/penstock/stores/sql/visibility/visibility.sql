-- name: forget_run_attributes
-- takes: run_id text
DELETE FROM run_attributes WHERE run_id IN (SELECT q.run_id FROM {rows});

-- name: insert_run_attribute
-- takes: run_id text, name text, value text, namespace text, started_at_ms bigint
INSERT INTO run_attributes ({columns})
SELECT {q.columns} FROM {rows} WHERE true
ON CONFLICT (run_id, name, value) DO NOTHING;

-- name: unindexed_runs
-- unmerged
-- takes: most bigint
SELECT 1, t.run_id FROM unindexed_runs t ORDER BY t.run_id LIMIT :most;

-- name: forget_unindexed
-- takes: run_id text
DELETE FROM unindexed_runs WHERE run_id IN (SELECT q.run_id FROM {rows});

-- name: search_attribute_types
-- takes: namespace text
SELECT q.n, t.name, t.type
  FROM {rows} JOIN search_attributes t ON t.namespace = q.namespace ORDER BY t.name;

-- name: register_search_attribute
-- unmerged
-- takes: namespace text, name text, type text
INSERT INTO search_attributes ({columns})
VALUES ({values})
ON CONFLICT (namespace, name) DO NOTHING
RETURNING 1, name;

-- name: unregister_search_attribute
-- takes: namespace text, name text
DELETE FROM search_attributes
 WHERE (namespace, name) IN (SELECT q.namespace, q.name FROM {rows});

-- name: unregister_search_attributes
-- takes: namespace text
DELETE FROM search_attributes WHERE namespace IN (SELECT q.namespace FROM {rows});
