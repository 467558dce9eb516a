-- Samples of task queues for charts. A ring of slots per resolution: later samples overwrite earlier ones.
CREATE TABLE series_steps (
  clock_id  INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL
);

CREATE TABLE samples (
  queue_id INTEGER NOT NULL,
  step_s   INTEGER NOT NULL,
  slot     INTEGER NOT NULL,
  at_ms    INTEGER NOT NULL,
  sample   TEXT NOT NULL,
  PRIMARY KEY (queue_id, step_s, slot)
) WITHOUT ROWID;
