-- columns: message_stream
--   namespace, workflow_id, name, run_id, last_position, delivered_position, through_position
-- columns: message
--   namespace, workflow_id, stream, position, run_id, message_id, digest, input, at_ms

-- name: message_streams_of_run
-- takes: run_id text
SELECT q.n, {message_stream}
  FROM {rows} JOIN message_streams t ON t.run_id = q.run_id ORDER BY t.name;

-- name: find_message
-- takes: namespace text, workflow_id text, stream text, message_id text
SELECT q.n, {message}
  FROM {rows} JOIN messages t ON t.namespace = q.namespace AND t.workflow_id = q.workflow_id
   AND t.stream = q.stream AND t.message_id = q.message_id;

-- name: undelivered_messages
-- takes: namespace text, workflow_id text, stream text, after bigint
SELECT q.n, {message}
  FROM {rows} JOIN messages t ON t.namespace = q.namespace AND t.workflow_id = q.workflow_id
   AND t.stream = q.stream AND t.position > q.after
 ORDER BY t.position;

-- name: save_message_stream
-- takes: namespace text, workflow_id text, name text, run_id text, last_position bigint, delivered_position bigint, through_position bigint
INSERT INTO message_streams ({columns})
SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.workflow_id, q.name
ON CONFLICT (namespace, workflow_id, name) DO UPDATE
   SET run_id = excluded.run_id, last_position = excluded.last_position, delivered_position = excluded.delivered_position,
       through_position = excluded.through_position;

-- name: insert_message
-- takes: namespace text, workflow_id text, stream text, position bigint, run_id text, message_id text, digest text, input text, at_ms bigint
INSERT INTO messages ({columns}) SELECT {q.columns} FROM {rows};

-- name: mark_messages_read
-- takes: namespace text, workflow_id text, stream text, after bigint, through bigint
UPDATE messages SET input = NULL
  FROM {rows} WHERE messages.namespace = q.namespace AND messages.workflow_id = q.workflow_id
   AND messages.stream = q.stream AND messages.position > q.after AND messages.position <= q.through;

-- name: carry_messages_over
-- takes: namespace text, workflow_id text, stream text, after bigint, run_id text
UPDATE messages SET run_id = q.run_id
  FROM {rows} WHERE messages.namespace = q.namespace AND messages.workflow_id = q.workflow_id
   AND messages.stream = q.stream AND messages.position > q.after;

-- name: forget_messages
-- unmerged
-- takes: namespace text, workflow_id text, stream text, through bigint
DELETE FROM messages
 WHERE namespace = :namespace AND workflow_id = :workflow_id AND stream = :stream AND position <= :through;
