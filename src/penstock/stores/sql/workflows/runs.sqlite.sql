-- name: save_run_progress
-- takes: run_id text, status text, last_progress_at_ms bigint, last_sequence bigint, last_step bigint, last_task bigint, open_activities bigint, open_timers bigint, buffered bigint, open_children bigint, open_updates bigint, unseen_signals bigint, last_request bigint, owed bigint, waits text
-- Like save_run, without indexed columns. SQLite rewrites the entries of every index of which an update names a column,
-- whether its value changes or not.
UPDATE runs
   SET status = q.status, last_progress_at_ms = q.last_progress_at_ms, last_sequence = q.last_sequence,
       last_step = q.last_step, last_task = q.last_task, open_activities = q.open_activities,
       open_timers = q.open_timers, buffered = q.buffered, open_children = q.open_children,
       open_updates = q.open_updates, unseen_signals = q.unseen_signals, last_request = q.last_request,
       owed = q.owed, waits = q.waits
  FROM {rows} WHERE runs.run_id = q.run_id;
