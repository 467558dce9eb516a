-- columns: scope
--   scope_id, name, granted, dispatched, costs, cool_until_ms, cool_given

-- fragment: ended_in_scope
--   (SELECT coalesce(sum(e.ended), 0) FROM scope_ends e WHERE e.scope_id = t.scope_id)

-- columns: scope_change
--   version, at_ms, author, setting, before, after, reason

-- name: get_admission
-- unmerged
-- One row per scope that has a policy, each with the declaration. Caps on runs concern no queue.
SELECT 1, a.stamp, a.version, a.declared, a.declared_by, a.declared_at_ms, s.scope_id, s.name, s.policy
  FROM admission a LEFT JOIN scopes s ON s.policy IS NOT NULL AND NOT (s.name >= 'runs:' AND s.name < 'runs;') WHERE a.id = 1 ORDER BY s.name;

-- name: lock_admission
-- unmerged
SELECT 1, t.version FROM admission t WHERE t.id = 1 {lock t};

-- name: hold_admission
-- unmerged
-- For a queue that is being created: limits do not change until it is committed.
SELECT 1, t.stamp FROM admission t WHERE t.id = 1;

-- name: queue_ids_of
-- unmerged
-- takes: namespace text
SELECT 1, t.queue_id FROM queues t WHERE t.namespace = :namespace ORDER BY t.queue_id;

-- name: all_queue_ids
-- unmerged
SELECT 1, t.queue_id FROM queues t ORDER BY t.queue_id;

-- name: get_scope
-- takes: name text
SELECT q.n, t.scope_id FROM {rows} JOIN scopes t ON t.name = q.name;

-- name: scope_names
-- unmerged
-- takes: after text, most bigint
SELECT 1, t.name FROM scopes t WHERE t.name > :after ORDER BY t.name LIMIT :most;

-- name: create_scope
-- takes: name text
INSERT INTO scopes ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.name ON CONFLICT (name) DO NOTHING;

-- name: scope_state
-- takes: scope_id bigint
SELECT q.n, {scope}, {ended_in_scope}
  FROM {rows} JOIN scopes t ON t.scope_id = q.scope_id;

-- name: lock_scope
-- takes: scope_id bigint
-- Leases that ended while this waited for the lock may be missing: that errs on the strict side, and their topic was notified.
SELECT q.n, {scope}, {ended_in_scope}
  FROM {rows} JOIN scopes t ON t.scope_id = q.scope_id ORDER BY t.scope_id {lock t};

-- name: fold_settlements
-- unmerged
-- takes: scope_id bigint
DELETE FROM settlements WHERE scope_id = :scope_id RETURNING 1, at_ms, amount;

-- name: adopt_leases
-- unmerged
-- takes: queue_id bigint, scope_id text
-- Locks every lease of the queue until the commit, so that they can be counted.
UPDATE tasks SET scopes = CASE WHEN scopes = '' THEN ' ' ELSE scopes END || :scope_id || ' '
 WHERE queue_id = :queue_id AND state = 'leased' AND claimed = 0
   AND instr(scopes, ' ' || :scope_id || ' ') = 0
RETURNING 1, task_id;

-- name: hold_adopted
-- unmerged
-- takes: queue_id bigint, scope_id text
SELECT 1, t.task_id FROM tasks t
 WHERE t.queue_id = :queue_id AND t.state = 'leased' AND instr(t.scopes, ' ' || :scope_id || ' ') > 0
 ORDER BY t.task_id {lock t};

-- name: count_adopted
-- unmerged
-- takes: queue_id bigint, scope_id text
SELECT 1, count(*) FROM tasks t
 WHERE t.queue_id = :queue_id AND t.state = 'leased' AND instr(t.scopes, ' ' || :scope_id || ' ') > 0;

-- name: leases_in_scope
-- unmerged
-- takes: queue_ids text, scope_id text, most bigint
SELECT 1, {task}
  FROM tasks t
 WHERE t.queue_id IN (SELECT CAST(each_.value AS bigint) FROM {each :queue_ids})
   AND t.state = 'leased' AND instr(t.scopes, ' ' || :scope_id || ' ') > 0
 ORDER BY t.lease_expires_at_ms LIMIT :most;

