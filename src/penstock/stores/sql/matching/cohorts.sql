-- columns: cohort
--   namespace, task_queue, build_id, drain_intent, drained_at_ms, promoted_at_ms, rolled_back_at_ms,
--   new_start_selected, updated_at_ms

-- name: get_cohort
-- takes: namespace text, task_queue text, build_id text
SELECT q.n, {cohort}
  FROM {rows} JOIN cohorts t
    ON t.namespace = q.namespace AND t.task_queue = q.task_queue AND t.build_id = q.build_id;

-- name: promoted_cohort
-- takes: namespace text, task_queue text
SELECT q.n, {cohort}
  FROM {rows} JOIN cohorts t
    ON t.namespace = q.namespace AND t.task_queue = q.task_queue AND t.new_start_selected = 1;

-- name: start_context
-- takes: namespace text, task_queue text
-- What a start needs to know: the promoted build, and whether the namespace has caps on runs.
SELECT q.n, t.build_id, s.scope_id
  FROM {rows}
  LEFT JOIN cohorts t
    ON t.namespace = q.namespace AND t.task_queue = q.task_queue AND t.new_start_selected = 1
  LEFT JOIN scopes s ON s.name = 'runs:' || q.namespace AND s.policy IS NOT NULL;

-- name: list_cohorts
-- takes: namespace text, task_queue text
SELECT q.n, {cohort}
  FROM {rows} JOIN cohorts t ON t.namespace = q.namespace AND t.task_queue = q.task_queue
 ORDER BY t.build_id;

-- name: save_cohort
-- takes: namespace text, task_queue text, build_id text, drain_intent text, drained_at_ms bigint, promoted_at_ms bigint, rolled_back_at_ms bigint, new_start_selected bigint, updated_at_ms bigint
INSERT INTO cohorts ({columns})
SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.namespace, q.task_queue, q.build_id
ON CONFLICT (namespace, task_queue, build_id) DO UPDATE
   SET drain_intent = excluded.drain_intent, drained_at_ms = excluded.drained_at_ms,
       promoted_at_ms = excluded.promoted_at_ms, rolled_back_at_ms = excluded.rolled_back_at_ms,
       new_start_selected = excluded.new_start_selected, updated_at_ms = excluded.updated_at_ms;
