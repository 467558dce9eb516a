-- columns: event
--   run_id, sequence, type, payload, recorded_at_ms, task_id

-- fragment: events_so_far
--   SELECT e.*, sum(octet_length(e.payload)) OVER (ORDER BY e.sequence) - octet_length(e.payload) AS bytes_before
-- fragment: events_so_far_back
--   SELECT e.*, sum(octet_length(e.payload)) OVER (ORDER BY e.sequence DESC) - octet_length(e.payload) AS bytes_before

-- A page is limited by the number and by the size of its events.
-- name: page_history
-- unmerged
-- takes: run_id text, after bigint, most bigint, bytes bigint
SELECT 1, {event}
  FROM ({events_so_far}
          FROM (SELECT x.* FROM events x WHERE x.run_id = :run_id AND x.sequence > :after
                 ORDER BY x.sequence LIMIT :most) e) t
 WHERE t.bytes_before < :bytes ORDER BY t.sequence;

-- name: page_history_back
-- unmerged
-- takes: run_id text, before bigint, most bigint, bytes bigint
SELECT 1, {event}
  FROM ({events_so_far_back}
          FROM (SELECT x.* FROM events x WHERE x.run_id = :run_id AND x.sequence < :before
                 ORDER BY x.sequence DESC LIMIT :most) e) t
 WHERE t.bytes_before < :bytes ORDER BY t.sequence DESC;

-- Only the fields that a timeline shows: payloads may have megabytes.
-- name: timeline_events
-- unmerged
-- takes: run_id text, after bigint, most bigint
-- Of what a timeline shows nothing else of, the instant is enough.
SELECT 1, t.sequence, t.type, t.recorded_at_ms, t.task_id,
       CASE WHEN t.type <> 'SideEffectRecorded' AND t.type <> 'WorkflowTaskCompleted' THEN
       json_extract(t.payload, '$.sequence', '$.activity_type', '$.child_workflow_type', '$.attempt_number',
                    '$.started_at', '$.retry_available_at', '$.timer_kind', '$.timer_id', '$.condition_wait_id',
                    '$.condition_key', '$.update_id', '$.update_name', '$.signal_name',
                    '$.child_workflow_instance_id', '$.child_workflow_run_id', '$.activity_execution_id', '$.held_by') END
  FROM events t WHERE t.run_id = :run_id AND t.sequence > :after ORDER BY t.sequence LIMIT :most;

-- name: request_events
-- unmerged
-- takes: run_id text, after bigint, most bigint
SELECT 1, t.sequence, t.type, t.recorded_at_ms,
       json_extract(t.payload, '$.workflow_command_id', '$.signal_name', '$.update_name', '$.reason',
                    '$.principal.type', '$.principal.id')
  FROM (SELECT e.* FROM events e WHERE e.run_id = :run_id AND e.sequence = 1
        UNION ALL
        SELECT e.* FROM events e WHERE e.run_id = :run_id AND e.sequence > max(:after, 1)) t
 WHERE t.type IN ('WorkflowStarted', 'SignalReceived', 'UpdateAccepted', 'CancelRequested', 'TerminateRequested',
                  'CooperativeCancellationRequested')
 ORDER BY t.sequence DESC LIMIT :most;

-- name: last_event_of_type
-- takes: run_id text, types text
SELECT q.n, {event}
  FROM {rows} JOIN events t ON t.run_id = q.run_id
   AND t.sequence = (SELECT max(e.sequence) FROM events e
                      WHERE e.run_id = q.run_id AND instr(q.types, char(31) || e.type || char(31)) > 0);

-- name: buffered_events
-- takes: run_id text
SELECT q.n, t.type, t.payload FROM {rows} JOIN buffered_events t ON t.run_id = q.run_id ORDER BY t.number;

-- name: append_event
-- takes: run_id text, sequence bigint, type text, payload text, recorded_at_ms bigint, task_id text
INSERT INTO events ({columns}) SELECT {q.columns} FROM {rows};

-- name: buffer_event
-- takes: run_id text, number bigint, type text, payload text
INSERT INTO buffered_events ({columns}) SELECT {q.columns} FROM {rows};

-- name: clear_buffer
-- takes: run_id text
DELETE FROM buffered_events WHERE run_id IN (SELECT q.run_id FROM {rows});
