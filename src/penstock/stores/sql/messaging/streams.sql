-- columns: workflow_stream
--   run_id, name, opened_at_ms, status, total_items, read_items, error_reason, last_appended_at_ms,
--   closed_at_ms, retention_s
-- columns: stream_item
--   run_id, stream, item_offset, payload, reference, idempotency_key, item_type, content_type, origin,
--   origin_reference, emitted_at_ms

-- name: get_stream
-- takes: run_id text, name text
SELECT q.n, {workflow_stream}
  FROM {rows} JOIN workflow_streams t ON t.run_id = q.run_id AND t.name = q.name;

-- name: streams_of_run
-- takes: run_id text
SELECT q.n, {workflow_stream}
  FROM {rows} JOIN workflow_streams t ON t.run_id = q.run_id ORDER BY t.name;

-- name: item_offsets
-- takes: run_id text, stream text, idempotency_key text
SELECT q.n, t.item_offset
  FROM {rows} JOIN stream_items t ON t.run_id = q.run_id AND t.stream = q.stream
   AND t.idempotency_key = q.idempotency_key;

-- name: item_sizes
-- unmerged
-- takes: run_id text, stream text, first bigint, most bigint
SELECT 1, t.size FROM stream_items t
 WHERE t.run_id = :run_id AND t.stream = :stream AND t.item_offset >= :first
 ORDER BY t.item_offset LIMIT :most;

-- name: page_of_items
-- unmerged
-- takes: run_id text, stream text, first bigint, most bigint
SELECT 1, {stream_item} FROM stream_items t
 WHERE t.run_id = :run_id AND t.stream = :stream AND t.item_offset >= :first
 ORDER BY t.item_offset LIMIT :most;

-- name: expired_streams
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.run_id, t.name FROM workflow_streams t
 WHERE t.expires_at_ms <= :now_ms ORDER BY t.expires_at_ms, t.run_id, t.name LIMIT :most;

-- name: clear_items
-- unmerged
-- takes: run_id text, stream text, most bigint
DELETE FROM stream_items
 WHERE run_id = :run_id AND stream = :stream
   AND item_offset < (SELECT min(t.item_offset) FROM stream_items t
                       WHERE t.run_id = :run_id AND t.stream = :stream) + :most
RETURNING 1, item_offset;

-- name: insert_stream
-- takes: run_id text, name text, opened_at_ms bigint, status text, total_items bigint, read_items bigint, error_reason text, last_appended_at_ms bigint, closed_at_ms bigint, retention_s bigint, expires_at_ms bigint
INSERT INTO workflow_streams ({columns}) SELECT {q.columns} FROM {rows};

-- name: save_stream
-- takes: run_id text, name text, status text, total_items bigint, error_reason text, last_appended_at_ms bigint, closed_at_ms bigint, retention_s bigint, expires_at_ms bigint
UPDATE workflow_streams
   SET status = q.status, total_items = q.total_items, error_reason = q.error_reason,
       last_appended_at_ms = q.last_appended_at_ms, closed_at_ms = q.closed_at_ms, retention_s = q.retention_s,
       expires_at_ms = q.expires_at_ms
  FROM {rows} WHERE workflow_streams.run_id = q.run_id AND workflow_streams.name = q.name;

-- name: mark_stream_read
-- takes: run_id text, name text, items bigint
UPDATE workflow_streams SET read_items = q.items
  FROM {rows} WHERE workflow_streams.run_id = q.run_id AND workflow_streams.name = q.name
   AND workflow_streams.read_items < q.items AND workflow_streams.total_items >= q.items;

-- name: insert_item
-- takes: run_id text, stream text, item_offset bigint, payload text, reference text, idempotency_key text, item_type text, content_type text, origin text, origin_reference text, emitted_at_ms bigint, size bigint
INSERT INTO stream_items ({columns}) SELECT {q.columns} FROM {rows};

-- name: delete_stream
-- takes: run_id text, name text
DELETE FROM workflow_streams WHERE (run_id, name) IN (SELECT q.run_id, q.name FROM {rows});
