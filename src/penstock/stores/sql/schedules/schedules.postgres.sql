-- name: create_schedule
-- takes: schedule_key text, namespace text, schedule_id text, action_type text, status text, note text, spec text, action text, policies text, progress text, memo text, search_attributes text, cursor_at_ms bigint, nominal_at_ms bigint, due_at_ms bigint, zone_version text, created_at_ms bigint, updated_at_ms bigint, version bigint
WITH made AS (
     INSERT INTO schedules ({columns})
     SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.schedule_id
     ON CONFLICT (namespace, schedule_id) WHERE status <> 'deleted' DO NOTHING
     RETURNING schedule_key)
SELECT q.n, made.schedule_key FROM {rows} JOIN made ON made.schedule_key = q.schedule_key;
