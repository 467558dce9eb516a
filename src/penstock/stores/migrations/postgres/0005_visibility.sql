-- Finding runs: by what they are and by what they carry, newest first, without looking at all of them.

-- The indexes of workflow runs are for what is not an activity, so that no other index serves in their place.
CREATE INDEX runs_by_type ON runs (namespace, workflow_type, started_at_ms, run_id) WHERE host <> 'activity';
CREATE INDEX runs_by_queue ON runs (namespace, task_queue, started_at_ms, run_id) WHERE host <> 'activity';
CREATE INDEX runs_by_business_key ON runs (namespace, business_key, started_at_ms, run_id)
 WHERE host <> 'activity' AND business_key IS NOT NULL;
-- By why they closed, which changes once, and not by status, which changes often.
CREATE INDEX runs_by_end ON runs (namespace, coalesce(closed_reason, 'open'), started_at_ms, run_id)
 WHERE host <> 'activity';
DROP INDEX runs_of_instance;
CREATE INDEX runs_of_instance ON runs (namespace, workflow_id, started_at_ms, run_id);

-- What runs carry: search attributes, plain values of the memo, the parent. A value is a sortable text.
CREATE TABLE run_attributes (
  run_id        TEXT COLLATE "C" NOT NULL,
  name          TEXT COLLATE "C" NOT NULL,
  value         TEXT COLLATE "C" NOT NULL,
  namespace     TEXT COLLATE "C" NOT NULL,
  started_at_ms BIGINT NOT NULL,
  PRIMARY KEY (run_id, name, value)
);
CREATE INDEX run_attributes_newest ON run_attributes (namespace, name, value, started_at_ms, run_id);

-- Runs from before, whose attributes a sweeper writes down.
CREATE TABLE unindexed_runs (run_id TEXT COLLATE "C" PRIMARY KEY);
INSERT INTO unindexed_runs
SELECT run_id FROM runs WHERE host <> 'activity' AND (memo <> '{}' OR search_attributes <> '{}');

CREATE TABLE search_attributes (
  namespace TEXT COLLATE "C" NOT NULL,
  name      TEXT COLLATE "C" NOT NULL,
  type      TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (namespace, name)
);
