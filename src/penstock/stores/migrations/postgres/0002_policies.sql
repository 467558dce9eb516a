-- Rates, limits and weights that an operator sets, and the order of arrival beside the fair one.

ALTER TABLE namespaces ADD COLUMN fair BIGINT NOT NULL DEFAULT 1;

ALTER TABLE queues ADD COLUMN policy TEXT COLLATE "C";
ALTER TABLE queues ADD COLUMN worker_rate_micro BIGINT CHECK (worker_rate_micro > 0);
ALTER TABLE queues ADD COLUMN worker_rate_by TEXT COLLATE "C";
ALTER TABLE queues ADD COLUMN worker_rate_at_ms BIGINT;
ALTER TABLE queues ADD COLUMN paid_until_ns BIGINT NOT NULL DEFAULT 0;
ALTER TABLE queues ADD COLUMN aging_turn BIGINT NOT NULL DEFAULT 0;

-- A busy lane stands at a place: 0 ready, 1 fresh, 2 stale, 3 waiting for tokens, 4 held.
ALTER TABLE lanes ADD COLUMN override_milli BIGINT CHECK (override_milli BETWEEN 1 AND 1000000);
ALTER TABLE lanes ADD COLUMN rank BIGINT NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN open_at_ms BIGINT;
ALTER TABLE lanes ADD COLUMN base BIGINT;
ALTER TABLE lanes ADD COLUMN minute BIGINT NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN dispatched BIGINT NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN dispatched_before BIGINT NOT NULL DEFAULT 0;
DROP INDEX lanes_ready;
DROP INDEX lanes_to_place;
CREATE INDEX lanes_ready ON lanes (queue_id, level, rank, tag, key) WHERE count > 0 AND place = 0;
CREATE INDEX lanes_fresh ON lanes (queue_id, place, level, key) WHERE count > 0 AND place = 1;
CREATE INDEX lanes_stale ON lanes (queue_id, place, level, key) WHERE count > 0 AND place = 2;
CREATE INDEX lanes_held ON lanes (queue_id, place) WHERE count > 0 AND place = 4;
CREATE INDEX lanes_waiting ON lanes (queue_id, open_at_ms) WHERE count > 0 AND place = 3;

-- One key of a line over all levels: what was asked for it, what it has paid and what it runs.
CREATE TABLE keys (
  queue_id      BIGINT NOT NULL,
  key           TEXT COLLATE "C" NOT NULL,
  weight_milli  BIGINT CHECK (weight_milli BETWEEN 1 AND 1000000),
  rate_micro    BIGINT CHECK (rate_micro >= 0),
  running_limit BIGINT CHECK (running_limit >= 0),
  paused        BIGINT NOT NULL DEFAULT 0,
  author        TEXT COLLATE "C",
  at_ms         BIGINT,
  reason        TEXT COLLATE "C",
  paid_until_ns BIGINT NOT NULL DEFAULT 0,
  running       BIGINT NOT NULL DEFAULT 0 CHECK (running >= 0),
  PRIMARY KEY (queue_id, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200);
CREATE INDEX keys_idle ON keys (paid_until_ns) WHERE running = 0 AND at_ms IS NULL;
CREATE INDEX keys_with_settings ON keys (queue_id, key) WHERE at_ms IS NOT NULL;

CREATE TABLE policy_changes (
  queue_id BIGINT NOT NULL,
  version  BIGINT NOT NULL,
  number   BIGINT NOT NULL,
  at_ms    BIGINT NOT NULL,
  author   TEXT COLLATE "C" NOT NULL,
  setting  TEXT COLLATE "C" NOT NULL,
  key      TEXT COLLATE "C",
  before   TEXT COLLATE "C",
  after    TEXT COLLATE "C",
  reason   TEXT COLLATE "C",
  PRIMARY KEY (queue_id, version, number)
);

ALTER TABLE tasks ADD COLUMN counted BIGINT NOT NULL DEFAULT 0;
-- In order of arrival: for queues without shares, and to know who has waited longest at a level.
CREATE INDEX tasks_in_order ON tasks (queue_id, level, seq) WHERE state = 'ready';
CREATE INDEX tasks_in_order_route ON tasks (queue_id, route, level, seq) WHERE state = 'ready';
