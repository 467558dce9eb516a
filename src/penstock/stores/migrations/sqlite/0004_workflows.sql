-- Workflows, whole: children, letters between runs, updates, requests that are told apart, and what a run waits for.

ALTER TABLE runs ADD COLUMN lineage TEXT NOT NULL DEFAULT '{}';
ALTER TABLE runs ADD COLUMN open_children INTEGER NOT NULL DEFAULT 0 CHECK (open_children >= 0);
ALTER TABLE runs ADD COLUMN open_updates INTEGER NOT NULL DEFAULT 0 CHECK (open_updates >= 0);
ALTER TABLE runs ADD COLUMN unseen_signals INTEGER NOT NULL DEFAULT 0 CHECK (unseen_signals >= 0);
ALTER TABLE runs ADD COLUMN last_request INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN owed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN waits TEXT NOT NULL DEFAULT '{}';
ALTER TABLE runs ADD COLUMN blocked TEXT;
ALTER TABLE runs ADD COLUMN archived_at_ms INTEGER;
-- Runs from before do not know which groups they have open: steps that are sent again are told by their number.
UPDATE runs SET waits = '{"old":true}'
 WHERE status IN ('pending', 'running', 'waiting') AND open_activities + open_timers > 0;
CREATE INDEX runs_blocked ON runs (namespace, task_queue, run_id) WHERE blocked IS NOT NULL;

ALTER TABLE tasks ADD COLUMN update_id TEXT;

-- Also a run that goes on in another one ends once.
DROP INDEX events_one_end;
CREATE UNIQUE INDEX events_one_end ON events (run_id) WHERE type IN (
  'WorkflowCompleted', 'WorkflowFailed', 'WorkflowCancelled', 'WorkflowTerminated', 'WorkflowTimedOut',
  'WorkflowContinuedAsNew');

CREATE TABLE children (
  parent_run_id TEXT NOT NULL,
  step          INTEGER NOT NULL,
  namespace     TEXT NOT NULL,
  workflow_id   TEXT NOT NULL,
  run_id        TEXT NOT NULL,
  workflow_type TEXT NOT NULL,
  policy        TEXT NOT NULL,
  extra         TEXT NOT NULL,
  state         TEXT NOT NULL,
  PRIMARY KEY (parent_run_id, step)
) WITHOUT ROWID;
CREATE INDEX children_open ON children (parent_run_id, step) WHERE state = 'open';

-- What one run has to tell another: recorded with its cause, deleted with its effect.
CREATE TABLE letters (
  letter_id     TEXT PRIMARY KEY,
  namespace     TEXT NOT NULL,
  workflow_id   TEXT NOT NULL,
  run_id        TEXT NOT NULL,
  kind          TEXT NOT NULL,
  payload       TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX letters_oldest ON letters (created_at_ms, letter_id);

CREATE TABLE updates (
  update_id      TEXT PRIMARY KEY,
  run_id         TEXT NOT NULL,
  namespace      TEXT NOT NULL,
  workflow_id    TEXT NOT NULL,
  number         INTEGER NOT NULL,
  name           TEXT NOT NULL,
  arguments      TEXT NOT NULL,
  request_id     TEXT,
  status         TEXT NOT NULL,
  outcome        TEXT,
  accepted_at_ms INTEGER NOT NULL,
  closed_at_ms   INTEGER
) WITHOUT ROWID;
CREATE INDEX updates_open ON updates (run_id, number) WHERE status = 'accepted';
CREATE INDEX updates_of_run ON updates (run_id, number);

CREATE TABLE requests (
  namespace   TEXT NOT NULL,
  workflow_id TEXT NOT NULL,
  kind        TEXT NOT NULL,
  request_id  TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  number      INTEGER NOT NULL,
  name        TEXT NOT NULL,
  digest      TEXT NOT NULL,
  receipt     TEXT NOT NULL,
  at_ms       INTEGER NOT NULL,
  PRIMARY KEY (namespace, workflow_id, kind, request_id)
) WITHOUT ROWID;
CREATE INDEX requests_of_run ON requests (run_id);
