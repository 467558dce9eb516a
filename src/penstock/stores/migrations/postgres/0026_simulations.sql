-- Simulations that were asked for over the API, with their results.
CREATE TABLE simulations (
  simulation_id TEXT COLLATE "C" PRIMARY KEY,
  namespace     TEXT COLLATE "C" NOT NULL,
  created_at_ms BIGINT NOT NULL,
  document      TEXT COLLATE "C" NOT NULL
);

CREATE INDEX simulations_page ON simulations (namespace, created_at_ms DESC, simulation_id DESC);
CREATE INDEX simulations_age ON simulations (created_at_ms);
