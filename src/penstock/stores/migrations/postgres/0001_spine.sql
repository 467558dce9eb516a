-- The spine: namespaces, runs and their histories, tasks in their lanes, workers.

CREATE TABLE namespaces (
  name             TEXT COLLATE "C" PRIMARY KEY,
  description      TEXT COLLATE "C",
  retention_days   BIGINT NOT NULL CHECK (retention_days >= 1),
  status           TEXT COLLATE "C" NOT NULL,
  external_storage TEXT COLLATE "C",
  created_at_ms    BIGINT NOT NULL,
  updated_at_ms    BIGINT NOT NULL
);

CREATE TABLE instances (
  namespace   TEXT COLLATE "C" NOT NULL,
  workflow_id TEXT COLLATE "C" NOT NULL,
  run_id      TEXT COLLATE "C" NOT NULL,
  run_count   BIGINT NOT NULL,
  PRIMARY KEY (namespace, workflow_id)
);

CREATE TABLE runs (
  run_id                   TEXT COLLATE "C" PRIMARY KEY,
  namespace                TEXT COLLATE "C" NOT NULL,
  workflow_id              TEXT COLLATE "C" NOT NULL,
  run_number               BIGINT NOT NULL,
  host                     TEXT COLLATE "C" NOT NULL,
  workflow_type            TEXT COLLATE "C" NOT NULL,
  task_queue               TEXT COLLATE "C" NOT NULL,
  business_key             TEXT COLLATE "C",
  level                    BIGINT NOT NULL CHECK (level BETWEEN 0 AND 9),
  key                      TEXT COLLATE "C" NOT NULL,
  weight_milli             BIGINT NOT NULL CHECK (weight_milli BETWEEN 1 AND 1000000),
  compatibility            TEXT COLLATE "C",
  input                    TEXT COLLATE "C" NOT NULL,
  memo                     TEXT COLLATE "C" NOT NULL,
  search_attributes        TEXT COLLATE "C" NOT NULL,
  execution_timeout_s      BIGINT,
  run_timeout_s            BIGINT,
  execution_deadline_at_ms BIGINT,
  run_deadline_at_ms       BIGINT,
  started_at_ms            BIGINT NOT NULL,
  start_key                TEXT COLLATE "C",
  status                   TEXT COLLATE "C" NOT NULL,
  closed_reason            TEXT COLLATE "C",
  output                   TEXT COLLATE "C",
  closed_at_ms             BIGINT,
  last_progress_at_ms      BIGINT NOT NULL,
  deadline_at_ms           BIGINT,
  last_sequence            BIGINT NOT NULL CHECK (last_sequence >= 0),
  last_step                BIGINT NOT NULL,
  last_task                BIGINT NOT NULL,
  open_activities          BIGINT NOT NULL CHECK (open_activities >= 0),
  open_timers              BIGINT NOT NULL CHECK (open_timers >= 0),
  buffered                 BIGINT NOT NULL CHECK (buffered >= 0),
  task_failures            BIGINT NOT NULL,
  task_error               TEXT COLLATE "C"
);
CREATE INDEX runs_newest ON runs (namespace, host, started_at_ms, run_id);
CREATE INDEX runs_of_instance ON runs (namespace, workflow_id, run_number);
CREATE INDEX runs_overdue ON runs (deadline_at_ms) WHERE deadline_at_ms IS NOT NULL;

-- `history-only-grows`: the key makes a second event with one sequence impossible.
CREATE TABLE events (
  run_id         TEXT COLLATE "C" NOT NULL,
  sequence       BIGINT NOT NULL CHECK (sequence >= 1),
  type           TEXT COLLATE "C" NOT NULL,
  payload        TEXT COLLATE "C" NOT NULL,
  recorded_at_ms BIGINT NOT NULL,
  task_id        TEXT COLLATE "C",
  PRIMARY KEY (run_id, sequence)
);

-- A run ends once.
CREATE UNIQUE INDEX events_one_end ON events (run_id) WHERE type IN (
  'WorkflowCompleted', 'WorkflowFailed', 'WorkflowCancelled', 'WorkflowTerminated', 'WorkflowTimedOut');

CREATE TABLE buffered_events (
  run_id  TEXT COLLATE "C" NOT NULL,
  number  BIGINT NOT NULL,
  type    TEXT COLLATE "C" NOT NULL,
  payload TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (run_id, number)
);

