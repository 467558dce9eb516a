-- columns: letter
--   letter_id, namespace, workflow_id, run_id, kind, payload, created_at_ms

-- name: get_outbox_message
-- takes: letter_id text
SELECT q.n, {letter}
  FROM {rows} JOIN letters t ON t.letter_id = q.letter_id;

-- name: lock_outbox_message
-- takes: letter_id text
SELECT q.n, {letter}
  FROM {rows} JOIN letters t ON t.letter_id = q.letter_id ORDER BY t.letter_id {lock t};

-- name: waiting_outbox_messages
-- alone
-- takes: most bigint
SELECT 1, t.letter_id FROM letters t ORDER BY t.created_at_ms, t.letter_id LIMIT :most;

-- name: insert_outbox_message
-- takes: letter_id text, namespace text, workflow_id text, run_id text, kind text, payload text, created_at_ms bigint
INSERT INTO letters ({columns}) SELECT {q.columns} FROM {rows};

-- name: delete_outbox_message
-- takes: letter_id text
DELETE FROM letters WHERE letter_id IN (SELECT q.letter_id FROM {rows});
