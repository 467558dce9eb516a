-- columns: schedule
--   schedule_key, namespace, schedule_id, action_type, status, note, spec, action, policies, progress, memo,
--   search_attributes, cursor_at_ms, nominal_at_ms, due_at_ms, zone_version, created_at_ms, updated_at_ms,
--   version

-- columns: fire
--   schedule_key, nominal_at_ms, kind, state, workflow_id, run_id, reason, at_ms

-- columns: schedule_event
--   schedule_key, sequence, type, payload, workflow_id, run_id, at_ms

-- name: create_schedule
-- takes: schedule_key text, namespace text, schedule_id text, action_type text, status text, note text, spec text, action text, policies text, progress text, memo text, search_attributes text, cursor_at_ms bigint, nominal_at_ms bigint, due_at_ms bigint, zone_version text, created_at_ms bigint, updated_at_ms bigint, version bigint
-- The first insert takes the id; a concurrent one on another server waits here for its commit.
INSERT INTO schedules ({columns})
SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.schedule_id
ON CONFLICT (namespace, schedule_id) WHERE status <> 'deleted' DO NOTHING
RETURNING 1, schedule_key;

-- name: lock_schedule
-- takes: schedule_key text
SELECT q.n, {schedule}
  FROM {rows} JOIN schedules t ON t.schedule_key = q.schedule_key ORDER BY t.schedule_key {lock t};

-- name: schedule_by_id
-- takes: namespace text, schedule_id text
SELECT q.n, {schedule}
  FROM {rows} JOIN schedules t ON t.namespace = q.namespace AND t.schedule_id = q.schedule_id AND t.status <> 'deleted';

-- name: newest_schedule_of_id
-- unmerged
-- takes: namespace text, schedule_id text
SELECT 1, {schedule} FROM schedules t
 WHERE t.namespace = :namespace AND t.schedule_id = :schedule_id
 ORDER BY t.created_at_ms DESC, t.schedule_key DESC LIMIT 1;

-- name: page_schedules
-- unmerged
-- takes: namespace text, status text, action_type text, before_ms bigint, before_key text, most bigint
SELECT 1, {schedule} FROM schedules t
 WHERE t.namespace = :namespace AND t.status <> 'deleted'
   AND (:status IS NULL OR t.status = :status) AND (:action_type IS NULL OR t.action_type = :action_type)
   AND (t.created_at_ms < :before_ms OR (t.created_at_ms = :before_ms AND t.schedule_key < :before_key))
 ORDER BY t.created_at_ms DESC, t.schedule_key DESC LIMIT :most;

-- name: due_schedules
-- unmerged
-- takes: now_ms bigint, zone_version text, most bigint
-- Those computed from newer zone data than this server has are left to others.
SELECT 1, t.schedule_key FROM schedules t
 WHERE t.due_at_ms <= :now_ms AND t.zone_version <= :zone_version ORDER BY t.due_at_ms, t.schedule_key LIMIT :most;

-- name: count_due_between
-- unmerged
-- takes: namespace text, first_ms bigint, last_ms bigint
SELECT 1, count(*) FROM schedules t
 WHERE t.namespace = :namespace AND t.due_at_ms >= :first_ms AND t.due_at_ms <= :last_ms;

-- name: newer_zone_data
-- unmerged
-- takes: zone_version text
SELECT 1, t.zone_version FROM schedules t
 WHERE t.status = 'active' AND t.zone_version <> '' AND t.zone_version > :zone_version
 ORDER BY t.zone_version DESC LIMIT 1;

-- name: schedules_of_older_zone_data
-- unmerged
-- takes: zone_version text, most bigint
SELECT 1, t.schedule_key FROM schedules t
 WHERE t.status = 'active' AND t.zone_version <> '' AND t.zone_version < :zone_version
 ORDER BY t.zone_version LIMIT :most;