CREATE TABLE activities (
  activity_id       TEXT COLLATE "C" PRIMARY KEY,
  run_id            TEXT COLLATE "C" NOT NULL,
  task_id           TEXT COLLATE "C" NOT NULL,
  step              BIGINT NOT NULL,
  activity_type     TEXT COLLATE "C" NOT NULL,
  task_queue        TEXT COLLATE "C" NOT NULL,
  arguments         TEXT COLLATE "C" NOT NULL,
  retry             TEXT COLLATE "C" NOT NULL,
  timeouts          TEXT COLLATE "C" NOT NULL,
  extra             TEXT COLLATE "C" NOT NULL,
  scheduled_at_ms   BIGINT NOT NULL,
  status            TEXT COLLATE "C" NOT NULL,
  attempt           BIGINT NOT NULL,
  started_at_ms     BIGINT,
  heartbeat_at_ms   BIGINT,
  heartbeat_details TEXT COLLATE "C",
  deadline_at_ms    BIGINT,
  closed_at_ms      BIGINT
);
CREATE INDEX activities_open ON activities (run_id, step) WHERE closed_at_ms IS NULL;
CREATE INDEX activities_overdue ON activities (deadline_at_ms) WHERE deadline_at_ms IS NOT NULL;

CREATE TABLE timers (
  timer_id   TEXT COLLATE "C" PRIMARY KEY,
  run_id     TEXT COLLATE "C" NOT NULL,
  step       BIGINT NOT NULL,
  delay_s    BIGINT NOT NULL,
  fire_at_ms BIGINT NOT NULL,
  extra      TEXT COLLATE "C" NOT NULL,
  state      TEXT COLLATE "C" NOT NULL
);
CREATE INDEX timers_due ON timers (fire_at_ms) WHERE state = 'open';
CREATE INDEX timers_open ON timers (run_id) WHERE state = 'open';

CREATE TABLE queues (
  queue_id  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  namespace TEXT COLLATE "C" NOT NULL,
  name      TEXT COLLATE "C" NOT NULL,
  kind      TEXT COLLATE "C" NOT NULL,
  paused    BIGINT NOT NULL DEFAULT 0,
  UNIQUE (namespace, name, kind)
);

