-- One scale of priority levels, 0 to 9 with 5 as default, on which priority keys 1 to 5 are the levels 1, 3, 5, 7 and 9.
-- So far the numbers were one: a key was the level of the same number, 3 the default. A row does not say which of the two
-- its caller gave, so everything is read as a key, and what waits keeps its order; 6 to 9, which are no keys, join 9.
-- Older servers know another default: stop all servers, migrate, start the new ones.

UPDATE runs SET level = CASE WHEN level < 5 THEN 2 * level - 1 ELSE 9 END WHERE level BETWEEN 2 AND 9;
UPDATE tasks SET level = CASE WHEN level < 5 THEN 2 * level - 1 ELSE 9 END WHERE level BETWEEN 2 AND 9;

-- Lanes that meet at level 9 become one. It is new to its level: the next claim gives it a tag and looks at its limits.
CREATE TABLE earlier_lanes AS SELECT * FROM lanes WHERE level > 1;
DELETE FROM lanes WHERE level > 1;
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, state, override_milli, rank,
                   open_at_ms, base, minute, dispatched, dispatched_before)
SELECT queue_id, 2 * level - 1, key, tag, weight_milli, wanted_milli, count, state, override_milli, rank,
       open_at_ms, base, minute, dispatched, dispatched_before
  FROM earlier_lanes WHERE level < 5;
INSERT INTO lanes (queue_id, level, key, tag, weight_milli, wanted_milli, count, state, override_milli)
SELECT queue_id, 9, key, 0, max(weight_milli), max(wanted_milli), CAST(sum(count) AS BIGINT), 1, max(override_milli)
  FROM earlier_lanes WHERE level > 4 AND count > 0 GROUP BY queue_id, key;
DROP TABLE earlier_lanes;

CREATE TABLE earlier_clocks AS SELECT * FROM clocks WHERE level > 1;
DELETE FROM clocks WHERE level > 1;
INSERT INTO clocks (queue_id, level, virtual, placed)
SELECT queue_id, CASE WHEN level < 5 THEN 2 * level - 1 ELSE 9 END, max(virtual), max(placed)
  FROM earlier_clocks GROUP BY 1, 2;
DROP TABLE earlier_clocks;
