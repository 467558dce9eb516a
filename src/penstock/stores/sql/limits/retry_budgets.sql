-- name: take_retry_place
-- unmerged
-- takes: queue_id bigint, now_ns bigint
UPDATE retry_budgets
   SET free_at_ns = CASE WHEN free_at_ns > :now_ns THEN free_at_ns ELSE :now_ns END + interval_ns
 WHERE queue_id = :queue_id
RETURNING 1, free_at_ns - interval_ns, interval_ns;

-- name: set_retry_budget
-- unmerged
-- takes: queue_id bigint, interval_ns bigint, now_ns bigint
-- A retry may have been scheduled just now under the previous budget.
INSERT INTO retry_budgets (queue_id, interval_ns, free_at_ns)
SELECT :queue_id, :interval_ns, :now_ns + :interval_ns WHERE true
ON CONFLICT (queue_id) DO UPDATE SET interval_ns = excluded.interval_ns, free_at_ns = excluded.free_at_ns;

-- name: drop_retry_budget
-- unmerged
-- takes: queue_id bigint
DELETE FROM retry_budgets WHERE queue_id = :queue_id;

-- name: give_back_retry_places
-- unmerged
-- takes: queue_id bigint
-- Runs after the budget's row is locked, so that concurrent retries wait for it. Tasks that a pause holds until
-- `core.pauses.HELD_AT_MS` keep their time too, and have no place.
UPDATE tasks SET available_at_ms = retry_due_at_ms, retry_due_at_ms = NULL
 WHERE queue_id = :queue_id AND state = 'delayed' AND retry_due_at_ms IS NOT NULL
   AND available_at_ms <> 253370764800000;
