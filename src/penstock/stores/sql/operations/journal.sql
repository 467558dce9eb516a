-- name: append_journal
-- takes: at_ms bigint, line text
INSERT INTO journal ({columns}) SELECT {q.columns} FROM {rows} WHERE true ORDER BY q.n;

-- name: journal_page
-- unmerged
-- takes: after bigint, most bigint
SELECT 1, t.seq, t.line FROM journal t WHERE t.seq > :after ORDER BY t.seq LIMIT :most;

-- name: journal_between
-- An expression on the right of LIKE: for a bare parameter SQLite would plan anew for each value.
-- unmerged
-- takes: since_ms bigint, until_ms bigint, event text, after bigint, most bigint
SELECT 1, t.seq, t.line FROM journal t
 WHERE t.at_ms >= :since_ms AND t.at_ms <= :until_ms AND t.seq > :after AND t.line LIKE :event || ''
 ORDER BY t.seq LIMIT :most;

-- name: any_journal_before
-- unmerged
-- takes: at_ms bigint
SELECT 1 FROM journal t WHERE t.at_ms < :at_ms LIMIT 1;

-- name: forget_journal
-- takes: before_ms bigint
DELETE FROM journal WHERE at_ms < (SELECT max(q.before_ms) FROM {rows});
