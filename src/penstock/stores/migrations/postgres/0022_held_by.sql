-- Tasks: what held one back until its last lease.

ALTER TABLE tasks ADD COLUMN held_by TEXT COLLATE "C" NOT NULL DEFAULT '';

-- The rows of `save_task`.
CREATE TYPE row_ttbbttbbtttttbtbbbtbt AS (
  c1 TEXT, c2 TEXT, c3 BIGINT, c4 BIGINT, c5 TEXT, c6 TEXT, c7 BIGINT, c8 BIGINT, c9 TEXT, c10 TEXT,
  c11 TEXT, c12 TEXT, c13 TEXT, c14 BIGINT, c15 TEXT, c16 BIGINT, c17 BIGINT, c18 BIGINT, c19 TEXT,
  c20 BIGINT, c21 TEXT
);
