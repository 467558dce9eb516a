-- name: page_history
-- takes: run_id text, after bigint, most bigint, bytes bigint
SELECT q.n, {event}
  FROM {rows} CROSS JOIN LATERAL (
       {events_so_far}
         FROM (SELECT x.* FROM events x WHERE x.run_id = q.run_id AND x.sequence > q.after
                ORDER BY x.sequence LIMIT q.most) e) t
 WHERE t.bytes_before < q.bytes
 ORDER BY q.n, t.sequence;

-- The parser of PostgreSQL refuses the escape of NUL, which may stand in any text of a payload.
-- name: timeline_events
-- unmerged
-- takes: run_id text, after bigint, most bigint
SELECT 1, t.sequence, t.type, t.recorded_at_ms, t.task_id,
       CAST(json_build_array(f.sequence, f.activity_type, f.child_workflow_type, f.attempt_number, f.started_at,
                        f.retry_available_at, f.timer_kind, f.timer_id, f.condition_wait_id, f.condition_key,
                        f.update_id, f.update_name, f.signal_name, f.child_workflow_instance_id,
                        f.child_workflow_run_id, f.activity_execution_id, f.held_by) AS text)
  FROM (SELECT e.* FROM events e WHERE e.run_id = :run_id AND e.sequence > :after
         ORDER BY e.sequence LIMIT :most) t
 CROSS JOIN LATERAL json_to_record(CAST(replace(t.payload, '\u0000', '\u0020') AS json))
       AS f(sequence text, activity_type text, child_workflow_type text, attempt_number text, started_at text,
            retry_available_at text, timer_kind text, timer_id text, condition_wait_id text, condition_key text,
            update_id text, update_name text, signal_name text, child_workflow_instance_id text,
            child_workflow_run_id text, activity_execution_id text, held_by text)
 ORDER BY t.sequence;

-- name: request_events
-- unmerged
-- takes: run_id text, after bigint, most bigint
SELECT 1, t.sequence, t.type, t.recorded_at_ms,
       CAST(json_build_array(f.workflow_command_id, f.signal_name, f.update_name, f.reason,
                             f.principal ->> 'type', f.principal ->> 'id') AS text)
  FROM (SELECT e.*
          FROM (SELECT f.* FROM events f WHERE f.run_id = :run_id AND f.sequence = 1
                UNION ALL
                SELECT f.* FROM events f WHERE f.run_id = :run_id AND f.sequence > greatest(:after, 1)) e
         WHERE e.type IN ('WorkflowStarted', 'SignalReceived', 'UpdateAccepted', 'CancelRequested', 'TerminateRequested',
                          'CooperativeCancellationRequested')
         ORDER BY e.sequence DESC LIMIT :most) t
 CROSS JOIN LATERAL json_to_record(CAST(replace(t.payload, '\u0000', '\u0020') AS json))
       AS f(workflow_command_id text, signal_name text, update_name text, reason text, principal json)
 ORDER BY t.sequence DESC;
