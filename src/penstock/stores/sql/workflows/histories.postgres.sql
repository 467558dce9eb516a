-- name: page_history
-- takes: run_id text, after bigint, most bigint, bytes bigint
SELECT q.n, {event}
  FROM {rows} CROSS JOIN LATERAL (
       {events_so_far}
         FROM (SELECT x.* FROM events x WHERE x.run_id = q.run_id AND x.sequence > q.after
                ORDER BY x.sequence LIMIT q.most) e) t
 WHERE t.bytes_before < q.bytes
 ORDER BY q.n, t.sequence;
