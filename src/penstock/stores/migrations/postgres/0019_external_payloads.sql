-- Objects in external storage, and the runs and schedules whose rows refer to them.
CREATE TABLE external_payloads (
  reference_id  TEXT COLLATE "C" PRIMARY KEY,
  namespace     TEXT COLLATE "C" NOT NULL,
  place         TEXT COLLATE "C" NOT NULL,
  sha256        TEXT COLLATE "C" NOT NULL,
  size_bytes    BIGINT NOT NULL,
  state         TEXT COLLATE "C" NOT NULL,
  created_at_ms BIGINT NOT NULL,
  check_at_ms   BIGINT
);
CREATE INDEX external_payloads_to_check ON external_payloads (check_at_ms) WHERE check_at_ms IS NOT NULL;
CREATE INDEX external_payloads_of_namespace ON external_payloads (namespace, state, size_bytes);

CREATE TABLE payload_uses (
  owner        TEXT COLLATE "C" NOT NULL,
  reference_id TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (owner, reference_id)
);
CREATE INDEX payload_uses_of_payload ON payload_uses (reference_id);
