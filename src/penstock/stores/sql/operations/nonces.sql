-- name: register_nonce
-- unmerged
-- takes: key text, nonce text, expires_at_ms bigint
INSERT INTO nonces ({columns})
VALUES ({values})
ON CONFLICT (key, nonce) DO NOTHING
RETURNING 1, key, nonce;

-- name: any_expired_nonce
-- unmerged
-- takes: now_ms bigint
SELECT 1 FROM nonces WHERE expires_at_ms < :now_ms LIMIT 1;

-- name: forget_nonces
-- takes: before_ms bigint
DELETE FROM nonces WHERE expires_at_ms < (SELECT max(q.before_ms) FROM {rows});
