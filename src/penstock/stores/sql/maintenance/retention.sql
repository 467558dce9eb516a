-- name: expired_runs
-- unmerged
-- takes: namespace text, before_ms bigint, most bigint
SELECT 1, t.run_id FROM runs t
 WHERE t.namespace = :namespace AND t.closed_at_ms < :before_ms
 ORDER BY t.closed_at_ms, t.run_id LIMIT :most;

-- name: newest_other_run
-- unmerged
-- takes: namespace text, workflow_id text, run_id text
SELECT 1, t.run_id FROM runs t
 WHERE t.namespace = :namespace AND t.workflow_id = :workflow_id AND t.run_id <> :run_id
 ORDER BY t.started_at_ms DESC, t.run_id DESC LIMIT 1;

-- name: forget_run
-- takes: run_id text
DELETE FROM runs WHERE run_id IN (SELECT q.run_id FROM {rows});

-- name: forget_instance
-- Only if it names the deleted run: a workflow id that has a newer run stays.
-- takes: namespace text, workflow_id text, run_id text
DELETE FROM instances
 WHERE (namespace, workflow_id) IN (SELECT q.namespace, q.workflow_id FROM {rows})
   AND run_id IN (SELECT q.run_id FROM {rows});

-- name: record_deleted_run
-- takes: run_id text
INSERT INTO deleted_runs ({columns}) SELECT {q.columns} FROM {rows};

-- name: deleted_runs
-- unmerged
-- takes: most bigint
SELECT 1, t.run_id FROM deleted_runs t ORDER BY t.run_id LIMIT :most;

-- name: clear_run_events
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM events
 WHERE run_id = :run_id
   AND sequence < (SELECT min(t.sequence) FROM events t WHERE t.run_id = :run_id) + :most
RETURNING 1, sequence;

-- name: clear_run_buffered
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM buffered_events
 WHERE run_id = :run_id
   AND number < (SELECT min(t.number) FROM buffered_events t WHERE t.run_id = :run_id) + :most
RETURNING 1, number;

-- name: clear_run_tasks
-- The ids of a run's rows begin with the id of the run, so that the primary keys find them.
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM tasks
 WHERE task_id IN (SELECT t.task_id FROM tasks t
                    WHERE t.task_id > :run_id || '-' AND t.task_id < :run_id || '.' AND t.run_id = :run_id
                    ORDER BY t.task_id LIMIT :most)
RETURNING 1, task_id;

-- name: clear_run_activities
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM activities
 WHERE activity_id IN (SELECT t.activity_id FROM activities t
                        WHERE t.activity_id > :run_id || '-' AND t.activity_id < :run_id || '.'
                          AND t.run_id = :run_id
                        ORDER BY t.activity_id LIMIT :most)
RETURNING 1, activity_id;

-- name: clear_run_timers
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM timers
 WHERE timer_id IN (SELECT t.timer_id FROM timers t
                     WHERE t.timer_id > :run_id || '-' AND t.timer_id < :run_id || '.' AND t.run_id = :run_id
                     ORDER BY t.timer_id LIMIT :most)
RETURNING 1, timer_id;

-- name: clear_run_children
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM children
 WHERE parent_run_id = :run_id
   AND step IN (SELECT t.step FROM children t WHERE t.parent_run_id = :run_id ORDER BY t.step LIMIT :most)
RETURNING 1, step;

-- name: clear_run_updates
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM updates
 WHERE update_id IN (SELECT t.update_id FROM updates t WHERE t.run_id = :run_id ORDER BY t.number LIMIT :most)
RETURNING 1, update_id;

-- name: clear_run_requests
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM requests
 WHERE (namespace, workflow_id, kind, request_id) IN
       (SELECT t.namespace, t.workflow_id, t.kind, t.request_id FROM requests t
         WHERE t.run_id = :run_id LIMIT :most)
RETURNING 1, request_id;

-- name: clear_run_attributes
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM run_attributes
 WHERE run_id = :run_id
   AND (name, value) IN (SELECT t.name, t.value FROM run_attributes t WHERE t.run_id = :run_id
                          ORDER BY t.name, t.value LIMIT :most)
RETURNING 1, name;

-- name: clear_run_messages
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM messages
 WHERE (namespace, workflow_id, stream, position) IN
       (SELECT t.namespace, t.workflow_id, t.stream, t.position FROM messages t
         WHERE t.run_id = :run_id LIMIT :most)
RETURNING 1, position;

-- name: clear_run_message_streams
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM message_streams
 WHERE (namespace, workflow_id, name) IN
       (SELECT t.namespace, t.workflow_id, t.name FROM message_streams t
         WHERE t.run_id = :run_id ORDER BY t.name LIMIT :most)
RETURNING 1, name;

-- name: clear_run_items
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM stream_items
 WHERE run_id = :run_id
   AND (stream, item_offset) IN (SELECT t.stream, t.item_offset FROM stream_items t WHERE t.run_id = :run_id
                                  ORDER BY t.stream, t.item_offset LIMIT :most)
RETURNING 1, item_offset;

-- name: clear_run_streams
-- unmerged
-- takes: run_id text, most bigint
DELETE FROM workflow_streams
 WHERE run_id = :run_id
   AND name IN (SELECT t.name FROM workflow_streams t WHERE t.run_id = :run_id ORDER BY t.name LIMIT :most)
RETURNING 1, name;

-- name: forget_deleted_run
-- takes: run_id text
DELETE FROM deleted_runs WHERE run_id IN (SELECT q.run_id FROM {rows});
