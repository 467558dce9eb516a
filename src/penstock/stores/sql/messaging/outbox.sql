-- columns: outbox_message
--   message_id, namespace, workflow_id, run_id, kind, payload, created_at_ms

-- name: get_outbox_message
-- takes: message_id text
SELECT q.n, {outbox_message}
  FROM {rows} JOIN outbox t ON t.message_id = q.message_id;

-- name: lock_outbox_message
-- takes: message_id text
SELECT q.n, {outbox_message}
  FROM {rows} JOIN outbox t ON t.message_id = q.message_id ORDER BY t.message_id {lock t};

-- name: waiting_outbox_messages
-- unmerged
-- takes: most bigint
SELECT 1, t.message_id FROM outbox t ORDER BY t.created_at_ms, t.message_id LIMIT :most;

-- name: insert_outbox_message
-- takes: message_id text, namespace text, workflow_id text, run_id text, kind text, payload text, created_at_ms bigint
INSERT INTO outbox ({columns}) SELECT {q.columns} FROM {rows};

-- name: delete_outbox_message
-- takes: message_id text
DELETE FROM outbox WHERE message_id IN (SELECT q.message_id FROM {rows});
