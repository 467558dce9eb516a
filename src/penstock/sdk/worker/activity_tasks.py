"""Activity tasks: run the function, report how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.sdk.activities.info import kept_details
from penstock.sdk.activities.runner import ActivityRunner
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.worker.leases import renewing
from penstock.sdk.worker.plane import Plane
from penstock.sdk.worker.reports import Reports
from penstock.sdk.worker.trouble import is_lost, log

Json = dict[str, Any]


class ActivityTasks:
    def __init__(self, plane: Plane, reports: Reports, runner: ActivityRunner) -> None:
        self._plane, self._reports, self._runner = plane, reports, runner
        self._told: dict[str, Json] = {}
        """What the last heartbeat of each task said: a renewal says it again, since the server keeps the last one."""

    async def beat(self, task: Mapping[str, Any], body: Json) -> Json:
        """Send a heartbeat of an activity."""
        self._told[task["task_id"]] = body
        return await self._plane.beat(task, body)

    async def handle(self, task: Json) -> str:
        """Run a task and report it; how it ended. A lease that is lost on the way is dropped with its result."""
        try:
            outcome = await self._run(task)
        finally:
            self._told.pop(task["task_id"], None)
        action = str(outcome["action"])
        if action == "drop":
            return "dropped"
        item = {"task_id": task["task_id"], **self._plane.attempt(task), **outcome}
        try:
            await self._reports.send(item)
        except (ServerRefused, Unreachable) as error:
            return await self._refused(task, error, action)
        return "completed" if action == "complete" else "failed"

    async def _run(self, task: Json) -> Json:
        """Run, and hold the lease meanwhile. An activity with a heartbeat timeout holds it by its own heartbeats."""
        if "heartbeat" in (task.get("deadlines") or {}):
            return await self._runner.run(task)
        details = kept_details(task)
        self._told[task["task_id"]] = {} if details is None else {"details": details}
        async with renewing(task, lambda: self._plane.beat(task, self._told[task["task_id"]])):
            return await self._runner.run(task)

    async def _refused(self, task: Json, error: ServerRefused | Unreachable, action: str) -> str:
        if isinstance(error, Unreachable) or is_lost(error) or action == "fail":
            log.info("%s was not recorded: %s", _told(task), error)
            return "lost"
        log.warning("The result of %s was refused: %s", _told(task), error)
        failure = {
            "message": f"The server refused the result: {error}",
            "type": str(error.reason),
            "non_retryable": True,
        }
        item = {"task_id": task["task_id"], "action": "fail", **self._plane.attempt(task), "failure": failure}
        try:
            await self._reports.send(item)
        except (ServerRefused, Unreachable) as again:
            log.info("%s was not recorded: %s", _told(task), again)
            return "lost"
        return "failed"


def _told(task: Json) -> str:
    return (
        f'Activity "{task["activity_type"]}" (task {task["task_id"]}, attempt {task.get("attempt_number")})'
    )
