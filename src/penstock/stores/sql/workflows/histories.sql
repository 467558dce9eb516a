-- columns: event
--   run_id, sequence, type, payload, recorded_at_ms, task_id

-- fragment: events_so_far
--   SELECT e.*, sum(octet_length(e.payload)) OVER (ORDER BY e.sequence) - octet_length(e.payload) AS bytes_before
-- fragment: events_so_far_back
--   SELECT e.*, sum(octet_length(e.payload)) OVER (ORDER BY e.sequence DESC) - octet_length(e.payload) AS bytes_before

-- A page is limited by the number and by the size of its events.
-- name: page_history
-- unmerged
-- takes: run_id text, after bigint, most bigint, bytes bigint
SELECT 1, {event}
  FROM ({events_so_far}
          FROM (SELECT x.* FROM events x WHERE x.run_id = :run_id AND x.sequence > :after
                 ORDER BY x.sequence LIMIT :most) e) t
 WHERE t.bytes_before < :bytes ORDER BY t.sequence;

-- name: page_history_back
-- unmerged
-- takes: run_id text, before bigint, most bigint, bytes bigint
SELECT 1, {event}
  FROM ({events_so_far_back}
          FROM (SELECT x.* FROM events x WHERE x.run_id = :run_id AND x.sequence < :before
                 ORDER BY x.sequence DESC LIMIT :most) e) t
 WHERE t.bytes_before < :bytes ORDER BY t.sequence DESC;

-- name: last_event_of_type
-- takes: run_id text, types text
SELECT q.n, {event}
  FROM {rows} JOIN events t ON t.run_id = q.run_id
   AND t.sequence = (SELECT max(e.sequence) FROM events e
                      WHERE e.run_id = q.run_id AND instr(q.types, char(31) || e.type || char(31)) > 0);

-- name: buffered_events
-- takes: run_id text
SELECT q.n, t.type, t.payload FROM {rows} JOIN buffered_events t ON t.run_id = q.run_id ORDER BY t.number;

-- name: append_event
-- takes: run_id text, sequence bigint, type text, payload text, recorded_at_ms bigint, task_id text
INSERT INTO events ({columns}) SELECT {q.columns} FROM {rows};

-- name: buffer_event
-- takes: run_id text, number bigint, type text, payload text
INSERT INTO buffered_events ({columns}) SELECT {q.columns} FROM {rows};

-- name: clear_buffer
-- takes: run_id text
DELETE FROM buffered_events WHERE run_id IN (SELECT q.run_id FROM {rows});
