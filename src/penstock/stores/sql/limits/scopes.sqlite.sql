-- name: scopes_at_once
-- unmerged
-- takes: scope_ids text
-- One statement for all scopes; a single writer needs no locks.
SELECT 1, {scope}, {ended_in_scope}
  FROM {each :scope_ids} JOIN scopes t ON t.scope_id = each_.value ORDER BY t.scope_id;