-- name: save_schedule
-- takes: schedule_key text, namespace text, schedule_id text, action_type text, status text, note text, spec text, action text, policies text, progress text, memo text, search_attributes text, cursor_at_ms bigint, nominal_at_ms bigint, due_at_ms bigint, zone_version text, created_at_ms bigint, updated_at_ms bigint, version bigint
UPDATE schedules
   SET action_type = q.action_type,
       status = q.status,
       note = q.note,
       spec = q.spec,
       action = q.action,
       policies = q.policies,
       progress = q.progress,
       memo = q.memo,
       search_attributes = q.search_attributes,
       cursor_at_ms = q.cursor_at_ms,
       nominal_at_ms = q.nominal_at_ms,
       due_at_ms = q.due_at_ms,
       zone_version = q.zone_version,
       updated_at_ms = q.updated_at_ms,
       version = q.version
  FROM {rows}
 WHERE schedules.schedule_key = q.schedule_key AND schedules.namespace = q.namespace
   AND schedules.schedule_id = q.schedule_id AND schedules.created_at_ms = q.created_at_ms;

-- name: get_fire
-- takes: schedule_key text, nominal_at_ms bigint, kind text
SELECT q.n, {fire}
  FROM {rows} JOIN fires t ON t.schedule_key = q.schedule_key AND t.nominal_at_ms = q.nominal_at_ms AND t.kind = q.kind;

-- name: started_fires
-- unmerged
-- takes: schedule_key text, most bigint
SELECT 1, {fire} FROM fires t
 WHERE t.schedule_key = :schedule_key AND t.state = 'started' ORDER BY t.nominal_at_ms, t.kind LIMIT :most;

-- name: buffered_fires
-- unmerged
-- takes: schedule_key text, most bigint
SELECT 1, {fire} FROM fires t
 WHERE t.schedule_key = :schedule_key AND t.state = 'buffered' ORDER BY t.nominal_at_ms, t.kind LIMIT :most;

-- name: count_backfilled
-- unmerged
-- takes: schedule_key text, first_ms bigint, last_ms bigint
SELECT 1, count(*) FROM fires t
 WHERE t.schedule_key = :schedule_key AND t.nominal_at_ms >= :first_ms AND t.nominal_at_ms <= :last_ms
   AND t.kind = 'backfill' AND t.state <> 'skipped';

-- name: latest_fires
-- unmerged
-- takes: schedule_key text, most bigint
SELECT 1, {fire} FROM fires t WHERE t.schedule_key = :schedule_key ORDER BY t.at_ms DESC LIMIT :most;

-- name: insert_fire
-- takes: schedule_key text, nominal_at_ms bigint, kind text, state text, workflow_id text, run_id text, reason text, at_ms bigint
INSERT INTO fires ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_fire
-- takes: schedule_key text, nominal_at_ms bigint, kind text, state text, workflow_id text, run_id text, reason text, at_ms bigint
UPDATE fires
   SET state = q.state,
       workflow_id = q.workflow_id,
       run_id = q.run_id,
       reason = q.reason,
       at_ms = q.at_ms
  FROM {rows}
 WHERE fires.schedule_key = q.schedule_key AND fires.nominal_at_ms = q.nominal_at_ms AND fires.kind = q.kind;

-- name: append_schedule_event
-- takes: schedule_key text, sequence bigint, type text, payload text, workflow_id text, run_id text, at_ms bigint
INSERT INTO schedule_events ({columns}) SELECT {q.columns} FROM {rows};

-- name: schedule_events_page
-- unmerged
-- takes: schedule_key text, after bigint, most bigint
SELECT 1, {schedule_event} FROM schedule_events t
 WHERE t.schedule_key = :schedule_key AND t.sequence > :after ORDER BY t.sequence LIMIT :most;

-- name: latest_schedule_updates
-- unmerged
-- takes: schedule_key text, most bigint
SELECT 1, {schedule_event} FROM schedule_events t
 WHERE t.schedule_key = :schedule_key AND t.type = 'ScheduleUpdated' ORDER BY t.sequence DESC LIMIT :most;

-- name: any_fire_before
-- unmerged
-- takes: at_ms bigint
SELECT 1 FROM fires t {index fires_oldest}
 WHERE t.at_ms < :at_ms AND t.state <> 'started' AND t.state <> 'buffered' LIMIT 1;

-- name: any_schedule_event_before
-- unmerged
-- takes: at_ms bigint
SELECT 1 FROM schedule_events t WHERE t.at_ms < :at_ms LIMIT 1;

-- name: forget_fires
-- takes: at_ms bigint
DELETE FROM fires
 WHERE state <> 'started' AND state <> 'buffered' AND at_ms < (SELECT max(q.at_ms) FROM {rows});

-- name: forget_schedule_events
-- takes: at_ms bigint
DELETE FROM schedule_events WHERE at_ms < (SELECT max(q.at_ms) FROM {rows});
