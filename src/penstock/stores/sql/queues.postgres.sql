-- name: take_tasks
-- takes: queue_id bigint, level bigint, key text, most bigint, types text, build_id text
SELECT q.n, t.task_id, t.queue_id, t.namespace, t.task_queue, t.kind, t.run_id, t.activity_id, t.type, t.compatibility,
       t.level, t.key, t.state, t.available_at_ms, t.enqueued_at_ms, t.attempt, t.lease_owner, t.lease_token,
       t.lease_expires_at_ms, t.leased_at_ms, t.poll_request_id, t.done_token, t.done_digest, t.done_outcome,
       t.last_error, t.seq
  FROM {rows} CROSS JOIN LATERAL (
       SELECT t.* FROM tasks t
        WHERE t.queue_id = q.queue_id AND t.level = q.level AND t.key = q.key AND t.state = 'ready'
          AND (q.types = '' OR instr(q.types, char(31) || t.type || char(31)) > 0)
       AND (t.compatibility IS NULL OR t.compatibility = q.build_id)
        ORDER BY t.seq LIMIT q.most FOR UPDATE) t
 ORDER BY q.n, t.seq;