-- name: scope_difference
-- unmerged
-- takes: scope_id bigint, mark text
-- One statement, so that grants and ends are of one snapshot.
SELECT 1, t.granted - {ended_in_scope} - (
         SELECT count(*) FROM tasks w {index tasks_expiring}
          WHERE w.state = 'leased' AND instr(w.scopes, ' ' || :mark || ' ') > 0)
  FROM scopes t WHERE t.scope_id = :scope_id;

-- name: scope_changes
-- unmerged
-- takes: name text, most bigint
SELECT 1, {scope_change} FROM scope_changes t
 WHERE t.name = :name ORDER BY t.version DESC, t.number LIMIT :most;

-- name: newest_scope_changes
-- unmerged
-- takes: before_ms bigint, most bigint
SELECT 1, t.name, {scope_change} FROM scope_changes t
 WHERE t.at_ms < :before_ms ORDER BY t.at_ms DESC, t.version DESC, t.number LIMIT :most;

-- name: cool_scope
-- takes: scope_id bigint, until_ms bigint
-- A downstream refused: the budget group is closed until then, on every server.
UPDATE scopes
   SET cool_until_ms = CASE WHEN coalesce(scopes.cool_until_ms, 0) > q.until_ms THEN scopes.cool_until_ms
                            ELSE q.until_ms END,
       cool_given = 0
  FROM (SELECT q.scope_id, max(q.until_ms) AS until_ms FROM {rows} GROUP BY q.scope_id) q
 WHERE scopes.scope_id = q.scope_id;

-- name: end_in_scope
-- takes: scope_id bigint, shard bigint
INSERT INTO scope_ends (scope_id, shard, ended)
SELECT q.scope_id, q.shard, count(*) FROM {rows} WHERE true GROUP BY q.scope_id, q.shard ORDER BY 1, 2
ON CONFLICT (scope_id, shard) DO UPDATE SET ended = scope_ends.ended + excluded.ended;

-- name: settle_cost
-- takes: scope_id bigint, at_ms bigint, amount bigint
INSERT INTO settlements (scope_id, at_ms, amount)
SELECT q.scope_id, q.at_ms, q.amount
  FROM {rows} JOIN scopes t ON t.scope_id = q.scope_id AND t.costs IS NOT NULL;

-- name: any_settlement_before
-- unmerged
-- takes: at_ms bigint
SELECT 1 FROM settlements t WHERE t.at_ms < :at_ms LIMIT 1;

-- name: forget_settlements
-- takes: before_ms bigint
DELETE FROM settlements WHERE at_ms < (SELECT max(q.before_ms) FROM {rows});

-- name: settle_scope
-- Once a scope has counted costs it continues to, even at zero: open tasks will settle theirs.
-- takes: scope_id bigint, granted bigint, dispatched text, costs text, cool_until_ms bigint, cool_given bigint
UPDATE scopes
   SET granted = q.granted, dispatched = q.dispatched,
       costs = CASE WHEN q.costs IS NULL AND scopes.costs IS NOT NULL THEN '' ELSE q.costs END, cool_until_ms = q.cool_until_ms,
       cool_given = q.cool_given
  FROM {rows} WHERE scopes.scope_id = q.scope_id;

-- name: save_scope_policy
-- takes: scope_id bigint, policy text
UPDATE scopes SET policy = q.policy FROM {rows} WHERE scopes.scope_id = q.scope_id;

-- name: log_scope_change
-- takes: name text, version bigint, number bigint, at_ms bigint, author text, setting text, before text, after text, reason text
INSERT INTO scope_changes ({columns}) SELECT {q.columns} FROM {rows} WHERE true;

-- name: forget_scope_changes
-- takes: name text, up_to_version bigint
DELETE FROM scope_changes WHERE name IN (SELECT q.name FROM {rows})
   AND version <= (SELECT max(q.up_to_version) FROM {rows} WHERE q.name = scope_changes.name);

-- name: save_declaration
-- takes: declared text, declared_by text, declared_at_ms bigint
UPDATE admission SET declared = q.declared, declared_by = q.declared_by, declared_at_ms = q.declared_at_ms
  FROM {rows} WHERE admission.id = 1;

-- name: stamp_queue
-- takes: queue_id bigint, stamp text
UPDATE queues SET stamp = q.stamp FROM {rows} WHERE queues.queue_id = q.queue_id;

-- name: stamp_admission
-- takes: stamp text
UPDATE admission SET version = admission.version + 1, stamp = q.stamp FROM {rows} WHERE admission.id = 1;
