-- Tables and columns under the names that the code and the field use: outbox, sticky workers, lane states, lease caps.
-- Only names change. Older servers do not know them: stop all servers, migrate, start the new ones.

ALTER TABLE letters RENAME TO outbox;
ALTER TABLE outbox RENAME COLUMN letter_id TO message_id;
ALTER INDEX letters_pkey RENAME TO outbox_pkey;
ALTER INDEX letters_oldest RENAME TO outbox_oldest;

ALTER TABLE tasks RENAME COLUMN reserved_for TO sticky_worker_id;
ALTER TABLE tasks RENAME COLUMN reserved_until_ms TO sticky_until_ms;
ALTER INDEX tasks_reserved RENAME TO tasks_sticky;

ALTER TABLE lanes RENAME COLUMN place TO state;
ALTER INDEX lanes_fresh RENAME TO lanes_new;
ALTER INDEX lanes_stale RENAME TO lanes_dirty;
ALTER INDEX lanes_waiting RENAME TO lanes_throttled;
ALTER INDEX lanes_held RENAME TO lanes_blocked;

ALTER TABLE keys RENAME COLUMN running_limit TO lease_cap;

ALTER TABLE message_streams RENAME COLUMN told_position TO delivered_position;

-- Runs that were deleted and have rows left in other tables.
ALTER TABLE remains RENAME TO deleted_runs;
ALTER INDEX remains_pkey RENAME TO deleted_runs_pkey;
