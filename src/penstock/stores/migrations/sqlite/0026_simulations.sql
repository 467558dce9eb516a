-- Simulations that were asked for over the API, with their results.
CREATE TABLE simulations (
  simulation_id TEXT PRIMARY KEY,
  namespace     TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  document      TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX simulations_page ON simulations (namespace, created_at_ms DESC, simulation_id DESC);
CREATE INDEX simulations_age ON simulations (created_at_ms);
