-- Sessions of the dashboard. An id is the digest of a cookie, so that a copy of the table opens no session.
CREATE TABLE ui_sessions (
  session_id    TEXT COLLATE "C" PRIMARY KEY,
  name          TEXT COLLATE "C" NOT NULL,
  role          TEXT COLLATE "C" NOT NULL,
  fingerprint   TEXT COLLATE "C" NOT NULL,
  created_at_ms BIGINT NOT NULL,
  seen_at_ms    BIGINT NOT NULL
);

CREATE INDEX ui_sessions_seen ON ui_sessions (seen_at_ms);

-- The change logs of all limits, newest first, whatever they belong to.
CREATE INDEX policy_changes_newest ON policy_changes (at_ms);
CREATE INDEX scope_changes_newest ON scope_changes (at_ms);
