-- name: hold_admission
-- unmerged
SELECT 1, t.stamp FROM admission t WHERE t.id = 1 FOR SHARE;

-- name: try_lock_scope
-- takes: scope_id bigint
SELECT q.n, {scope}, {ended_in_scope}
  FROM {rows} JOIN scopes t ON t.scope_id = q.scope_id ORDER BY t.scope_id FOR UPDATE OF t SKIP LOCKED;
