-- Which run holds a unique key, until when, and how many starts it stands for. A row whose run holds it no more is free.
CREATE TABLE unique_keys (
  namespace    TEXT NOT NULL,
  scope        TEXT NOT NULL,
  unique_key   TEXT NOT NULL,
  run_id       TEXT NOT NULL,
  until        TEXT NOT NULL,
  starts       INTEGER NOT NULL,
  latest_at_ms INTEGER,
  PRIMARY KEY (namespace, scope, unique_key)
);
CREATE INDEX unique_keys_of_run ON unique_keys (run_id);
