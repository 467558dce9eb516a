-- What workers convey lapses, may name a burst, and may be contested by other workers.

ALTER TABLE queues ADD COLUMN worker_rate_until_ms BIGINT;
ALTER TABLE queues ADD COLUMN worker_rate_burst_ms BIGINT CHECK (worker_rate_burst_ms >= 0);
ALTER TABLE queues ADD COLUMN worker_rate_conflict TEXT COLLATE "C";
