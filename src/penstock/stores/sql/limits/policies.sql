-- columns: key_state
--   key, weight_milli, rate_micro, lease_cap, paused, paid_until_ns, running

-- columns: key_settings
--   key, weight_milli, rate_micro, lease_cap, paused, author, at_ms, reason

-- columns: policy_change
--   version, at_ms, author, setting, key, before, after, reason

-- name: key_states
-- unmerged
-- takes: queue_id bigint, keys text
SELECT 1, {key_state} FROM {each :keys} CROSS JOIN keys t
 WHERE t.queue_id = :queue_id AND t.key = each_.value;

-- name: keys_without_backlog
-- unmerged
-- takes: queue_id bigint, search text, only text, after text, most bigint
SELECT 1, {key_state} FROM keys t
 WHERE t.queue_id = :queue_id AND t.key > :after AND (t.running > 0 OR t.at_ms IS NOT NULL)
   AND (:search = '' OR instr(t.key, :search) > 0) AND (:only = '' OR t.key = :only)
   AND NOT EXISTS (
     SELECT 1 FROM lanes l
      WHERE l.queue_id = t.queue_id AND l.level IN ({levels}) AND l.key = t.key AND l.count > 0)
 ORDER BY t.key LIMIT :most;

-- name: key_settings_of
-- unmerged
-- takes: queue_id bigint, keys text
SELECT 1, {key_settings} FROM {each :keys} CROSS JOIN keys t
 WHERE t.queue_id = :queue_id AND t.key = each_.value AND t.at_ms IS NOT NULL;

-- name: keys_with_settings
-- unmerged
-- takes: queue_id bigint, most bigint
SELECT 1, {key_settings}
  FROM keys t {index keys_with_settings} WHERE t.queue_id = :queue_id AND t.at_ms IS NOT NULL ORDER BY t.key LIMIT :most;

-- name: count_keys_with_settings
-- unmerged
-- takes: queue_id bigint
SELECT 1, count(*) FROM keys t {index keys_with_settings} WHERE t.queue_id = :queue_id AND t.at_ms IS NOT NULL;

-- name: mark_leases_counted
-- unmerged
-- takes: queue_id bigint
-- Locks every lease of the queue until the commit, so that they can be counted.
UPDATE tasks SET counted = 1 WHERE queue_id = :queue_id AND state = 'leased';

-- name: uncount_all_keys
-- unmerged
-- takes: queue_id bigint
UPDATE keys SET running = 0 WHERE queue_id = :queue_id AND running <> 0;

-- name: count_leases_by_key
-- unmerged
-- takes: queue_id bigint
INSERT INTO keys (queue_id, key, running)
SELECT t.queue_id, t.key, count(*) FROM tasks t
 WHERE t.queue_id = :queue_id AND t.state = 'leased' GROUP BY t.queue_id, t.key
ON CONFLICT (queue_id, key) DO UPDATE SET running = excluded.running;

-- name: policy_changes
-- unmerged
-- takes: queue_id bigint, most bigint
SELECT 1, {policy_change} FROM policy_changes t
 WHERE t.queue_id = :queue_id ORDER BY t.version DESC, t.number LIMIT :most;

-- name: newest_policy_changes
-- unmerged
-- takes: namespace text, before_ms bigint, most bigint
SELECT 1, c.name, c.kind, {policy_change}
  FROM policy_changes t JOIN queues c ON c.queue_id = t.queue_id
 WHERE c.namespace = :namespace AND t.at_ms < :before_ms
 ORDER BY t.at_ms DESC, t.version DESC, t.number LIMIT :most;

-- name: idle_keys
-- unmerged
-- takes: now_ns bigint, most bigint
SELECT 1, t.queue_id, t.key FROM keys t
 WHERE t.running = 0 AND t.at_ms IS NULL AND t.paid_until_ns <= :now_ns LIMIT :most;

-- name: save_policy
-- takes: queue_id bigint, policy text
UPDATE queues SET policy = q.policy FROM {rows} WHERE queues.queue_id = q.queue_id;

-- name: save_worker_rate
-- takes: queue_id bigint, micro bigint, worker_id text, at_ms bigint, until_ms bigint, burst_ms bigint, conflict text
UPDATE queues SET worker_rate_micro = q.micro, worker_rate_by = q.worker_id, worker_rate_at_ms = q.at_ms,
       worker_rate_until_ms = q.until_ms, worker_rate_burst_ms = q.burst_ms, worker_rate_conflict = q.conflict
  FROM {rows} WHERE queues.queue_id = q.queue_id;

-- name: settle_queue
-- takes: queue_id bigint, paid_until_ns bigint, aging_turn bigint, dispatched text
UPDATE queues SET paid_until_ns = q.paid_until_ns, aging_turn = q.aging_turn, dispatched = q.dispatched
  FROM {rows} WHERE queues.queue_id = q.queue_id;

-- name: save_key
-- takes: queue_id bigint, key text, weight_milli bigint, rate_micro bigint, lease_cap bigint, paused bigint, author text, at_ms bigint, reason text
INSERT INTO keys ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.queue_id, q.key
ON CONFLICT (queue_id, key) DO UPDATE
   SET weight_milli = excluded.weight_milli, rate_micro = excluded.rate_micro,
       lease_cap = excluded.lease_cap, paused = excluded.paused, author = excluded.author,
       at_ms = excluded.at_ms, reason = excluded.reason;

-- name: log_policy_change
-- takes: queue_id bigint, version bigint, number bigint, at_ms bigint, author text, setting text, key text, before text, after text, reason text
INSERT INTO policy_changes ({columns}) SELECT {q.columns} FROM {rows} WHERE true;

-- name: forget_policy_changes
-- takes: queue_id bigint, up_to_version bigint
DELETE FROM policy_changes WHERE queue_id IN (SELECT q.queue_id FROM {rows})
   AND version <= (SELECT max(q.up_to_version) FROM {rows} WHERE q.queue_id = policy_changes.queue_id);

-- name: uncount_key
-- takes: queue_id bigint, key text
-- A lease has ended. Key before lane: the holder of the key's row lock knows its lease count until the commit.
UPDATE keys SET running = keys.running - q.ended
  FROM (SELECT q.queue_id, q.key, count(*) AS ended FROM {rows} GROUP BY q.queue_id, q.key) q
 WHERE keys.queue_id = q.queue_id AND keys.key = q.key;

-- name: spend_key
-- takes: queue_id bigint, key text, paid_until_ns bigint, leased bigint
-- Also for a key at its cap: from here to the commit no other transaction lowers its lease count.
INSERT INTO keys (queue_id, key, paid_until_ns, running)
SELECT q.queue_id, q.key, coalesce(q.paid_until_ns, 0), q.leased FROM {rows} WHERE true ORDER BY q.queue_id, q.key
ON CONFLICT (queue_id, key) DO UPDATE
   SET paid_until_ns = CASE WHEN excluded.paid_until_ns = 0 THEN keys.paid_until_ns ELSE excluded.paid_until_ns END,
       running = keys.running + excluded.running;

-- name: drop_key
-- takes: queue_id bigint, key text, now_ns bigint
DELETE FROM keys
 WHERE running = 0 AND at_ms IS NULL AND queue_id IN (SELECT q.queue_id FROM {rows})
   AND key IN (SELECT q.key FROM {rows}) AND (queue_id, key) IN (SELECT q.queue_id, q.key FROM {rows})
   AND paid_until_ns <= (SELECT min(q.now_ns) FROM {rows});
