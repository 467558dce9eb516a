-- Change sets: several settings of limits that are applied, expired and undone as one.
CREATE TABLE change_sets (
  change_set_id TEXT PRIMARY KEY,
  namespace     TEXT NOT NULL,
  state         TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  due_at_ms     INTEGER,
  document      TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX change_sets_page ON change_sets (namespace, created_at_ms DESC, change_set_id DESC);
CREATE INDEX change_sets_due ON change_sets (due_at_ms) WHERE due_at_ms IS NOT NULL;
