-- name: notify_at_lease_end
-- takes: namespace text, worker_id text, kind text
-- A lease that somebody reports on right now is not waited for: whoever asks learns that it was left out.
UPDATE tasks SET counted = 2
  FROM (SELECT t.task_id FROM {rows} JOIN tasks t
            ON t.namespace = q.namespace AND t.lease_owner = q.worker_id AND t.state = 'leased'
           AND t.kind = q.kind AND t.counted = 0
           FOR UPDATE OF t SKIP LOCKED) AS held
 WHERE tasks.task_id = held.task_id;
