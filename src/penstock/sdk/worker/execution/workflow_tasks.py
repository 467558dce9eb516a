"""Workflow tasks: replay or continue a run, run its local activities, and report its commands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from penstock.errors import Reason
from penstock.sdk.connection.external_payloads import PAYLOAD_ERROR
from penstock.sdk.failures import ExternalPayloadError, ServerRefused, Unreachable
from penstock.sdk.lease import LeaseExpired, lease_of
from penstock.sdk.replay.errors import WorkflowTaskError
from penstock.sdk.replay.instance import Activation, WorkflowRun
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import is_lease_lost, log
from penstock.sdk.worker.execution.failure_log import FailureLog, workflow_of
from penstock.sdk.worker.execution.local_activities import LocalActivities, WorkerStopping
from penstock.sdk.worker.execution.report_batcher import HAND_BACK, ReportBatcher
from penstock.sdk.worker.execution.run_cache import RunCache
from penstock.sdk.worker.execution.run_factory import RunFactory, with_arguments
from penstock.sdk.worker.execution.task_failures import task_failure
from penstock.sdk.worker.lease_renewal import DroppedTasks, renewing
from penstock.sdk.worker.metrics import WorkerMetrics
from penstock.sdk.worker.worker_api import HISTORY_START_TOKEN, WorkerApi

Json = dict[str, Any]
STICKY_MAX_MS = 600_000
"""The longest sticky timeout that servers accept."""
REPLAYS_PER_YIELD = 50
"""The event loop yields after this many replayed workflow tasks, so that polls, heartbeats and activities make
progress.
"""
PREVIOUS_TASK_WAIT_S = 5.0
"""How long a task waits for the previous task of its run. After that it is replayed from the start."""


class WorkflowTasks:
    """Decides workflow tasks, on a cached run or on a full replay."""

    def __init__(
        self,
        api: WorkerApi,
        reports: ReportBatcher,
        cache: RunCache[WorkflowRun],
        begin: RunFactory,
        local: LocalActivities,
        metrics: WorkerMetrics,
        sticky_timeout: timedelta,
        hands_back: Callable[[], bool],
        dropped: DroppedTasks,
    ) -> None:
        self._sticky_ms = min(STICKY_MAX_MS, max(1, round(sticky_timeout / timedelta(milliseconds=1))))
        self._hands_back, self._dropped = hands_back, dropped
        self._api, self._reports, self._cache = api, reports, cache
        self._new_run, self._local, self._metrics = begin, local, metrics
        self._failures = FailureLog()
        self._latest_tasks: dict[str, asyncio.Future[None]] = {}
        """The most recent task of each run, until it is done."""

    async def handle(self, task: Json) -> str:
        """Decide a task, report it and return its outcome. If the lease is lost, the task is dropped.

        The next task of a run may arrive before the report of the previous one is answered. It waits for that.
        """
        before = self._latest_tasks.get(task["run_id"])
        done = self._latest_tasks[task["run_id"]] = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.wait({before}, timeout=PREVIOUS_TASK_WAIT_S)
            lease_of(task).check()
            _check_payloads(task)
            run, activation = await self._decide(task)
            try:
                through = await self._complete(task, activation)
            except BaseException:
                run.close()
                raise
            if through is not None:
                run.confirm_recorded(through)
                self._cache.put(task["run_id"], run)
            else:
                run.close()
            return "completed"
        except WorkerStopping:
            return await self._hand_back(task)
        except LeaseExpired as ended:
            return self._dropped.note("workflow", began=ended.began)
        except (ServerRefused, Unreachable) as error:
            return await self._refused(task, error)
        except Exception as error:
            return await self._fail(task, error)
        finally:
            done.set_result(None)
            if self._latest_tasks.get(task["run_id"]) is done:
                del self._latest_tasks[task["run_id"]]
            self._metrics.level(names.CACHED_RUNS, len(self._cache))

    async def _decide(self, task: Json) -> tuple[WorkflowRun, Activation]:
        """Return the run and its new commands.

        A cached run that does not match the history is replayed from the start.
        """
        cached = self._cache.take(task["run_id"])
        only_new = (task.get("history_from_sequence") or 1) > 1
        self._metrics.count(names.CACHE_LOOKS, outcome="kept" if cached and only_new else "replayed")
        if cached is not None and only_new:
            try:
                return cached, await self._advance(task, cached, await self._events(task))
            except WorkflowTaskError as error:
                self._metrics.count(names.CACHE_LOOKS, outcome="misfit")
                log.info(
                    "The cached run of %s does not match its history and is replayed: %s",
                    workflow_of(task),
                    error,
                )
        elif cached is not None:
            cached.close()
        run = self._new_run(task)
        return run, await self._advance(task, run, await self._events(task, whole=only_new))

    async def _events(self, task: Json, *, whole: bool = False) -> list[Json]:
        if whole:
            return with_arguments(task, await self._api.history(task, HISTORY_START_TOKEN))
        events: list[Json] = task["history_events"]
        token = task.get("next_history_page_token")
        if token is not None:
            events = events + await self._api.history(task, token)
        return with_arguments(task, events)

    async def _advance(self, task: Json, run: WorkflowRun, events: Sequence[Json]) -> Activation:
        """Apply the new events, then run local activities until the code waits for the server."""
        try:
            lease_of(task).check()
            for number, _ in enumerate(run.apply_history(events), 1):
                if number % REPLAYS_PER_YIELD == 0:
                    await asyncio.sleep(0)
            activation = run.advance()
            if not activation.local:
                return activation
            async with renewing(task, lambda: self._api.renew(task)) as keeper:
                return await self._with_local(task, run, activation, keeper)
        except BaseException:
            run.close()
            raise

    async def _with_local(
        self, task: Json, run: WorkflowRun, activation: Activation, keeper: asyncio.Task[None]
    ) -> Activation:
        running: dict[asyncio.Task[Json], str] = {}
        try:
            while activation.local or running:
                for request in activation.local:
                    running[asyncio.ensure_future(self._local.run(request, task))] = request.request_id
                done, _ = await asyncio.wait({*running, keeper}, return_when=asyncio.FIRST_COMPLETED)
                if keeper in done:
                    keeper.result()
                ended = next(each for each in running if each in done)
                activation = run.resolve_local(running.pop(ended), ended.result())
                if activation.closes:
                    break
            return activation
        except LeaseExpired as ended:
            ended.began = True
            raise
        finally:
            for each in running:
                each.cancel()

    async def _complete(self, task: Json, activation: Activation) -> int | None:
        """Report the commands. Return the last event that the server has recorded, if the run stays cached here."""
        keep = self._cache.is_enabled and not activation.closes
        item = {
            "task_id": task["task_id"],
            "action": "complete",
            **self._api.lease(task),
            "commands": activation.commands,
            "concurrent": True,
            "cached": keep,
        }
        if keep:
            item["sticky_timeout_ms"] = self._sticky_ms
        if activation.stream_cursors:
            item["message_stream_cursors"] = activation.stream_cursors
        if activation.stream_waits:
            item["message_stream_waits"] = activation.stream_waits
        try:
            response = await self._reports.send(item)
        except ServerRefused as error:
            error.message += _origin(error, activation.origins)
            raise
        if activation.closes:
            self._failures.commands(task, activation.commands)
        return response.get("cached_through") or None if keep else None

    async def _hand_back(self, task: Json) -> str:
        """Hand the task back. Another worker decides it and runs its local activities again."""
        if not self._hands_back():
            return "dropped"
        try:
            await self._reports.send(
                {"task_id": task["task_id"], "action": HAND_BACK, **self._api.lease(task)}
            )
        except (ServerRefused, Unreachable) as error:
            log.info("A task of %s was lost: %s", workflow_of(task), error)
            return "lost"
        return "handed_back"

    async def _refused(self, task: Json, error: ServerRefused | Unreachable) -> str:
        if is_lease_lost(error) or isinstance(error, Unreachable):
            log.info("A task of %s was lost: %s", workflow_of(task), error)
            return "lost"
        return await self._fail(task, error.with_traceback(None))  # its frames belong to the SDK

    async def _fail(self, task: Json, error: Exception) -> str:
        """Report a task failure. The run stays open, and the task is retried by this or another worker."""
        failure = task_failure(error)
        self._failures.workflow_task(task, error)
        item = {"task_id": task["task_id"], "action": "fail", **self._api.lease(task), "failure": failure}
        try:
            await self._reports.send(item)
        except (ServerRefused, Unreachable) as refused:
            log.info("The failure of a task of %s was not recorded: %s", workflow_of(task), refused)
            return "lost"
        return "failed"


def _check_payloads(task: Json) -> None:
    """Raise `ExternalPayloadError` if a payload of the history could not be fetched: the code must not see a gap."""
    error = task.get(PAYLOAD_ERROR)
    if error is not None:
        raise ExternalPayloadError("a payload of the history", **error)


def _origin(error: ServerRefused, origins: Sequence[str]) -> str:
    """Return which line of the code issued the command that the server refused."""
    if error.reason == Reason.PAYLOAD_TOO_LARGE and origins:
        return (
            f" ({len(origins)} commands of one workflow task together, the first: {origins[0]}. Start them in portions,"
            " or pass references instead of large arguments)"
        )
    found = re.search(r"\bcommands\.([0-9]+)\b", error.message)
    index = len(origins) if found is None else int(found[1])
    return f" ({origins[index]})" if index < len(origins) else ""
