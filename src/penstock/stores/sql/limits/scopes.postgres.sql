-- name: hold_admission
-- unmerged
SELECT 1, t.stamp FROM admission t WHERE t.id = 1 FOR SHARE;

-- name: try_lock_scope
-- takes: scope_id bigint
SELECT q.n, {scope}, {ended_in_scope}
  FROM {rows} JOIN scopes t ON t.scope_id = q.scope_id ORDER BY t.scope_id FOR UPDATE OF t SKIP LOCKED;

-- name: leases_in_scope
-- unmerged
-- takes: queue_ids text, scope_id text, most bigint
SELECT 1, {task}
  FROM {each :queue_ids} CROSS JOIN LATERAL (
    SELECT w.* FROM tasks w
     WHERE w.queue_id = CAST(each_.value AS bigint) AND w.state = 'leased'
       AND instr(w.scopes, ' ' || :scope_id || ' ') > 0
     ORDER BY w.lease_expires_at_ms LIMIT :most) t
 ORDER BY t.lease_expires_at_ms LIMIT :most;
