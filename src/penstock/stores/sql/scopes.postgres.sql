-- name: hold_admission
-- alone
SELECT 1, t.version FROM admission t WHERE t.id = 1 FOR SHARE;
