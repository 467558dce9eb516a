-- Caps on runs: who holds a place in a scope, and who waits in its line. A run waits in one line at a time.
CREATE TABLE run_places (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id      TEXT NOT NULL,
  scope_id    INTEGER NOT NULL,
  waiting     INTEGER NOT NULL,
  level       INTEGER NOT NULL,
  ready_at_ms INTEGER NOT NULL,
  UNIQUE (run_id, scope_id)
);
CREATE INDEX run_places_held ON run_places (scope_id, seq) WHERE waiting = 0;
CREATE INDEX run_places_line ON run_places (scope_id, level, seq) WHERE waiting = 1;
CREATE UNIQUE INDEX run_places_one_line ON run_places (run_id) WHERE waiting = 1;
