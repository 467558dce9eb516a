-- Change sets: several settings of limits that are applied, expired and undone as one.
CREATE TABLE change_sets (
  change_set_id TEXT COLLATE "C" PRIMARY KEY,
  namespace     TEXT COLLATE "C" NOT NULL,
  state         TEXT COLLATE "C" NOT NULL,
  created_at_ms BIGINT NOT NULL,
  due_at_ms     BIGINT,
  document      TEXT COLLATE "C" NOT NULL
);

CREATE INDEX change_sets_page ON change_sets (namespace, created_at_ms DESC, change_set_id DESC);
CREATE INDEX change_sets_due ON change_sets (due_at_ms) WHERE due_at_ms IS NOT NULL;

CREATE TYPE row_tttbbt AS (c1 TEXT, c2 TEXT, c3 TEXT, c4 BIGINT, c5 BIGINT, c6 TEXT);
