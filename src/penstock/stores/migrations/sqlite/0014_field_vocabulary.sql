-- Tables and columns under the names that the code and the field use: outbox, sticky workers, lane states, lease caps.
-- Only names change. SQLite renames no index: those of few rows are made again under their new names.

ALTER TABLE letters RENAME TO outbox;
ALTER TABLE outbox RENAME COLUMN letter_id TO message_id;
DROP INDEX letters_oldest;
CREATE INDEX outbox_oldest ON outbox (created_at_ms, message_id);

ALTER TABLE tasks RENAME COLUMN reserved_for TO sticky_worker_id;
ALTER TABLE tasks RENAME COLUMN reserved_until_ms TO sticky_until_ms;
DROP INDEX tasks_reserved;
CREATE INDEX tasks_sticky ON tasks (queue_id, sticky_until_ms, sticky_worker_id)
  WHERE state = 'ready' AND sticky_worker_id IS NOT NULL;

ALTER TABLE lanes RENAME COLUMN place TO state;
DROP INDEX lanes_fresh;
CREATE INDEX lanes_new ON lanes (queue_id, state, level, key) WHERE count > 0 AND state = 1;
DROP INDEX lanes_stale;
CREATE INDEX lanes_dirty ON lanes (queue_id, state, level, key) WHERE count > 0 AND state = 2;
DROP INDEX lanes_waiting;
CREATE INDEX lanes_throttled ON lanes (queue_id, open_at_ms) WHERE count > 0 AND state = 3;
DROP INDEX lanes_held;
CREATE INDEX lanes_blocked ON lanes (queue_id, state) WHERE count > 0 AND state = 4;

ALTER TABLE keys RENAME COLUMN running_limit TO lease_cap;

ALTER TABLE message_streams RENAME COLUMN told_position TO delivered_position;

-- Runs that were deleted and have rows left in other tables.
ALTER TABLE remains RENAME TO deleted_runs;
