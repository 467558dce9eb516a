-- Limits that several queues share, the declaration of a configuration, and the journal.

-- One row: which limits are in force. A new stamp with every change, so that servers know what they have read.
CREATE TABLE admission (
  id             INTEGER PRIMARY KEY CHECK (id = 1),
  version        INTEGER NOT NULL,
  stamp          TEXT NOT NULL,
  declared       TEXT,
  declared_by    TEXT,
  declared_at_ms INTEGER
);
INSERT INTO admission (id, version, stamp) VALUES (1, 0, '');

-- A namespace, a budget group or the cluster, for one kind of task or both. What runs is `granted` less what
-- ended: the first grows under the row's lock, the second in shards that nobody waits for. Neither shrinks.
CREATE TABLE scopes (
  scope_id      INTEGER PRIMARY KEY,
  name          TEXT NOT NULL UNIQUE,
  policy        TEXT,
  granted       INTEGER NOT NULL DEFAULT 0,
  dispatched    TEXT,
  costs         TEXT,
  cool_until_ms INTEGER,
  cool_given    INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE scope_ends (
  scope_id INTEGER NOT NULL,
  shard    INTEGER NOT NULL,
  ended    INTEGER NOT NULL,
  PRIMARY KEY (scope_id, shard)
) WITHOUT ROWID;

-- What tasks cost more (or less) than they were estimated to; folded into the scope by its next claim.
CREATE TABLE settlements (
  settlement_id INTEGER PRIMARY KEY,
  scope_id      INTEGER NOT NULL,
  at_ms         INTEGER NOT NULL,
  amount        INTEGER NOT NULL
);
CREATE INDEX settlements_of ON settlements (scope_id);
CREATE INDEX settlements_old ON settlements (at_ms);

CREATE TABLE scope_changes (
  name    TEXT NOT NULL,
  version INTEGER NOT NULL,
  number  INTEGER NOT NULL,
  at_ms   INTEGER NOT NULL,
  author  TEXT NOT NULL,
  setting TEXT NOT NULL,
  before  TEXT,
  after   TEXT,
  reason  TEXT,
  PRIMARY KEY (name, version, number)
) WITHOUT ROWID;

ALTER TABLE queues ADD COLUMN dispatched TEXT;
-- The stamp of the limits that its claims go by; written under its lock when they change.
ALTER TABLE queues ADD COLUMN stamp TEXT NOT NULL DEFAULT '';

-- `claimed`: handed out ahead of time, its permit not yet taken. `scopes`: who counts the lease, as ' 3 7 '.
ALTER TABLE tasks ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN scopes TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN claimed INTEGER NOT NULL DEFAULT 0;
-- When scopes began to count the lease; another delivery of it does not change that.
ALTER TABLE tasks ADD COLUMN granted_at_ms INTEGER;

-- What was granted and what ended, for those who check us.
CREATE TABLE journal (
  seq   INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  line  TEXT NOT NULL
);
CREATE INDEX journal_old ON journal (at_ms);

-- A worker may offer no slots for a kind of task.
CREATE TABLE workers_with_no_slots (
  namespace            TEXT NOT NULL,
  worker_id            TEXT NOT NULL,
  task_queue           TEXT NOT NULL,
  runtime              TEXT NOT NULL,
  sdk_version          TEXT,
  build_id             TEXT,
  workflow_types       TEXT NOT NULL,
  activity_types       TEXT NOT NULL,
  fingerprints         TEXT NOT NULL,
  workflow_slots       INTEGER NOT NULL CHECK (workflow_slots >= 0),
  activity_slots       INTEGER NOT NULL CHECK (activity_slots >= 0),
  status               TEXT NOT NULL,
  advertised           TEXT NOT NULL,
  task_slots           TEXT,
  process_metrics      TEXT,
  heartbeat_interval_s INTEGER,
  registered_at_ms     INTEGER NOT NULL,
  heartbeat_at_ms      INTEGER NOT NULL,
  updated_at_ms        INTEGER NOT NULL,
  PRIMARY KEY (namespace, worker_id)
) WITHOUT ROWID;
INSERT INTO workers_with_no_slots SELECT * FROM workers;
DROP TABLE workers;
ALTER TABLE workers_with_no_slots RENAME TO workers;
CREATE INDEX workers_on ON workers (namespace, task_queue);
CREATE INDEX workers_silent ON workers (heartbeat_at_ms);
