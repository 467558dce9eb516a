-- name: page_history
-- takes: run_id text, after bigint, most bigint
SELECT q.n, {event}
  FROM {rows} CROSS JOIN LATERAL (
       SELECT e.* FROM events e WHERE e.run_id = q.run_id AND e.sequence > q.after
        ORDER BY e.sequence LIMIT q.most) t
 ORDER BY q.n, t.sequence;
