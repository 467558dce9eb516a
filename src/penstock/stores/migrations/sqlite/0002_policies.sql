-- Rates, limits and weights that an operator sets, and the order of arrival beside the fair one.

ALTER TABLE namespaces ADD COLUMN fair INTEGER NOT NULL DEFAULT 1;

ALTER TABLE queues ADD COLUMN policy TEXT;
ALTER TABLE queues ADD COLUMN worker_rate_micro INTEGER CHECK (worker_rate_micro > 0);
ALTER TABLE queues ADD COLUMN worker_rate_by TEXT;
ALTER TABLE queues ADD COLUMN worker_rate_at_ms INTEGER;
ALTER TABLE queues ADD COLUMN paid_until_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN aging_turn INTEGER NOT NULL DEFAULT 0;

-- A busy lane stands at a place: 0 ready, 1 fresh, 2 stale, 3 waiting for tokens, 4 held.
ALTER TABLE lanes ADD COLUMN override_milli INTEGER CHECK (override_milli BETWEEN 1 AND 1000000);
ALTER TABLE lanes ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN open_at_ms INTEGER;
ALTER TABLE lanes ADD COLUMN base INTEGER;
ALTER TABLE lanes ADD COLUMN minute INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN dispatched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN dispatched_before INTEGER NOT NULL DEFAULT 0;
DROP INDEX lanes_ready;
DROP INDEX lanes_to_place;
CREATE INDEX lanes_ready ON lanes (queue_id, level, rank, tag, key) WHERE count > 0 AND place = 0;
CREATE INDEX lanes_fresh ON lanes (queue_id, place, level, key) WHERE count > 0 AND place = 1;
CREATE INDEX lanes_stale ON lanes (queue_id, place, level, key) WHERE count > 0 AND place = 2;
CREATE INDEX lanes_held ON lanes (queue_id, place) WHERE count > 0 AND place = 4;
CREATE INDEX lanes_waiting ON lanes (queue_id, open_at_ms) WHERE count > 0 AND place = 3;

-- One key of a line over all levels: what was asked for it, what it has paid and what it runs.
CREATE TABLE keys (
  queue_id      INTEGER NOT NULL,
  key           TEXT NOT NULL,
  weight_milli  INTEGER CHECK (weight_milli BETWEEN 1 AND 1000000),
  rate_micro    INTEGER CHECK (rate_micro >= 0),
  running_limit INTEGER CHECK (running_limit >= 0),
  paused        INTEGER NOT NULL DEFAULT 0,
  author        TEXT,
  at_ms         INTEGER,
  reason        TEXT,
  paid_until_ns INTEGER NOT NULL DEFAULT 0,
  running       INTEGER NOT NULL DEFAULT 0 CHECK (running >= 0),
  PRIMARY KEY (queue_id, key)
) WITHOUT ROWID;
CREATE INDEX keys_idle ON keys (paid_until_ns) WHERE running = 0 AND at_ms IS NULL;
CREATE INDEX keys_with_settings ON keys (queue_id, key) WHERE at_ms IS NOT NULL;

CREATE TABLE policy_changes (
  queue_id INTEGER NOT NULL,
  version  INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  at_ms    INTEGER NOT NULL,
  author   TEXT NOT NULL,
  setting  TEXT NOT NULL,
  key      TEXT,
  before   TEXT,
  after    TEXT,
  reason   TEXT,
  PRIMARY KEY (queue_id, version, number)
) WITHOUT ROWID;

ALTER TABLE tasks ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;
-- In order of arrival: for queues without shares, and to know who has waited longest at a level.
CREATE INDEX tasks_in_order ON tasks (queue_id, level, seq) WHERE state = 'ready';
CREATE INDEX tasks_in_order_route ON tasks (queue_id, route, level, seq) WHERE state = 'ready';
