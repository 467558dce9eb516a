-- Queues of a namespace that was deleted with its runs. Servers cache the id of a queue by its name, so its row stays, but
-- it is not listed until it has a task again.

ALTER TABLE queues ADD COLUMN cleared INTEGER NOT NULL DEFAULT 0;
