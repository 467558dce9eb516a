"""The pages about what does the work and what starts it: workers and builds, standalone tasks, schedules."""

from __future__ import annotations

from typing import Final

from penstock.server.dashboard.page_rows import Action, Page
from penstock.server.dashboard.pages.fleet import builds, schedules, task_commands, tasks, workers

_SCHEDULE: Final = "/schedules/{schedule_id}"
_TASK_ACT: Final = "/tasks/{activity_id}/act/{act}"
_DEREGISTER: Final = "/workers/{worker_id}/deregister"

FLEET_PAGES: Final = (
    Page("/workers", "workers.html", workers.load, "workers"),
    Page("/workers/{worker_id}", "worker.html", workers.load_one, "workers"),
    Page(_DEREGISTER, "change.html", workers.deregister_dialog, is_live=False, is_fragment=True),
    Page("/builds/{name}/{act}", "change.html", builds.dialog_of, is_live=False, is_fragment=True),
    Page("/tasks", "tasks.html", tasks.load, "tasks", is_live=False),
    Page("/tasks/{activity_id}", "task.html", tasks.load_one, "tasks"),
    Page(_TASK_ACT, "change.html", task_commands.dialog_of, is_live=False, is_fragment=True),
    Page("/schedules", "schedules.html", schedules.load, "schedules"),
    Page(_SCHEDULE, "schedule.html", schedules.load_one, "schedules", is_live=False),
    Page("/schedules/bulk/{act}", "change.html", schedules.bulk_dialog, is_live=False, is_fragment=True),
    Page(f"{_SCHEDULE}/act/{{act}}", "change.html", schedules.dialog_of, is_live=False, is_fragment=True),
)
FLEET_ACTIONS: Final = (
    Action(_DEREGISTER, workers.deregister),
    Action(_TASK_ACT, task_commands.carry_out),
    Action("/schedules/bulk/{act}", schedules.change_all),
    Action("/builds/{name}/{act}", builds.carry_out),
    Action(f"{_SCHEDULE}/act/{{act}}", schedules.carry_out),
)
