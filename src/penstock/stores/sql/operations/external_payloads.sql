-- columns: payload
--   reference_id, namespace, place, sha256, size_bytes, state, created_at_ms, check_at_ms

-- name: get_external_payload
-- takes: reference_id text
SELECT q.n, {payload} FROM {rows} JOIN external_payloads t ON t.reference_id = q.reference_id;

-- name: lock_external_payload
-- unmerged
-- takes: reference_id text
SELECT 1, {payload} FROM external_payloads t WHERE t.reference_id = :reference_id {lock t};

-- name: external_payload_use
-- unmerged
-- takes: reference_id text
SELECT 1 FROM payload_uses t WHERE t.reference_id = :reference_id LIMIT 1;

-- name: due_external_payloads
-- unmerged
-- takes: now_ms bigint, most bigint
SELECT 1, t.reference_id FROM external_payloads t
 WHERE t.check_at_ms <= :now_ms ORDER BY t.check_at_ms LIMIT :most;

-- name: external_payload_totals
-- unmerged
-- takes: namespace text
SELECT 1, count(*), CAST(coalesce(sum(t.size_bytes), 0) AS bigint) FROM external_payloads t
 WHERE t.namespace = :namespace AND t.state = 'available';

-- name: insert_external_payload
-- unmerged
-- takes: reference_id text, namespace text, place text, sha256 text, size_bytes bigint, state text, created_at_ms bigint, check_at_ms bigint
INSERT INTO external_payloads ({columns}) VALUES ({values});

-- name: settle_external_payload
-- takes: reference_id text, state text, check_at_ms bigint
UPDATE external_payloads SET state = q.state, check_at_ms = q.check_at_ms
  FROM {rows} WHERE external_payloads.reference_id = q.reference_id;

-- name: insert_payload_use
-- Texts may mention what was never an object.
-- takes: owner text, reference_id text
INSERT INTO payload_uses ({columns})
SELECT {q.columns} FROM {rows}
 WHERE EXISTS (SELECT 1 FROM external_payloads t WHERE t.reference_id = q.reference_id)
ON CONFLICT (owner, reference_id) DO NOTHING;

-- name: release_payload_uses
-- unmerged
-- takes: owner text, most bigint
DELETE FROM payload_uses
 WHERE owner = :owner
   AND reference_id IN (SELECT t.reference_id FROM payload_uses t WHERE t.owner = :owner
                         ORDER BY t.reference_id LIMIT :most)
RETURNING 1, reference_id;

-- name: check_external_payload
-- takes: reference_id text, check_at_ms bigint
UPDATE external_payloads SET check_at_ms = q.check_at_ms
  FROM {rows} WHERE external_payloads.reference_id = q.reference_id AND external_payloads.check_at_ms IS NULL;

-- name: check_released_payloads
-- takes: owner text, check_at_ms bigint
UPDATE external_payloads SET check_at_ms = q.check_at_ms
  FROM {rows} JOIN payload_uses u ON u.owner = q.owner
 WHERE external_payloads.reference_id = u.reference_id AND external_payloads.check_at_ms IS NULL;

-- name: forget_payload_uses
-- takes: owner text
DELETE FROM payload_uses WHERE owner IN (SELECT q.owner FROM {rows});

-- name: delete_external_payload
-- takes: reference_id text
DELETE FROM external_payloads WHERE reference_id IN (SELECT q.reference_id FROM {rows});
