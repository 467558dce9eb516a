-- Streams: messages that workflows are sent, items that runs write; and updates that workflow code approves.

-- A question to replayed state: a query, or whether an update may be accepted.
ALTER TABLE query_tasks ADD COLUMN kind TEXT NOT NULL DEFAULT 'query';
DROP INDEX query_tasks_pending;
CREATE INDEX query_tasks_pending ON query_tasks (namespace, task_queue, kind, created_at_ms, query_id)
  WHERE state = 'pending';

CREATE TABLE message_streams (
  namespace        TEXT NOT NULL,
  workflow_id      TEXT NOT NULL,
  name             TEXT NOT NULL,
  run_id           TEXT NOT NULL,
  last_position    INTEGER NOT NULL,
  told_position    INTEGER NOT NULL CHECK (told_position <= last_position),
  through_position INTEGER NOT NULL CHECK (through_position <= told_position),
  PRIMARY KEY (namespace, workflow_id, name)
) WITHOUT ROWID;
CREATE INDEX message_streams_of_run ON message_streams (run_id, name);

CREATE TABLE messages (
  namespace   TEXT NOT NULL,
  workflow_id TEXT NOT NULL,
  stream      TEXT NOT NULL,
  position    INTEGER NOT NULL,
  run_id      TEXT NOT NULL,
  message_id  TEXT NOT NULL,
  digest      TEXT NOT NULL,
  input       TEXT,
  at_ms       INTEGER NOT NULL,
  PRIMARY KEY (namespace, workflow_id, stream, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_id ON messages (namespace, workflow_id, stream, message_id);
CREATE INDEX messages_of_run ON messages (run_id);

CREATE TABLE workflow_streams (
  run_id              TEXT NOT NULL,
  name                TEXT NOT NULL,
  opened_at_ms        INTEGER NOT NULL,
  status              TEXT NOT NULL,
  total_items         INTEGER NOT NULL,
  read_items          INTEGER NOT NULL,
  error_reason        TEXT,
  last_appended_at_ms INTEGER,
  closed_at_ms        INTEGER,
  retention_s         INTEGER,
  expires_at_ms       INTEGER,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;
CREATE INDEX workflow_streams_expiring ON workflow_streams (expires_at_ms, run_id, name)
  WHERE expires_at_ms IS NOT NULL;

CREATE TABLE stream_items (
  run_id           TEXT NOT NULL,
  stream           TEXT NOT NULL,
  item_offset      INTEGER NOT NULL,
  payload          TEXT,
  reference        TEXT,
  idempotency_key  TEXT,
  item_type        TEXT,
  content_type     TEXT,
  origin           TEXT NOT NULL,
  origin_reference TEXT,
  emitted_at_ms    INTEGER NOT NULL,
  size             INTEGER NOT NULL,
  PRIMARY KEY (run_id, stream, item_offset)
) WITHOUT ROWID;
CREATE UNIQUE INDEX stream_items_by_key ON stream_items (run_id, stream, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
