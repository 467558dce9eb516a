-- name: notify_at_lease_end
-- takes: namespace text, worker_id text, kind text
-- Skips leases whose row is locked by a report under way; the caller sees that they are not counted.
UPDATE tasks SET counted = 2
  FROM (SELECT t.task_id FROM {rows} JOIN tasks t
            ON t.namespace = q.namespace AND t.lease_owner = q.worker_id AND t.state = 'leased'
           AND t.kind = q.kind AND t.counted = 0
           FOR UPDATE OF t SKIP LOCKED) AS held
 WHERE tasks.task_id = held.task_id;
