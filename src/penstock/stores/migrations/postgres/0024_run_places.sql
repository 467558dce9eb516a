-- Caps on runs: who holds a place in a scope, and who waits in its line. A run waits in one line at a time.
CREATE TABLE run_places (
  seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run_id      TEXT COLLATE "C" NOT NULL,
  scope_id    BIGINT NOT NULL,
  waiting     BIGINT NOT NULL,
  level       BIGINT NOT NULL,
  ready_at_ms BIGINT NOT NULL,
  UNIQUE (run_id, scope_id)
);
CREATE INDEX run_places_held ON run_places (scope_id, seq) WHERE waiting = 0;
CREATE INDEX run_places_line ON run_places (scope_id, level, seq) WHERE waiting = 1;
CREATE UNIQUE INDEX run_places_one_line ON run_places (run_id) WHERE waiting = 1;

-- A task that is inserted while a pause holds it has the time at which it is due.
CREATE TYPE row_tbttttttttbttbbbbtbtb AS (
  c1 TEXT, c2 BIGINT, c3 TEXT, c4 TEXT, c5 TEXT, c6 TEXT, c7 TEXT, c8 TEXT, c9 TEXT, c10 TEXT, c11 BIGINT,
  c12 TEXT, c13 TEXT, c14 BIGINT, c15 BIGINT, c16 BIGINT, c17 BIGINT, c18 TEXT, c19 BIGINT, c20 TEXT, c21 BIGINT);
