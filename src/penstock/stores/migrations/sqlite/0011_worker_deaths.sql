-- How many workers died running an activity, and whether it was ended because of them.

ALTER TABLE activities ADD COLUMN worker_deaths INTEGER NOT NULL DEFAULT 0 CHECK (worker_deaths >= 0);
ALTER TABLE activities ADD COLUMN quarantined INTEGER NOT NULL DEFAULT 0 CHECK (quarantined IN (0, 1));
