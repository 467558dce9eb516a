-- Limits that several queues share, the declaration of a configuration, and the journal.

-- One row: which limits are in force. A new stamp with every change, so that servers know what they have read.
CREATE TABLE admission (
  id             BIGINT PRIMARY KEY CHECK (id = 1),
  version        BIGINT NOT NULL,
  stamp          TEXT COLLATE "C" NOT NULL,
  declared       TEXT COLLATE "C",
  declared_by    TEXT COLLATE "C",
  declared_at_ms BIGINT
);
INSERT INTO admission (id, version, stamp) VALUES (1, 0, '');

-- A namespace, a budget group or the cluster, for one kind of task or both. What runs is `granted` less what
-- ended: the first grows under the row's lock, the second in shards that nobody waits for. Neither shrinks.
CREATE TABLE scopes (
  scope_id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name          TEXT COLLATE "C" NOT NULL UNIQUE,
  policy        TEXT COLLATE "C",
  granted       BIGINT NOT NULL DEFAULT 0,
  dispatched    TEXT COLLATE "C",
  costs         TEXT COLLATE "C",
  cool_until_ms BIGINT,
  cool_given    BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE scope_ends (
  scope_id BIGINT NOT NULL,
  shard    BIGINT NOT NULL,
  ended    BIGINT NOT NULL,
  PRIMARY KEY (scope_id, shard)
) WITH (fillfactor = 50);

-- What tasks cost more (or less) than they were estimated to; folded into the scope by its next claim.
CREATE TABLE settlements (
  settlement_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  scope_id      BIGINT NOT NULL,
  at_ms         BIGINT NOT NULL,
  amount        BIGINT NOT NULL
);
CREATE INDEX settlements_of ON settlements (scope_id);
CREATE INDEX settlements_old ON settlements (at_ms);

CREATE TABLE scope_changes (
  name    TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  number  BIGINT NOT NULL,
  at_ms   BIGINT NOT NULL,
  author  TEXT COLLATE "C" NOT NULL,
  setting TEXT COLLATE "C" NOT NULL,
  before  TEXT COLLATE "C",
  after   TEXT COLLATE "C",
  reason  TEXT COLLATE "C",
  PRIMARY KEY (name, version, number)
);

ALTER TABLE queues ADD COLUMN dispatched TEXT COLLATE "C";
-- The stamp of the limits that its claims go by; written under its lock when they change.
ALTER TABLE queues ADD COLUMN stamp TEXT COLLATE "C" NOT NULL DEFAULT '';

-- `claimed`: handed out ahead of time, its permit not yet taken. `scopes`: who counts the lease, as ' 3 7 '.
ALTER TABLE tasks ADD COLUMN cost BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN scopes TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN claimed BIGINT NOT NULL DEFAULT 0;
-- When scopes began to count the lease; another delivery of it does not change that.
ALTER TABLE tasks ADD COLUMN granted_at_ms BIGINT;

-- What was granted and what ended, for those who check us.
CREATE TABLE journal (
  seq   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at_ms BIGINT NOT NULL,
  line  TEXT COLLATE "C" NOT NULL
);
CREATE INDEX journal_old ON journal (at_ms);

-- A worker may offer no slots for a kind of task.
ALTER TABLE workers DROP CONSTRAINT workers_workflow_slots_check;
ALTER TABLE workers DROP CONSTRAINT workers_activity_slots_check;
ALTER TABLE workers ADD CHECK (workflow_slots >= 0);
ALTER TABLE workers ADD CHECK (activity_slots >= 0);
