-- Keeping house: which runs may go, what remains of those that went, and which ones are in trouble.

CREATE INDEX runs_closed ON runs (namespace, closed_at_ms, run_id) WHERE closed_at_ms IS NOT NULL;
CREATE INDEX runs_failing ON runs (namespace, run_id) WHERE task_failures > 0 AND closed_at_ms IS NULL;

-- Runs that were deleted and whose rows were not yet: those go after them, in portions.
CREATE TABLE remains (
  run_id TEXT PRIMARY KEY
) WITHOUT ROWID;
