-- Schedules, their fires and their events. The id of a deleted schedule may be used again: schedule_key is unique for ever.

CREATE TABLE schedules (
  schedule_key      TEXT NOT NULL,
  namespace         TEXT NOT NULL,
  schedule_id       TEXT NOT NULL,
  action_type       TEXT NOT NULL,
  status            TEXT NOT NULL,
  note              TEXT,
  spec              TEXT NOT NULL,
  action            TEXT NOT NULL,
  policies          TEXT NOT NULL,
  progress          TEXT NOT NULL,
  memo              TEXT NOT NULL,
  search_attributes TEXT NOT NULL,
  cursor_at_ms      INTEGER NOT NULL,
  nominal_at_ms     INTEGER,
  due_at_ms         INTEGER,
  zone_version      TEXT NOT NULL,
  created_at_ms     INTEGER NOT NULL,
  updated_at_ms     INTEGER NOT NULL,
  version           INTEGER NOT NULL,
  PRIMARY KEY (schedule_key)
);
CREATE UNIQUE INDEX schedules_by_id ON schedules (namespace, schedule_id) WHERE status <> 'deleted';
CREATE INDEX schedules_of_id ON schedules (namespace, schedule_id, created_at_ms);
CREATE INDEX schedules_newest ON schedules (namespace, created_at_ms, schedule_key) WHERE status <> 'deleted';
CREATE INDEX schedules_due ON schedules (due_at_ms, schedule_key) WHERE due_at_ms IS NOT NULL;

-- `one-fire-per-moment`
CREATE TABLE fires (
  schedule_key  TEXT NOT NULL,
  nominal_at_ms INTEGER NOT NULL,
  kind          TEXT NOT NULL,
  state         TEXT NOT NULL,
  workflow_id   TEXT,
  run_id        TEXT,
  reason        TEXT,
  at_ms         INTEGER NOT NULL,
  PRIMARY KEY (schedule_key, nominal_at_ms, kind)
);
CREATE INDEX fires_started ON fires (schedule_key, nominal_at_ms, kind) WHERE state = 'started';
CREATE INDEX fires_buffered ON fires (schedule_key, nominal_at_ms, kind) WHERE state = 'buffered';
CREATE INDEX fires_latest ON fires (schedule_key, at_ms);
CREATE INDEX fires_oldest ON fires (at_ms) WHERE state <> 'started' AND state <> 'buffered';

CREATE TABLE schedule_events (
  schedule_key TEXT NOT NULL,
  sequence     INTEGER NOT NULL,
  type         TEXT NOT NULL,
  payload      TEXT NOT NULL,
  workflow_id  TEXT,
  run_id       TEXT,
  at_ms        INTEGER NOT NULL,
  PRIMARY KEY (schedule_key, sequence)
);
CREATE INDEX schedule_events_oldest ON schedule_events (at_ms);
