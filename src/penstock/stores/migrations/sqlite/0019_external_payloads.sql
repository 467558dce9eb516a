-- Objects in external storage, and the runs and schedules whose rows refer to them.
CREATE TABLE external_payloads (
  reference_id  TEXT PRIMARY KEY,
  namespace     TEXT NOT NULL,
  place         TEXT NOT NULL,
  sha256        TEXT NOT NULL,
  size_bytes    INTEGER NOT NULL,
  state         TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  check_at_ms   INTEGER
) WITHOUT ROWID;
CREATE INDEX external_payloads_to_check ON external_payloads (check_at_ms) WHERE check_at_ms IS NOT NULL;
CREATE INDEX external_payloads_of_namespace ON external_payloads (namespace, state, size_bytes);

CREATE TABLE payload_uses (
  owner        TEXT NOT NULL,
  reference_id TEXT NOT NULL,
  PRIMARY KEY (owner, reference_id)
) WITHOUT ROWID;
CREATE INDEX payload_uses_of_payload ON payload_uses (reference_id);
