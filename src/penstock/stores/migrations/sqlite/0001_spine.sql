-- The spine: namespaces, runs and their histories, tasks in their lanes, workers.

CREATE TABLE namespaces (
  name             TEXT PRIMARY KEY,
  description      TEXT,
  retention_days   INTEGER NOT NULL CHECK (retention_days >= 1),
  status           TEXT NOT NULL,
  external_storage TEXT,
  created_at_ms    INTEGER NOT NULL,
  updated_at_ms    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE instances (
  namespace   TEXT NOT NULL,
  workflow_id TEXT NOT NULL,
  run_id      TEXT NOT NULL,
  run_count   INTEGER NOT NULL,
  PRIMARY KEY (namespace, workflow_id)
) WITHOUT ROWID;

CREATE TABLE runs (
  run_id                   TEXT PRIMARY KEY,
  namespace                TEXT NOT NULL,
  workflow_id              TEXT NOT NULL,
  run_number               INTEGER NOT NULL,
  host                     TEXT NOT NULL,
  workflow_type            TEXT NOT NULL,
  task_queue               TEXT NOT NULL,
  business_key             TEXT,
  level                    INTEGER NOT NULL CHECK (level BETWEEN 0 AND 9),
  key                      TEXT NOT NULL,
  weight_milli             INTEGER NOT NULL CHECK (weight_milli BETWEEN 1 AND 1000000),
  compatibility            TEXT,
  input                    TEXT NOT NULL,
  memo                     TEXT NOT NULL,
  search_attributes        TEXT NOT NULL,
  execution_timeout_s      INTEGER,
  run_timeout_s            INTEGER,
  execution_deadline_at_ms INTEGER,
  run_deadline_at_ms       INTEGER,
  started_at_ms            INTEGER NOT NULL,
  start_key                TEXT,
  status                   TEXT NOT NULL,
  closed_reason            TEXT,
  output                   TEXT,
  closed_at_ms             INTEGER,
  last_progress_at_ms      INTEGER NOT NULL,
  deadline_at_ms           INTEGER,
  last_sequence            INTEGER NOT NULL CHECK (last_sequence >= 0),
  last_step                INTEGER NOT NULL,
  last_task                INTEGER NOT NULL,
  open_activities          INTEGER NOT NULL CHECK (open_activities >= 0),
  open_timers              INTEGER NOT NULL CHECK (open_timers >= 0),
  buffered                 INTEGER NOT NULL CHECK (buffered >= 0),
  task_failures            INTEGER NOT NULL,
  task_error               TEXT
);
CREATE INDEX runs_newest ON runs (namespace, host, started_at_ms, run_id);
CREATE INDEX runs_of_instance ON runs (namespace, workflow_id, run_number);
CREATE INDEX runs_overdue ON runs (deadline_at_ms) WHERE deadline_at_ms IS NOT NULL;

-- `history-only-grows`: the key makes a second event with one sequence impossible.
CREATE TABLE events (
  run_id         TEXT NOT NULL,
  sequence       INTEGER NOT NULL CHECK (sequence >= 1),
  type           TEXT NOT NULL,
  payload        TEXT NOT NULL,
  recorded_at_ms INTEGER NOT NULL,
  task_id        TEXT,
  PRIMARY KEY (run_id, sequence)
) WITHOUT ROWID;

-- A run ends once.
CREATE UNIQUE INDEX events_one_end ON events (run_id) WHERE type IN (
  'WorkflowCompleted', 'WorkflowFailed', 'WorkflowCancelled', 'WorkflowTerminated', 'WorkflowTimedOut');

CREATE TABLE buffered_events (
  run_id  TEXT NOT NULL,
  number  INTEGER NOT NULL,
  type    TEXT NOT NULL,
  payload TEXT NOT NULL,
  PRIMARY KEY (run_id, number)
) WITHOUT ROWID;

CREATE TABLE activities (
  activity_id       TEXT PRIMARY KEY,
  run_id            TEXT NOT NULL,
  task_id           TEXT NOT NULL,
  step              INTEGER NOT NULL,
  activity_type     TEXT NOT NULL,
  task_queue        TEXT NOT NULL,
  arguments         TEXT NOT NULL,
  retry             TEXT NOT NULL,
  timeouts          TEXT NOT NULL,
  extra             TEXT NOT NULL,
  scheduled_at_ms   INTEGER NOT NULL,
  status            TEXT NOT NULL,
  attempt           INTEGER NOT NULL,
  started_at_ms     INTEGER,
  heartbeat_at_ms   INTEGER,
  heartbeat_details TEXT,
  deadline_at_ms    INTEGER,
  closed_at_ms      INTEGER
);
CREATE INDEX activities_open ON activities (run_id, step) WHERE closed_at_ms IS NULL;
CREATE INDEX activities_overdue ON activities (deadline_at_ms) WHERE deadline_at_ms IS NOT NULL;

CREATE TABLE timers (
  timer_id   TEXT PRIMARY KEY,
  run_id     TEXT NOT NULL,
  step       INTEGER NOT NULL,
  delay_s    INTEGER NOT NULL,
  fire_at_ms INTEGER NOT NULL,
  extra      TEXT NOT NULL,
  state      TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX timers_due ON timers (fire_at_ms) WHERE state = 'open';
CREATE INDEX timers_open ON timers (run_id) WHERE state = 'open';

CREATE TABLE queues (
  queue_id  INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  kind      TEXT NOT NULL,
  paused    INTEGER NOT NULL DEFAULT 0,
  UNIQUE (namespace, name, kind)
);

-- Keys are ordered, not tasks: one row holds the virtual time of all tasks of a (queue, level, key).
CREATE TABLE lanes (
  queue_id     INTEGER NOT NULL,
  level        INTEGER NOT NULL,
  key          TEXT NOT NULL,
  tag          INTEGER NOT NULL,
  weight_milli INTEGER NOT NULL CHECK (weight_milli BETWEEN 1 AND 1000000),
  wanted_milli INTEGER NOT NULL CHECK (wanted_milli BETWEEN 1 AND 1000000),
  count        INTEGER NOT NULL CHECK (count >= 0),
  place        INTEGER NOT NULL,
  PRIMARY KEY (queue_id, level, key)
) WITHOUT ROWID;
CREATE INDEX lanes_ready ON lanes (queue_id, level, tag, key) WHERE count > 0 AND place = 0;
CREATE INDEX lanes_idle ON lanes (queue_id, level, tag) WHERE count = 0;
CREATE INDEX lanes_to_place ON lanes (queue_id, place, level, key) WHERE count > 0 AND place = 1;

CREATE TABLE clocks (
  queue_id INTEGER NOT NULL,
  level    INTEGER NOT NULL,
  virtual  INTEGER NOT NULL,
  placed   INTEGER NOT NULL,
  PRIMARY KEY (queue_id, level)
) WITHOUT ROWID;

CREATE TABLE meters (
  queue_id   INTEGER NOT NULL,
  minute     INTEGER NOT NULL,
  added      INTEGER NOT NULL,
  dispatched INTEGER NOT NULL,
  PRIMARY KEY (queue_id, minute)
) WITHOUT ROWID;
CREATE INDEX meters_old ON meters (minute);

CREATE TABLE tasks (
  seq                 INTEGER PRIMARY KEY,
  task_id             TEXT NOT NULL UNIQUE,
  queue_id            INTEGER NOT NULL,
  namespace           TEXT NOT NULL,
  task_queue          TEXT NOT NULL,
  kind                TEXT NOT NULL,
  run_id              TEXT NOT NULL,
  activity_id         TEXT,
  type                TEXT NOT NULL,
  compatibility       TEXT,
  route               TEXT NOT NULL,
  level               INTEGER NOT NULL,
  key                 TEXT NOT NULL,
  state               TEXT NOT NULL,
  available_at_ms     INTEGER NOT NULL,
  enqueued_at_ms      INTEGER NOT NULL,
  attempt             INTEGER NOT NULL,
  lease_owner         TEXT,
  lease_token         TEXT,
  lease_expires_at_ms INTEGER,
  leased_at_ms        INTEGER,
  poll_request_id     TEXT,
  done_token          TEXT,
  done_digest         TEXT,
  done_outcome        TEXT,
  last_error          TEXT,
  -- `one-live-lease`: a leased task has an owner, a token and an end, and no other task has any of them.
  CHECK ((state = 'leased') = (lease_token IS NOT NULL)),
  CHECK ((state = 'leased') = (lease_expires_at_ms IS NOT NULL))
);
CREATE INDEX tasks_ready ON tasks (queue_id, level, key, seq) WHERE state = 'ready';
-- By route (type and build), so that what a worker cannot take costs it nothing, however much of it waits.
CREATE INDEX tasks_ready_route ON tasks (queue_id, route, level, key, seq) WHERE state = 'ready';
CREATE INDEX tasks_delayed ON tasks (available_at_ms) WHERE state = 'delayed';
CREATE INDEX tasks_delayed_on ON tasks (queue_id) WHERE state = 'delayed';
CREATE INDEX tasks_expiring ON tasks (lease_expires_at_ms) WHERE state = 'leased';
CREATE INDEX tasks_leased_on ON tasks (queue_id, lease_expires_at_ms) WHERE state = 'leased';
CREATE INDEX tasks_leased_by ON tasks (namespace, lease_owner) WHERE state = 'leased';
CREATE INDEX tasks_live ON tasks (run_id) WHERE state IN ('ready', 'delayed', 'leased');
-- At most one workflow task of a run is live, so two workers never decide one history at once.
CREATE UNIQUE INDEX tasks_one_decider ON tasks (run_id)
  WHERE kind = 'workflow' AND state IN ('ready', 'delayed', 'leased');

CREATE TABLE workers (
  namespace            TEXT NOT NULL,
  worker_id            TEXT NOT NULL,
  task_queue           TEXT NOT NULL,
  runtime              TEXT NOT NULL,
  sdk_version          TEXT,
  build_id             TEXT,
  workflow_types       TEXT NOT NULL,
  activity_types       TEXT NOT NULL,
  fingerprints         TEXT NOT NULL,
  workflow_slots       INTEGER NOT NULL CHECK (workflow_slots >= 1),
  activity_slots       INTEGER NOT NULL CHECK (activity_slots >= 1),
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
CREATE INDEX workers_on ON workers (namespace, task_queue);
CREATE INDEX workers_silent ON workers (heartbeat_at_ms);

CREATE TABLE cohorts (
  namespace          TEXT NOT NULL,
  task_queue         TEXT NOT NULL,
  build_id           TEXT NOT NULL,
  drain_intent       TEXT NOT NULL,
  drained_at_ms      INTEGER,
  promoted_at_ms     INTEGER,
  rolled_back_at_ms  INTEGER,
  new_start_selected INTEGER NOT NULL,
  updated_at_ms      INTEGER NOT NULL,
  PRIMARY KEY (namespace, task_queue, build_id)
) WITHOUT ROWID;

CREATE TABLE nonces (
  key           TEXT NOT NULL,
  nonce         TEXT NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  PRIMARY KEY (key, nonce)
) WITHOUT ROWID;
CREATE INDEX nonces_expiring ON nonces (expires_at_ms);

-- Ephemeral: a query task lives as long as its caller waits.
CREATE TABLE query_tasks (
  query_id            TEXT PRIMARY KEY,
  namespace           TEXT NOT NULL,
  task_queue          TEXT NOT NULL,
  run_id              TEXT NOT NULL,
  workflow_type       TEXT NOT NULL,
  compatibility       TEXT,
  name                TEXT NOT NULL,
  arguments           TEXT NOT NULL,
  created_at_ms       INTEGER NOT NULL,
  expires_at_ms       INTEGER NOT NULL,
  state               TEXT NOT NULL,
  attempt             INTEGER NOT NULL,
  lease_owner         TEXT,
  lease_expires_at_ms INTEGER,
  outcome             TEXT
) WITHOUT ROWID;
CREATE INDEX query_tasks_pending ON query_tasks (namespace, task_queue, created_at_ms, query_id)
  WHERE state = 'pending';
CREATE INDEX query_tasks_expiring ON query_tasks (expires_at_ms);
CREATE INDEX query_tasks_leased ON query_tasks (lease_expires_at_ms) WHERE state = 'leased';
