-- Schedules: zone data by version, so that a server with older data leaves them alone, and their updates by version.
-- A schedule in UTC needs no zone data: its version is empty.

UPDATE schedules SET zone_version = '' WHERE coalesce(json_extract(spec, '$.timezone'), 'UTC') = 'UTC';
CREATE INDEX schedules_zone_data ON schedules (zone_version) WHERE status = 'active' AND zone_version <> '';
CREATE INDEX schedule_updates ON schedule_events (schedule_key, sequence) WHERE type = 'ScheduleUpdated';
