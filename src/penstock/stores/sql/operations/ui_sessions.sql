-- name: create_ui_session
-- takes: session_id text, name text, role text, fingerprint text, created_at_ms bigint
INSERT INTO ui_sessions ({columns}, seen_at_ms) SELECT {q.columns}, q.created_at_ms FROM {rows} WHERE true;

-- name: get_ui_session
-- takes: session_id text
SELECT q.n, t.session_id, t.name, t.role, t.fingerprint, t.created_at_ms, t.seen_at_ms
  FROM {rows} JOIN ui_sessions t ON t.session_id = q.session_id;

-- name: touch_ui_session
-- takes: session_id text, seen_at_ms bigint
UPDATE ui_sessions SET seen_at_ms = q.seen_at_ms
  FROM {rows} WHERE ui_sessions.session_id = q.session_id AND ui_sessions.seen_at_ms < q.seen_at_ms;

-- name: delete_ui_session
-- takes: session_id text
DELETE FROM ui_sessions WHERE session_id IN (SELECT q.session_id FROM {rows});

-- name: any_old_ui_session
-- unmerged
-- takes: seen_before_ms bigint
SELECT 1 FROM ui_sessions WHERE seen_at_ms < :seen_before_ms ORDER BY seen_at_ms LIMIT 1;

-- name: forget_ui_sessions
-- takes: seen_before_ms bigint
DELETE FROM ui_sessions WHERE seen_at_ms < (SELECT max(q.seen_before_ms) FROM {rows});
