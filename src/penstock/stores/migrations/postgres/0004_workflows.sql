-- Workflows, whole: children, letters between runs, updates, requests that are told apart, and what a run waits for.

ALTER TABLE runs ADD COLUMN lineage TEXT COLLATE "C" NOT NULL DEFAULT '{}';
ALTER TABLE runs ADD COLUMN open_children BIGINT NOT NULL DEFAULT 0 CHECK (open_children >= 0);
ALTER TABLE runs ADD COLUMN open_updates BIGINT NOT NULL DEFAULT 0 CHECK (open_updates >= 0);
ALTER TABLE runs ADD COLUMN unseen_signals BIGINT NOT NULL DEFAULT 0 CHECK (unseen_signals >= 0);
ALTER TABLE runs ADD COLUMN last_request BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN owed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN waits TEXT COLLATE "C" NOT NULL DEFAULT '{}';
ALTER TABLE runs ADD COLUMN blocked TEXT COLLATE "C";
ALTER TABLE runs ADD COLUMN archived_at_ms BIGINT;
-- Runs from before do not know which groups they have open: steps that are sent again are told by their number.
UPDATE runs SET waits = '{"old":true}'
 WHERE status IN ('pending', 'running', 'waiting') AND open_activities + open_timers > 0;
CREATE INDEX runs_blocked ON runs (namespace, task_queue, run_id) WHERE blocked IS NOT NULL;

ALTER TABLE tasks ADD COLUMN update_id TEXT COLLATE "C";

-- Also a run that goes on in another one ends once.
DROP INDEX events_one_end;
CREATE UNIQUE INDEX events_one_end ON events (run_id) WHERE type IN (
  'WorkflowCompleted', 'WorkflowFailed', 'WorkflowCancelled', 'WorkflowTerminated', 'WorkflowTimedOut',
  'WorkflowContinuedAsNew');

CREATE TABLE children (
  parent_run_id TEXT COLLATE "C" NOT NULL,
  step          BIGINT NOT NULL,
  namespace     TEXT COLLATE "C" NOT NULL,
  workflow_id   TEXT COLLATE "C" NOT NULL,
  run_id        TEXT COLLATE "C" NOT NULL,
  workflow_type TEXT COLLATE "C" NOT NULL,
  policy        TEXT COLLATE "C" NOT NULL,
  extra         TEXT COLLATE "C" NOT NULL,
  state         TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (parent_run_id, step)
);
CREATE INDEX children_open ON children (parent_run_id, step) WHERE state = 'open';

-- What one run has to tell another: recorded with its cause, deleted with its effect.
CREATE TABLE letters (
  letter_id     TEXT COLLATE "C" PRIMARY KEY,
  namespace     TEXT COLLATE "C" NOT NULL,
  workflow_id   TEXT COLLATE "C" NOT NULL,
  run_id        TEXT COLLATE "C" NOT NULL,
  kind          TEXT COLLATE "C" NOT NULL,
  payload       TEXT COLLATE "C" NOT NULL,
  created_at_ms BIGINT NOT NULL
);
CREATE INDEX letters_oldest ON letters (created_at_ms, letter_id);

CREATE TABLE updates (
  update_id      TEXT COLLATE "C" PRIMARY KEY,
  run_id         TEXT COLLATE "C" NOT NULL,
  namespace      TEXT COLLATE "C" NOT NULL,
  workflow_id    TEXT COLLATE "C" NOT NULL,
  number         BIGINT NOT NULL,
  name           TEXT COLLATE "C" NOT NULL,
  arguments      TEXT COLLATE "C" NOT NULL,
  request_id     TEXT COLLATE "C",
  status         TEXT COLLATE "C" NOT NULL,
  outcome        TEXT COLLATE "C",
  accepted_at_ms BIGINT NOT NULL,
  closed_at_ms   BIGINT
);
CREATE INDEX updates_open ON updates (run_id, number) WHERE status = 'accepted';
CREATE INDEX updates_of_run ON updates (run_id, number);

CREATE TABLE requests (
  namespace   TEXT COLLATE "C" NOT NULL,
  workflow_id TEXT COLLATE "C" NOT NULL,
  kind        TEXT COLLATE "C" NOT NULL,
  request_id  TEXT COLLATE "C" NOT NULL,
  run_id      TEXT COLLATE "C" NOT NULL,
  number      BIGINT NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  digest      TEXT COLLATE "C" NOT NULL,
  receipt     TEXT COLLATE "C" NOT NULL,
  at_ms       BIGINT NOT NULL,
  PRIMARY KEY (namespace, workflow_id, kind, request_id)
);
CREATE INDEX requests_of_run ON requests (run_id);
