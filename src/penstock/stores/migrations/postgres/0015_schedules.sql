-- Schedules, their fires and their events. The id of a deleted schedule may be used again: schedule_key is unique for ever.

CREATE TABLE schedules (
  schedule_key      TEXT COLLATE "C" NOT NULL,
  namespace         TEXT COLLATE "C" NOT NULL,
  schedule_id       TEXT COLLATE "C" NOT NULL,
  action_type       TEXT COLLATE "C" NOT NULL,
  status            TEXT COLLATE "C" NOT NULL,
  note              TEXT COLLATE "C",
  spec              TEXT COLLATE "C" NOT NULL,
  action            TEXT COLLATE "C" NOT NULL,
  policies          TEXT COLLATE "C" NOT NULL,
  progress          TEXT COLLATE "C" NOT NULL,
  memo              TEXT COLLATE "C" NOT NULL,
  search_attributes TEXT COLLATE "C" NOT NULL,
  cursor_at_ms      BIGINT NOT NULL,
  nominal_at_ms     BIGINT,
  due_at_ms         BIGINT,
  zone_version      TEXT COLLATE "C" NOT NULL,
  created_at_ms     BIGINT NOT NULL,
  updated_at_ms     BIGINT NOT NULL,
  version           BIGINT NOT NULL,
  PRIMARY KEY (schedule_key)
);
CREATE UNIQUE INDEX schedules_by_id ON schedules (namespace, schedule_id) WHERE status <> 'deleted';
CREATE INDEX schedules_of_id ON schedules (namespace, schedule_id, created_at_ms);
CREATE INDEX schedules_newest ON schedules (namespace, created_at_ms, schedule_key) WHERE status <> 'deleted';
CREATE INDEX schedules_due ON schedules (due_at_ms, schedule_key) WHERE due_at_ms IS NOT NULL;

-- `one-fire-per-moment`
CREATE TABLE fires (
  schedule_key  TEXT COLLATE "C" NOT NULL,
  nominal_at_ms BIGINT NOT NULL,
  kind          TEXT COLLATE "C" NOT NULL,
  state         TEXT COLLATE "C" NOT NULL,
  workflow_id   TEXT COLLATE "C",
  run_id        TEXT COLLATE "C",
  reason        TEXT COLLATE "C",
  at_ms         BIGINT NOT NULL,
  PRIMARY KEY (schedule_key, nominal_at_ms, kind)
);
CREATE INDEX fires_started ON fires (schedule_key, nominal_at_ms, kind) WHERE state = 'started';
CREATE INDEX fires_buffered ON fires (schedule_key, nominal_at_ms, kind) WHERE state = 'buffered';
CREATE INDEX fires_latest ON fires (schedule_key, at_ms);
CREATE INDEX fires_oldest ON fires (at_ms) WHERE state <> 'started' AND state <> 'buffered';

CREATE TABLE schedule_events (
  schedule_key TEXT COLLATE "C" NOT NULL,
  sequence     BIGINT NOT NULL,
  type         TEXT COLLATE "C" NOT NULL,
  payload      TEXT COLLATE "C" NOT NULL,
  workflow_id  TEXT COLLATE "C",
  run_id       TEXT COLLATE "C",
  at_ms        BIGINT NOT NULL,
  PRIMARY KEY (schedule_key, sequence)
);
CREATE INDEX schedule_events_oldest ON schedule_events (at_ms);

CREATE TYPE row_ttttttttttttbbbtbbb AS (
  c1 TEXT, c2 TEXT, c3 TEXT, c4 TEXT, c5 TEXT, c6 TEXT, c7 TEXT, c8 TEXT, c9 TEXT, c10 TEXT,
  c11 TEXT, c12 TEXT, c13 BIGINT, c14 BIGINT, c15 BIGINT, c16 TEXT, c17 BIGINT, c18 BIGINT,
  c19 BIGINT);
CREATE TYPE row_tbtttttb AS (
  c1 TEXT, c2 BIGINT, c3 TEXT, c4 TEXT, c5 TEXT, c6 TEXT, c7 TEXT, c8 BIGINT);
CREATE TYPE row_tbttttb AS (
  c1 TEXT, c2 BIGINT, c3 TEXT, c4 TEXT, c5 TEXT, c6 TEXT, c7 BIGINT);