-- Keys are ordered, not tasks: one row holds the virtual time of all tasks of a (queue, level, key).
CREATE TABLE lanes (
  queue_id     BIGINT NOT NULL,
  level        BIGINT NOT NULL,
  key          TEXT COLLATE "C" NOT NULL,
  tag          BIGINT NOT NULL,
  weight_milli BIGINT NOT NULL CHECK (weight_milli BETWEEN 1 AND 1000000),
  wanted_milli BIGINT NOT NULL CHECK (wanted_milli BETWEEN 1 AND 1000000),
  count        BIGINT NOT NULL CHECK (count >= 0),
  place        BIGINT NOT NULL,
  PRIMARY KEY (queue_id, level, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200);
CREATE INDEX lanes_ready ON lanes (queue_id, level, tag, key) WHERE count > 0 AND place = 0;
CREATE INDEX lanes_idle ON lanes (queue_id, level, tag) WHERE count = 0;
CREATE INDEX lanes_to_place ON lanes (queue_id, place, level, key) WHERE count > 0 AND place = 1;

CREATE TABLE clocks (
  queue_id BIGINT NOT NULL,
  level    BIGINT NOT NULL,
  virtual  BIGINT NOT NULL,
  placed   BIGINT NOT NULL,
  PRIMARY KEY (queue_id, level)
);

CREATE TABLE meters (
  queue_id   BIGINT NOT NULL,
  minute     BIGINT NOT NULL,
  added      BIGINT NOT NULL,
  dispatched BIGINT NOT NULL,
  PRIMARY KEY (queue_id, minute)
);
CREATE INDEX meters_old ON meters (minute);

CREATE TABLE tasks (
  -- No index of its own: only together with a lane does the place in line order anything.
  seq                 BIGINT GENERATED ALWAYS AS IDENTITY,
  task_id             TEXT COLLATE "C" PRIMARY KEY,
  queue_id            BIGINT NOT NULL,
  namespace           TEXT COLLATE "C" NOT NULL,
  task_queue          TEXT COLLATE "C" NOT NULL,
  kind                TEXT COLLATE "C" NOT NULL,
  run_id              TEXT COLLATE "C" NOT NULL,
  activity_id         TEXT COLLATE "C",
  type                TEXT COLLATE "C" NOT NULL,
  compatibility       TEXT COLLATE "C",
  route               TEXT COLLATE "C" NOT NULL,
  level               BIGINT NOT NULL,
  key                 TEXT COLLATE "C" NOT NULL,
  state               TEXT COLLATE "C" NOT NULL,
  available_at_ms     BIGINT NOT NULL,
  enqueued_at_ms      BIGINT NOT NULL,
  attempt             BIGINT NOT NULL,
  lease_owner         TEXT COLLATE "C",
  lease_token         TEXT COLLATE "C",
  lease_expires_at_ms BIGINT,
  leased_at_ms        BIGINT,
  poll_request_id     TEXT COLLATE "C",
  done_token          TEXT COLLATE "C",
  done_digest         TEXT COLLATE "C",
  done_outcome        TEXT COLLATE "C",
  last_error          TEXT COLLATE "C",
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
  namespace            TEXT COLLATE "C" NOT NULL,
  worker_id            TEXT COLLATE "C" NOT NULL,
  task_queue           TEXT COLLATE "C" NOT NULL,
  runtime              TEXT COLLATE "C" NOT NULL,
  sdk_version          TEXT COLLATE "C",
  build_id             TEXT COLLATE "C",
  workflow_types       TEXT COLLATE "C" NOT NULL,
  activity_types       TEXT COLLATE "C" NOT NULL,
  fingerprints         TEXT COLLATE "C" NOT NULL,
  workflow_slots       BIGINT NOT NULL CHECK (workflow_slots >= 1),
  activity_slots       BIGINT NOT NULL CHECK (activity_slots >= 1),
  status               TEXT COLLATE "C" NOT NULL,
  advertised           TEXT COLLATE "C" NOT NULL,
  task_slots           TEXT COLLATE "C",
  process_metrics      TEXT COLLATE "C",
  heartbeat_interval_s BIGINT,
  registered_at_ms     BIGINT NOT NULL,
  heartbeat_at_ms      BIGINT NOT NULL,
  updated_at_ms        BIGINT NOT NULL,
  PRIMARY KEY (namespace, worker_id)
);
CREATE INDEX workers_on ON workers (namespace, task_queue);
CREATE INDEX workers_silent ON workers (heartbeat_at_ms);

CREATE TABLE cohorts (
  namespace          TEXT COLLATE "C" NOT NULL,
  task_queue         TEXT COLLATE "C" NOT NULL,
  build_id           TEXT COLLATE "C" NOT NULL,
  drain_intent       TEXT COLLATE "C" NOT NULL,
  drained_at_ms      BIGINT,
  promoted_at_ms     BIGINT,
  rolled_back_at_ms  BIGINT,
  new_start_selected BIGINT NOT NULL,
  updated_at_ms      BIGINT NOT NULL,
  PRIMARY KEY (namespace, task_queue, build_id)
);

CREATE TABLE nonces (
  key           TEXT COLLATE "C" NOT NULL,
  nonce         TEXT COLLATE "C" NOT NULL,
  expires_at_ms BIGINT NOT NULL,
  PRIMARY KEY (key, nonce)
);
CREATE INDEX nonces_expiring ON nonces (expires_at_ms);

-- Ephemeral: a query task lives as long as its caller waits.
CREATE TABLE query_tasks (
  query_id            TEXT COLLATE "C" PRIMARY KEY,
  namespace           TEXT COLLATE "C" NOT NULL,
  task_queue          TEXT COLLATE "C" NOT NULL,
  run_id              TEXT COLLATE "C" NOT NULL,
  workflow_type       TEXT COLLATE "C" NOT NULL,
  compatibility       TEXT COLLATE "C",
  name                TEXT COLLATE "C" NOT NULL,
  arguments           TEXT COLLATE "C" NOT NULL,
  created_at_ms       BIGINT NOT NULL,
  expires_at_ms       BIGINT NOT NULL,
  state               TEXT COLLATE "C" NOT NULL,
  attempt             BIGINT NOT NULL,
  lease_owner         TEXT COLLATE "C",
  lease_expires_at_ms BIGINT,
  outcome             TEXT COLLATE "C"
);
CREATE INDEX query_tasks_pending ON query_tasks (namespace, task_queue, created_at_ms, query_id)
  WHERE state = 'pending';
CREATE INDEX query_tasks_expiring ON query_tasks (expires_at_ms);
CREATE INDEX query_tasks_leased ON query_tasks (lease_expires_at_ms) WHERE state = 'leased';
