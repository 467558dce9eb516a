-- name: uncount_key
-- takes: queue_id bigint, key text
-- Locks the rows in key order first, as claims do.
UPDATE keys SET running = keys.running - q.ended
  FROM (SELECT t.queue_id, t.key, q.ended
          FROM (SELECT q.queue_id, q.key, count(*) AS ended FROM {rows} GROUP BY q.queue_id, q.key) q
          JOIN keys t ON t.queue_id = q.queue_id AND t.key = q.key
         ORDER BY t.queue_id, t.key {lock t}) q
 WHERE keys.queue_id = q.queue_id AND keys.key = q.key;
