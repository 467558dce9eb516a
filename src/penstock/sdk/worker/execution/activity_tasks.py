"""Activity tasks: run the function and report its outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import Reason
from penstock.sdk.activities.execution.runner import ActivityRunner
from penstock.sdk.activities.outcomes import LEASE_ENDED, WORKER_SHUTDOWN
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.lease import lease_of
from penstock.sdk.worker.error_policy import is_lease_lost, log
from penstock.sdk.worker.execution.failure_log import FailureLog
from penstock.sdk.worker.execution.report_batcher import HAND_BACK, ReportBatcher
from penstock.sdk.worker.lease_renewal import DroppedTasks, LeaseKeeper, calling_at_end, extending_lease
from penstock.sdk.worker.worker_api import WorkerApi

Json = dict[str, Any]
_LOST = {"can_continue": False}
_ENDED = {"complete": "completed", "fail": "failed"}


class ActivityTasks:
    def __init__(
        self,
        api: WorkerApi,
        reports: ReportBatcher,
        runner: ActivityRunner,
        hands_back: Callable[[], bool],
        dropped: DroppedTasks,
    ) -> None:
        self._api, self._reports, self._runner = api, reports, runner
        self._hands_back, self._dropped = hands_back, dropped
        self._failures = FailureLog()

    async def handle(self, task: Json) -> str:
        """Run a task, report it and return its outcome. If the lease is lost, the result is dropped.

        A task that is stopped because the worker shuts down is handed back, so that another worker can run it without
        being charged an attempt.
        """
        if lease_of(task).is_over:
            return self._dropped.note("activity", began=False)
        outcome = await self._run(task)
        action = str(outcome["action"])
        if action == "drop":
            return await self._drop(task, outcome["reason"])
        if action == "let_go":
            return await self._let_go(task)
        if action == "fail":
            self._failures.activity(task, outcome["failure"])
        item = {"task_id": task["task_id"], **self._api.attempt(task), **outcome}
        try:
            await self._reports.send(item)
        except (ServerRefused, Unreachable) as error:
            return await self._refused(task, error, action)
        return _ENDED[action]

    async def _let_go(self, task: Json) -> str:
        """Leave an activity to those who complete it, which they may have done by now."""
        try:
            await self._api.let_go(task)
        except (ServerRefused, Unreachable) as error:
            return await self._refused(task, error, "let_go")
        return "completes_async"

    async def _drop(self, task: Json, reason: str) -> str:
        if reason == LEASE_ENDED or (reason != WORKER_SHUTDOWN and lease_of(task).is_over):
            return self._dropped.note("activity", began=reason != LEASE_ENDED)
        return await self.hand_back(task) if reason == WORKER_SHUTDOWN else "dropped"

    async def hand_back(self, task: Json) -> str:
        """Return a task to the server without running it."""
        if lease_of(task).is_over:
            return self._dropped.note("activity", began=False)
        if not self._hands_back():
            return "dropped"
        item = {"task_id": task["task_id"], **self._api.attempt(task), "action": HAND_BACK}
        try:
            await self._reports.send(item)
        except (ServerRefused, Unreachable) as error:
            return await self._refused(task, error, HAND_BACK)
        return "handed_back"

    async def _run(self, task: Json) -> Json:
        """Run the activity and renew its lease meanwhile.

        An activity with a heartbeat timeout renews it by its heartbeats.

        If the lease ends anyway, the code is stopped, because the task may already run elsewhere.
        """
        with calling_at_end(
            lease_of(task), lambda: self._runner.apply_heartbeat_response(task["task_id"], _LOST)
        ):
            if _has_heartbeat_timeout(task):
                if self._api.lease_ms is None:
                    return await self._runner.run(task)
                async with extending_lease(
                    lambda: self._api.activity_heartbeat(task, {})
                ):  # its heartbeats may be less frequent than the lease requires
                    return await self._runner.run(task)
            async with LeaseKeeper(task, lambda: self._renew(task)):
                return await self._runner.run(task)

    async def _renew(self, task: Json) -> Json:
        """Renew the lease without heartbeat details. The response says whether the activity should continue."""
        try:
            response = await self._api.renew_activity(task)
        except ServerRefused as error:
            if is_lease_lost(error):
                self._runner.apply_heartbeat_response(task["task_id"], _LOST)
            raise
        self._runner.apply_heartbeat_response(task["task_id"], response)
        return response

    async def _refused(self, task: Json, error: ServerRefused | Unreachable, action: str) -> str:
        if isinstance(error, Unreachable) or is_lease_lost(error) or action != "complete":
            log.info("%s was not recorded: %s", _label(task), error)
            return "lost"
        log.warning("The result of %s was refused: %s", _label(task), error)
        failure = {
            "message": f"The server refused the result: {error}",
            "type": str(error.reason),
            "non_retryable": error.reason != Reason.EXTERNAL_PAYLOAD_UNAVAILABLE,
        }
        item = {"task_id": task["task_id"], "action": "fail", **self._api.attempt(task), "failure": failure}
        try:
            await self._reports.send(item)
        except (ServerRefused, Unreachable) as again:
            log.info("%s was not recorded: %s", _label(task), again)
            return "lost"
        return "failed"


def _has_heartbeat_timeout(task: Json) -> bool:
    """Whether the task has a heartbeat timeout.

    A prefetched task carries no deadlines yet, so its retry policy is checked too.
    """
    policy = task.get("retry_policy") or {}
    return "heartbeat" in (task.get("deadlines") or {}) or bool(policy.get("heartbeat_timeout_ms"))


def _label(task: Json) -> str:
    return (
        f'Activity "{task["activity_type"]}" (task {task["task_id"]}, attempt {task.get("attempt_number")})'
    )
