-- Streams: messages that workflows are sent, items that runs write; and updates that workflow code approves.

-- A question to replayed state: a query, or whether an update may be accepted.
ALTER TABLE query_tasks ADD COLUMN kind TEXT COLLATE "C" NOT NULL DEFAULT 'query';
DROP INDEX query_tasks_pending;
CREATE INDEX query_tasks_pending ON query_tasks (namespace, task_queue, kind, created_at_ms, query_id)
  WHERE state = 'pending';

CREATE TABLE message_streams (
  namespace        TEXT COLLATE "C" NOT NULL,
  workflow_id      TEXT COLLATE "C" NOT NULL,
  name             TEXT COLLATE "C" NOT NULL,
  run_id           TEXT COLLATE "C" NOT NULL,
  last_position    BIGINT NOT NULL,
  told_position    BIGINT NOT NULL CHECK (told_position <= last_position),
  through_position BIGINT NOT NULL CHECK (through_position <= told_position),
  PRIMARY KEY (namespace, workflow_id, name)
);
CREATE INDEX message_streams_of_run ON message_streams (run_id, name);

CREATE TABLE messages (
  namespace   TEXT COLLATE "C" NOT NULL,
  workflow_id TEXT COLLATE "C" NOT NULL,
  stream      TEXT COLLATE "C" NOT NULL,
  position    BIGINT NOT NULL,
  run_id      TEXT COLLATE "C" NOT NULL,
  message_id  TEXT COLLATE "C" NOT NULL,
  digest      TEXT COLLATE "C" NOT NULL,
  input       TEXT COLLATE "C",
  at_ms       BIGINT NOT NULL,
  PRIMARY KEY (namespace, workflow_id, stream, position)
);
CREATE UNIQUE INDEX messages_by_id ON messages (namespace, workflow_id, stream, message_id);
CREATE INDEX messages_of_run ON messages (run_id);

CREATE TABLE workflow_streams (
  run_id              TEXT COLLATE "C" NOT NULL,
  name                TEXT COLLATE "C" NOT NULL,
  opened_at_ms        BIGINT NOT NULL,
  status              TEXT COLLATE "C" NOT NULL,
  total_items         BIGINT NOT NULL,
  read_items          BIGINT NOT NULL,
  error_reason        TEXT COLLATE "C",
  last_appended_at_ms BIGINT,
  closed_at_ms        BIGINT,
  retention_s         BIGINT,
  expires_at_ms       BIGINT,
  PRIMARY KEY (run_id, name)
);
CREATE INDEX workflow_streams_expiring ON workflow_streams (expires_at_ms, run_id, name)
  WHERE expires_at_ms IS NOT NULL;

CREATE TABLE stream_items (
  run_id           TEXT COLLATE "C" NOT NULL,
  stream           TEXT COLLATE "C" NOT NULL,
  item_offset      BIGINT NOT NULL,
  payload          TEXT COLLATE "C",
  reference        TEXT COLLATE "C",
  idempotency_key  TEXT COLLATE "C",
  item_type        TEXT COLLATE "C",
  content_type     TEXT COLLATE "C",
  origin           TEXT COLLATE "C" NOT NULL,
  origin_reference TEXT COLLATE "C",
  emitted_at_ms    BIGINT NOT NULL,
  size             BIGINT NOT NULL,
  PRIMARY KEY (run_id, stream, item_offset)
);
CREATE UNIQUE INDEX stream_items_by_key ON stream_items (run_id, stream, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
