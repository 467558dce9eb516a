-- Slots that are kept, and retries that keep to a budget.

-- When the process that a worker is now registered.
ALTER TABLE workers ADD COLUMN session_at_ms INTEGER NOT NULL DEFAULT 0;
UPDATE workers SET session_at_ms = registered_at_ms;

-- When a retry was due that has a later place.
ALTER TABLE tasks ADD COLUMN retry_due_at_ms INTEGER;

-- The next free place among the retries of a line; there is a row while the line has a budget for them.
CREATE TABLE retry_budgets (
  queue_id    INTEGER PRIMARY KEY,
  interval_ns INTEGER NOT NULL CHECK (interval_ns > 0),
  free_at_ns  INTEGER NOT NULL
) WITHOUT ROWID;

-- What a worker holds is counted by every claim, from the index alone.
DROP INDEX tasks_leased_by;
CREATE INDEX tasks_held_by ON tasks (namespace, lease_owner, kind, claimed, counted, granted_at_ms, state)
  WHERE state = 'leased';
