"""Queries and update validations: they read the state of a run and must not change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import Reason
from penstock.sdk.errors.tracebacks import without_tracebacks
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.lease import lease_of
from penstock.sdk.replay.errors import WorkflowTaskError
from penstock.sdk.replay.instance import WorkflowRun
from penstock.sdk.worker.error_policy import log
from penstock.sdk.worker.execution.failure_log import workflow_of
from penstock.sdk.worker.execution.run_cache import RunCache
from penstock.sdk.worker.execution.run_factory import RunFactory, with_arguments
from penstock.sdk.worker.execution.task_failures import task_failure
from penstock.sdk.worker.lease_renewal import DroppedTasks
from penstock.sdk.worker.worker_api import WorkerApi

Json = dict[str, Any]


class WorkflowQueries:
    """Answers from the cached run if it is up to date, otherwise from a separate replay."""

    def __init__(
        self,
        api: WorkerApi,
        cache: RunCache[WorkflowRun],
        begin: RunFactory,
        dropped: DroppedTasks,
        *,
        with_tracebacks: bool = True,
    ) -> None:
        self._api, self._cache, self._new_run, self._dropped = api, cache, begin, dropped
        self._with_tracebacks = with_tracebacks

    async def query(self, task: Json) -> str:
        if lease_of(task).is_over:
            return self._dropped.note("query", began=False)
        try:
            answer = self._run_read_only(
                task, lambda run: run.query(task["query_name"], task["query_arguments"])
            )
        except Exception as error:
            failure = task_failure(error) | {"reason": _query_reason(error)}
            if failure["reason"] != Reason.REJECTED_UNKNOWN_QUERY:
                text = 'Query "%s" of %s failed\n%s'
                log.warning(text, task["query_name"], workflow_of(task), failure["stack_trace"].rstrip())
            return await self._answer(task, "fail", {"failure": failure})
        return await self._answer(task, "complete", {"result_envelope": answer})

    async def validate(self, task: Json) -> str:
        if lease_of(task).is_over:
            return self._dropped.note("update_validation", began=False)
        try:
            self._run_read_only(
                task, lambda run: run.validate_update(task["update_name"], task["update_arguments"])
            )
        except Exception as error:
            failure = task_failure(error) | {"reason": _validation_reason(error)}
            return await self._answer(task, "reject", {"failure": failure})
        return await self._answer(task, "approve", {})

    def _run_read_only(self, task: Json, ask: Callable[[WorkflowRun], Any]) -> Any:
        events: list[Json] = task["history_events"]
        cached = self._cache.peek(task["run_id"])
        if cached is not None and cached.is_up_to_date(events):
            return ask(cached)
        run = self._new_run(task)
        try:
            run.replay_to_end(with_arguments(task, events))
            return ask(run)
        finally:
            run.close()

    async def _answer(self, task: Json, action: str, body: Json) -> str:
        if not self._with_tracebacks:
            body = without_tracebacks(body)
        try:
            await self._api.answer(task, action, body)
        except (ServerRefused, Unreachable) as error:
            log.info("The answer of workflow %s was refused: %s", task["workflow_id"], error)
            return "lost"
        return "failed" if action in ("fail", "reject") else "completed"


def _query_reason(error: Exception) -> str:
    if type(error) is LookupError:  # a KeyError was raised by the handler itself
        return Reason.REJECTED_UNKNOWN_QUERY.value
    if isinstance(error, WorkflowTaskError):
        return Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE.value
    return Reason.QUERY_REJECTED.value


def _validation_reason(error: Exception) -> str:
    if isinstance(error, WorkflowTaskError):
        return Reason.UPDATE_VALIDATION_WORKER_FAILED.value
    return Reason.UPDATE_VALIDATOR_REJECTED.value
