-- Samples of task queues for charts. A ring of slots per resolution: later samples overwrite earlier ones.
CREATE TABLE series_steps (
  clock_id  BIGINT PRIMARY KEY,
  at_ms BIGINT NOT NULL
);

CREATE TABLE samples (
  queue_id BIGINT NOT NULL,
  step_s   BIGINT NOT NULL,
  slot     BIGINT NOT NULL,
  at_ms    BIGINT NOT NULL,
  sample   TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (queue_id, step_s, slot)
);
