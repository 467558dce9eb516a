-- name: create_change_set
-- takes: change_set_id text, namespace text, state text, created_at_ms bigint, due_at_ms bigint, document text
INSERT INTO change_sets ({columns}) SELECT {q.columns} FROM {rows} WHERE true;

-- name: save_change_set
-- takes: change_set_id text, state text, due_at_ms bigint, document text
UPDATE change_sets SET state = q.state, due_at_ms = q.due_at_ms, document = q.document
  FROM {rows} WHERE change_sets.change_set_id = q.change_set_id;

-- name: get_change_set
-- takes: namespace text, change_set_id text
SELECT q.n, t.document
  FROM {rows} JOIN change_sets t ON t.change_set_id = q.change_set_id AND t.namespace = q.namespace;

-- name: lock_change_set
-- takes: change_set_id text
SELECT q.n, t.document
  FROM {rows} JOIN change_sets t ON t.change_set_id = q.change_set_id ORDER BY t.change_set_id {lock t};

-- name: page_change_sets
-- unmerged
-- takes: namespace text, state text, before_ms bigint, before_id text, most bigint
SELECT 1, t.document FROM change_sets t
 WHERE t.namespace = :namespace AND (:state IS NULL OR t.state = :state)
   AND (t.created_at_ms < :before_ms OR (t.created_at_ms = :before_ms AND t.change_set_id < :before_id))
 ORDER BY t.created_at_ms DESC, t.change_set_id DESC LIMIT :most;

-- name: due_change_sets
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.change_set_id FROM change_sets t
 WHERE t.due_at_ms <= :now_ms ORDER BY t.due_at_ms, t.change_set_id LIMIT :most;
