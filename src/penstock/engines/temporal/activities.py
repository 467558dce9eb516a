"""Activities of Penstock on a Temporal worker.

Theory of operation
-------------------
Each activity is registered with temporalio as an async function of plain arguments, which hands the attempt to our
`ActivityRunner`: the same code as on our engine runs it in the event loop, a thread or a process, inside of the
worker's interceptors, with `penstock.activity` available. What differs is the world around it:

- a heartbeat goes to `temporalio.activity.heartbeat`; automatic heartbeats are sent as on our engine;
- temporalio cancels the task of the function when the server says so with a heartbeat, when a timeout expired, or when
  the worker shuts down. The runner is told which of them it was, and decides how the code is stopped;
- timeouts are enforced by the server, so the attempt has no deadline of its own.

A result is returned as plain data, a failure raised as Temporal's (see `failures`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from temporalio import activity as ta
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from penstock.engines.temporal.failures import own_cancellation, to_temporal
from penstock.engines.temporal.payloads import CONVERTER, envelope_of, plain_arguments, plain_value
from penstock.engines.temporal.refusals import not_here
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.execution.runner import ActivityRunner
from penstock.sdk.activities.info import ActivityInfo, WorkerIdentity
from penstock.sdk.converters import DataConverter
from penstock.sdk.failures import error_from
from penstock.sdk.priority import Priority
from penstock.sdk.worker.execution.local_activities import local_activities_disabled

Json = dict[str, Any]
_CANCEL: Final = {"cancel_requested": True, "can_continue": True}
_LOST: Final = {"can_continue": False}


class TemporalActivities:
    """The activities of one worker, as functions for `temporalio.worker.Worker(activities=[…])`.

    Args:
        definitions: the activities.
        converter: reads arguments and writes results.
        worker: namespace, queue and name of the worker.
        options: options of our `ActivityRunner`.
        runs_local: whether local activities run here. A worker without slots for them would wait for ever, so it
            runs them in one slot, and they fail.
    """

    def __init__(
        self,
        definitions: Sequence[ActivityDefinition],
        converter: DataConverter,
        worker: WorkerIdentity,
        options: Mapping[str, Any],
        *,
        runs_local: bool = True,
    ) -> None:
        self._converter, self._worker, self._runs_local = converter, worker, runs_local
        self.runner = ActivityRunner(
            definitions, converter, heartbeat=self._heartbeat, worker=worker, **options
        )
        self.functions = [self._function(each) for each in definitions]
        if not runs_local and all(each.name is not None for each in definitions):
            self.functions.append(ta.defn(dynamic=True)(_refuse_any))

    def _function(self, definition: ActivityDefinition) -> Callable[..., Any]:
        if definition.name is None:

            async def run_any(args: Sequence[RawValue]) -> Any:
                converter = CONVERTER.payload_converter
                return await self._run([converter.from_payload(each.payload) for each in args])

            run_any.__name__ = "any_activity"
            return ta.defn(dynamic=True)(run_any)

        async def run(*args: Any) -> Any:
            return await self._run(args)

        run.__name__ = definition.name
        return ta.defn(name=definition.name)(run)

    async def _run(self, args: Sequence[Any]) -> Any:
        info = self._info()
        if info.is_local and not self._runs_local:
            raise _disabled(info.activity_type)
        task = {
            "task_id": info.task_id,
            "arguments": self._envelope(args),
            "heartbeat_details": self._envelope(info.heartbeat_details) if info.heartbeat_details else None,
        }
        work = asyncio.ensure_future(self.runner.run_as(info, task))
        is_requested = False
        try:
            outcome = await asyncio.shield(work)
        except asyncio.CancelledError:
            is_requested = True
            outcome = await self._stopped(info, work)
        return self._result(outcome, is_requested=is_requested)

    def _envelope(self, plain: Sequence[Any]) -> Any:
        """Return plain data as the runner reads it. Codecs were applied by the sender."""
        return envelope_of(list(plain))

    async def _stopped(self, info: ActivityInfo, work: asyncio.Future[Json]) -> Json:
        """Tell the runner why the attempt must stop, and wait until it has."""
        details = ta.cancellation_details()
        if details is not None and details.worker_shutdown:
            self.runner.shut_down()
        lost = details is not None and (details.not_found or details.timed_out or details.reset)
        self.runner.apply_heartbeat_response(info.task_id, _LOST if lost else _CANCEL)
        return await work

    def _result(self, outcome: Json, *, is_requested: bool) -> Any:
        if outcome["action"] == "complete":
            if outcome.get("cost") is not None:
                raise to_temporal(not_here("activity.report_cost", "budgets with cost are refused"))
            return plain_value(outcome["result"])
        if outcome["action"] == "drop":
            raise asyncio.CancelledError
        failure = outcome["failure"]
        error = error_from(failure, self._converter)
        if failure.get("cancelled"):
            raise asyncio.CancelledError if is_requested else own_cancellation(error)
        raise to_temporal(error)

    async def _heartbeat(self, task: Mapping[str, Any], body: Json) -> Json:
        if not ta.info().is_local:  # a local activity has no heartbeats there
            ta.heartbeat(*plain_arguments(body.get("details")))
        return {"can_continue": True}

    def _info(self) -> ActivityInfo:
        found = ta.info()
        run = found.workflow_run_id or found.activity_run_id or ""
        token = f"{run}/{found.activity_id}"
        return ActivityInfo(
            activity_id=found.activity_id,
            activity_type=found.activity_type,
            attempt=found.attempt,
            workflow_id=found.workflow_id,
            workflow_run_id=found.workflow_run_id,
            workflow_type=found.workflow_type,
            task_queue=found.task_queue,
            namespace=found.namespace,
            task_id=found.task_token.hex(),
            task_token=f"{token}/{found.attempt}",
            idempotency_key=token,
            scheduled_time=found.scheduled_time,
            started_time=found.started_time,
            heartbeat_timeout=found.heartbeat_timeout,
            start_to_close_timeout=found.start_to_close_timeout,
            schedule_to_close_timeout=found.schedule_to_close_timeout,
            heartbeat_details=tuple(self._converter.load(each) for each in found.heartbeat_details),
            is_local=found.is_local,
            priority=Priority(
                found.priority.priority_key or None,
                found.priority.fairness_key or None,
                found.priority.fairness_weight or None,
            ),
        )


async def _refuse_any(args: Sequence[RawValue]) -> Any:
    """Stand in for the activities that this worker does not have."""
    info = ta.info()
    if info.is_local:
        raise _disabled(info.activity_type)
    raise ApplicationError(f'This worker has no activity "{info.activity_type}"', type="NotFoundError")


def _disabled(activity_type: str) -> ApplicationError:
    """Return the failure of a local activity on a worker without slots for them."""
    failure = local_activities_disabled(activity_type)
    return ApplicationError(failure["message"], type=failure["type"], non_retryable=True)
