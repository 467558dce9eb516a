-- What an index holds is asked of every row that is written: in comparisons, for which nothing has to be built.

DROP INDEX tasks_live;
CREATE INDEX tasks_live ON tasks (run_id) WHERE state <> 'done' AND state <> 'cancelled';

DROP INDEX tasks_one_decider;
CREATE UNIQUE INDEX tasks_one_decider ON tasks (run_id)
  WHERE kind = 'workflow' AND state <> 'done' AND state <> 'cancelled';

DROP INDEX events_one_end;
CREATE UNIQUE INDEX events_one_end ON events (run_id)
  WHERE type = 'WorkflowCompleted' OR type = 'WorkflowFailed' OR type = 'WorkflowCancelled'
     OR type = 'WorkflowTerminated' OR type = 'WorkflowTimedOut' OR type = 'WorkflowContinuedAsNew';
