-- name: create_simulation
-- takes: simulation_id text, namespace text, created_at_ms bigint, document text
INSERT INTO simulations ({columns}) SELECT {q.columns} FROM {rows} WHERE true;

-- name: save_simulation
-- takes: simulation_id text, document text
UPDATE simulations SET document = q.document
  FROM {rows} WHERE simulations.simulation_id = q.simulation_id;

-- name: get_simulation
-- takes: namespace text, simulation_id text
SELECT q.n, t.document
  FROM {rows} JOIN simulations t ON t.simulation_id = q.simulation_id AND t.namespace = q.namespace;

-- name: lock_simulation
-- takes: simulation_id text
SELECT q.n, t.document
  FROM {rows} JOIN simulations t ON t.simulation_id = q.simulation_id ORDER BY t.simulation_id {lock t};

-- name: page_simulations
-- unmerged
-- takes: namespace text, most bigint
SELECT 1, t.document FROM simulations t WHERE t.namespace = :namespace
 ORDER BY t.created_at_ms DESC, t.simulation_id DESC LIMIT :most;

-- name: any_old_simulation
-- unmerged
-- takes: created_ms bigint
SELECT 1 FROM simulations t WHERE t.created_at_ms < :created_ms LIMIT 1;

-- name: delete_simulation
-- unmerged
-- takes: simulation_id text
DELETE FROM simulations WHERE simulation_id = :simulation_id;

-- name: forget_simulations
-- unmerged
-- takes: created_ms bigint
DELETE FROM simulations WHERE created_at_ms < :created_ms;
