-- The same predicates as on SQLite, where comparisons cost less than lists.

DROP INDEX tasks_live;
CREATE INDEX tasks_live ON tasks (run_id) WHERE state <> 'done' AND state <> 'cancelled';

DROP INDEX tasks_one_decider;
CREATE UNIQUE INDEX tasks_one_decider ON tasks (run_id)
  WHERE kind = 'workflow' AND state <> 'done' AND state <> 'cancelled';
