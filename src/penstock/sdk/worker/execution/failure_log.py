"""Logs failures with the traceback of user code, once per distinct failure.

A workflow task or an activity that fails is retried, often with the same outcome. The traceback is logged the first
time; repetitions of the same failure take one line.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.sdk.activities.outcomes import WORKER_SHUTDOWN
from penstock.sdk.errors.failure_types import ApplicationErrorCategory
from penstock.sdk.errors.tracebacks import failure_text, traceback_text
from penstock.sdk.replay.runtime import LocalActivityRequest
from penstock.sdk.worker.error_policy import log

Json = dict[str, Any]
REMEMBERED_MAX: Final = 1_000
_EXPECTED: Final = ("cancelled", "throttled")
"""Failures that are not bugs: logged in one line, without a traceback."""


class FailureLog:
    """Logs the failures of one worker."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, str] = OrderedDict()

    def activity(self, task: Json, failure: Mapping[str, Any]) -> None:
        """Log a failed attempt of an activity."""
        message = (
            f'Activity "{task["activity_type"]}" {_ended(failure)} in attempt {task.get("attempt_number")}'
            f" ({_origin(task)}task {task['task_id']})"
        )
        self._attempt(str(task["task_id"]), message, failure)

    def local_activity(
        self, request: LocalActivityRequest, task: Json, failure: Mapping[str, Any], number: int
    ) -> None:
        """Log a failed attempt of a local activity."""
        message = (
            f'Local activity "{request.activity_type}" {_ended(failure)} in attempt {number}'
            f" (workflow {task['workflow_id']}, run {task['run_id']})"
        )
        self._attempt(f"{task['run_id']}/{request.request_id}", message, failure)

    def _attempt(self, key: str, message: str, failure: Mapping[str, Any]) -> None:
        if failure.get("category") == ApplicationErrorCategory.BENIGN:
            log.debug("%s: %s", message, failure.get("message"))
            return
        if any(failure.get(each) for each in _EXPECTED) or failure.get("code") == WORKER_SHUTDOWN:
            log.info("%s: %s", message, failure.get("message"))
            return
        self._log(logging.WARNING, key, message, failure_text(failure), _heading(failure))

    def workflow_task(self, task: Json, error: BaseException) -> None:
        """Log an error in workflow code that fails the workflow task but not the run. The task is retried."""
        message = (
            f"A workflow task of {workflow_of(task)} failed; the run stays open and the task is tried again,"
            " also by a worker with corrected code"
        )
        heading = f"{type(error).__name__}: {error}"
        self._log(logging.ERROR, str(task["run_id"]), message, traceback_text(error), heading)

    def commands(self, task: Json, commands: Iterable[Mapping[str, Any]]) -> None:
        """Log the failure of a run by its own code."""
        for each in commands:
            failure = each.get("exception")
            if each.get("type") == "fail_workflow" and isinstance(failure, Mapping):
                if failure.get("category") == ApplicationErrorCategory.BENIGN:
                    log.debug("A run has failed: %s: %s", workflow_of(task), failure.get("message"))
                else:
                    log.warning("A run has failed: %s\n%s", workflow_of(task), failure_text(failure))

    def _log(self, level: int, key: str, message: str, text: str, heading: str) -> None:
        if self._seen.get(key) == text:
            log.log(level, "%s. It is the same error as before: %s", message, heading)
            return
        self._seen[key] = text
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        log.log(level, "%s\n%s", message, text.rstrip("\n"))


def _ended(failure: Mapping[str, Any]) -> str:
    return "was cancelled" if failure.get("cancelled") else "failed"


def workflow_of(task: Json) -> str:
    return f'workflow "{task["workflow_type"]}" {task["workflow_id"]} (run {task["run_id"]})'


def _origin(task: Json) -> str:
    return f"workflow {task['workflow_id']}, " if task.get("workflow_id") else ""


def _heading(failure: Mapping[str, Any]) -> str:
    return f"{failure.get('type')}: {failure.get('message')}"
