-- What workers convey lapses, may name a burst, and may be contested by other workers.

ALTER TABLE queues ADD COLUMN worker_rate_until_ms INTEGER;
ALTER TABLE queues ADD COLUMN worker_rate_burst_ms INTEGER CHECK (worker_rate_burst_ms >= 0);
ALTER TABLE queues ADD COLUMN worker_rate_conflict TEXT;
