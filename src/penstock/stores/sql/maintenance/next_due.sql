-- name: next_due
-- An outbox message is always due.
-- unmerged
-- takes: at_ms bigint
SELECT 1, 'lease', min(t.lease_expires_at_ms) FROM tasks t
 WHERE t.state = 'leased' AND t.lease_expires_at_ms <= :at_ms
UNION ALL
SELECT 1, 'timer', min(t.fire_at_ms) FROM timers t WHERE t.state = 'open' AND t.fire_at_ms <= :at_ms
UNION ALL
SELECT 1, 'task', min(t.available_at_ms) FROM tasks t WHERE t.state = 'delayed' AND t.available_at_ms <= :at_ms
UNION ALL
SELECT 1, 'activity', min(t.deadline_at_ms) FROM activities t WHERE t.deadline_at_ms <= :at_ms
UNION ALL
SELECT 1, 'run', min(t.deadline_at_ms) FROM runs t WHERE t.deadline_at_ms <= :at_ms
UNION ALL
SELECT 1, 'query', min(t.expires_at_ms) FROM query_tasks t WHERE t.expires_at_ms <= :at_ms
UNION ALL
SELECT 1, 'query', min(t.lease_expires_at_ms) FROM query_tasks t
 WHERE t.state = 'leased' AND t.lease_expires_at_ms <= :at_ms
UNION ALL
SELECT 1, 'outbox', 0 * min(t.created_at_ms) FROM outbox t
UNION ALL
SELECT 1, 'stream', min(t.expires_at_ms) FROM workflow_streams t WHERE t.expires_at_ms <= :at_ms
UNION ALL
SELECT 1, 'schedule', min(t.due_at_ms) FROM schedules t WHERE t.due_at_ms <= :at_ms
UNION ALL
SELECT 1, 'change_set', min(t.due_at_ms) FROM change_sets t WHERE t.due_at_ms <= :at_ms
UNION ALL
SELECT 1, 'run_place', 0 * min(t.scope_id) FROM run_places t WHERE t.waiting = 1;
