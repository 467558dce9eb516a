-- columns: run_place
--   run_id, scope_id, waiting, level, ready_at_ms, seq

-- name: run_policy
-- takes: name text
SELECT q.n, t.scope_id, t.policy
  FROM {rows} JOIN scopes t ON t.name = q.name;

-- name: run_policies_of
-- unmerged
-- takes: first text, beyond text
-- The scopes of a namespace that have a policy of their own: their names lie in a range.
SELECT 1, t.scope_id, t.name, t.policy FROM scopes t
 WHERE t.name >= :first AND t.name < :beyond AND t.policy IS NOT NULL ORDER BY t.name;

-- name: next_capped_namespace
-- unmerged
-- takes: after text
SELECT 1, t.name FROM scopes t
 WHERE t.name > :after AND t.name >= 'runs:' AND t.name < 'runs;' AND t.policy IS NOT NULL AND instr(t.name, '/') = 0
 ORDER BY t.name LIMIT 1;

-- name: hold_scope
-- takes: scope_id bigint
-- Unlike lock_scope, it separates operations that share a transaction: the second runs in the next one.
SELECT q.n, t.scope_id
  FROM {rows} JOIN scopes t ON t.scope_id = q.scope_id ORDER BY t.scope_id {lock t};

-- name: has_line
-- takes: scope_id bigint
SELECT q.n, EXISTS (SELECT 1 FROM run_places t WHERE t.scope_id = q.scope_id AND t.waiting = 1)
  FROM {rows} WHERE true;

-- name: run_line
-- unmerged
-- takes: scope_id bigint, most bigint
SELECT 1, {run_place} FROM run_places t
 WHERE t.scope_id = :scope_id AND t.waiting = 1 ORDER BY t.level, t.seq LIMIT :most;

-- name: run_holders
-- unmerged
-- takes: scope_id bigint, most bigint
SELECT 1, {run_place} FROM run_places t
 WHERE t.scope_id = :scope_id AND t.waiting = 0 ORDER BY t.seq LIMIT :most;

-- name: count_places
-- takes: scope_id bigint
SELECT q.n, (SELECT count(*) FROM run_places t WHERE t.scope_id = q.scope_id AND t.waiting = 0),
       (SELECT count(*) FROM run_places t WHERE t.scope_id = q.scope_id AND t.waiting = 1)
  FROM {rows} WHERE true;

-- name: count_ahead
-- unmerged
-- takes: scope_id bigint, level bigint, seq bigint
SELECT 1, t.level, count(*) FROM run_places t
 WHERE t.scope_id = :scope_id AND t.waiting = 1 AND (t.level, t.seq) < (:level, :seq)
 GROUP BY t.level ORDER BY t.level;

-- name: waiting_place
-- takes: run_id text
SELECT q.n, {run_place}
  FROM {rows} JOIN run_places t ON t.run_id = q.run_id AND t.waiting = 1;

-- name: next_line
-- unmerged
-- takes: after bigint
SELECT 1, min(t.scope_id) FROM run_places t WHERE t.waiting = 1 AND t.scope_id > :after;

-- name: standing_lines
-- unmerged
-- takes: first text, beyond text
SELECT 1, t.scope_id FROM scopes t
 WHERE t.name >= :first AND t.name < :beyond
   AND EXISTS (SELECT 1 FROM run_places p WHERE p.scope_id = t.scope_id AND p.waiting = 1)
 ORDER BY t.scope_id;

-- name: open_runs
-- unmerged
-- takes: namespace text, after_ms bigint, after_id text, most bigint
SELECT 1, t.run_id, t.started_at_ms FROM runs t
 WHERE t.namespace = :namespace AND t.host <> 'activity' AND coalesce(t.closed_reason, 'open') = 'open'
   AND (t.started_at_ms, t.run_id) > (:after_ms, :after_id)
 ORDER BY t.started_at_ms, t.run_id LIMIT :most;

-- name: drop_places
-- takes: run_id text
DELETE FROM run_places WHERE run_id IN (SELECT q.run_id FROM {rows});

-- name: hand_on_places
-- takes: run_id text, successor text
UPDATE run_places SET run_id = q.successor FROM {rows} WHERE run_places.run_id = q.run_id;

-- name: move_place
-- takes: run_id text, scope_id bigint
UPDATE run_places SET scope_id = q.scope_id FROM {rows} WHERE run_places.run_id = q.run_id AND run_places.waiting = 1;

-- name: postpone_place
-- takes: run_id text, ready_at_ms bigint
UPDATE run_places SET ready_at_ms = q.ready_at_ms FROM {rows} WHERE run_places.run_id = q.run_id AND run_places.waiting = 1;

-- name: insert_place
-- takes: run_id text, scope_id bigint, waiting bigint, level bigint, ready_at_ms bigint
INSERT INTO run_places ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.n;
