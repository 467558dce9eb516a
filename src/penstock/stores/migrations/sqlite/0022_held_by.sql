-- Tasks: what held one back until its last lease.

ALTER TABLE tasks ADD COLUMN held_by TEXT NOT NULL DEFAULT '';
