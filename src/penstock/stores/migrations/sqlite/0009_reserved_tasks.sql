-- A workflow task waits a while for the worker that keeps its run in memory.

ALTER TABLE tasks ADD COLUMN reserved_for TEXT;
ALTER TABLE tasks ADD COLUMN reserved_until_ms INTEGER;

-- Whom ready tasks wait for, and until when.
CREATE INDEX tasks_reserved ON tasks (queue_id, reserved_until_ms, reserved_for)
  WHERE state = 'ready' AND reserved_for IS NOT NULL;
