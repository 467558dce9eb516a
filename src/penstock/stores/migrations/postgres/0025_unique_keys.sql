-- Which run holds a unique key, until when, and how many starts it stands for. A row whose run holds it no more is free.
CREATE TABLE unique_keys (
  namespace    TEXT COLLATE "C" NOT NULL,
  scope        TEXT COLLATE "C" NOT NULL,
  unique_key   TEXT COLLATE "C" NOT NULL,
  run_id       TEXT COLLATE "C" NOT NULL,
  until        TEXT NOT NULL,
  starts       BIGINT NOT NULL,
  latest_at_ms BIGINT,
  PRIMARY KEY (namespace, scope, unique_key)
);
CREATE INDEX unique_keys_of_run ON unique_keys (run_id);

CREATE TYPE row_tttttbb AS (c1 TEXT, c2 TEXT, c3 TEXT, c4 TEXT, c5 TEXT, c6 BIGINT, c7 BIGINT);
