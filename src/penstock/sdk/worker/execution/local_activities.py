"""Local activities: run within the workflow task that requested them, retried here, and recorded with its commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.sdk.activities.execution.runner import ActivityRunner
from penstock.sdk.activities.info import ActivityInfo
from penstock.sdk.activities.outcomes import LEASE_ENDED, failed
from penstock.sdk.lease import LeaseExpired, lease_of
from penstock.sdk.replay.errors import WorkflowTaskError
from penstock.sdk.replay.runtime import LocalActivityRequest
from penstock.sdk.retry import FOR_EVER, RetryPolicy
from penstock.sdk.worker.execution.failure_log import FailureLog
from penstock.sdk.worker.matching.slots import Slots

Json = dict[str, Any]
ATTEMPTS_RECORDED_MAX = 100
"""Maximum number of attempts recorded in the history. The last ones are kept."""


class WorkerStopping(Exception):
    """A local activity was stopped because the worker shuts down. Its workflow task is not decided."""


class LocalActivities:
    """Runs the local activities of workflow tasks, each in its own slot."""

    def __init__(self, runner: ActivityRunner, slots: Slots, namespace: str) -> None:
        self._runner, self._slots, self._namespace = runner, slots, namespace
        self._failures = FailureLog()

    async def run(self, request: LocalActivityRequest, task: Json) -> Json:
        """Run a local activity, retry it by its policy, and return the outcome as its command reports it.

        Raises `LeaseExpired` if the lease of the workflow task ends before an attempt: another worker may run it.
        """
        if (problem := self._runner.unknown(request.activity_type)) is not None:  # a bug in the workflow code
            raise WorkflowTaskError(f"a local activity runs in this worker: {problem}")
        terms = LocalActivityTerms.of(request.options)
        ends_at = None if terms.schedule_to_close is None else time.monotonic() + terms.schedule_to_close
        attempts: list[Json] = []
        while True:
            began = time.monotonic()
            outcome = await self._attempt(request, task, terms, len(attempts) + 1, ends_at)
            if outcome["action"] == "drop":
                raise LeaseExpired if outcome["reason"] == LEASE_ENDED else WorkerStopping
            if outcome["action"] == "fail":
                self._failures.local_activity(request, task, outcome["failure"], len(attempts) + 1)
            attempts.append(_attempt_record(request, outcome, len(attempts) + 1, time.monotonic() - began))
            pause_s = terms.pause_s(outcome, len(attempts), ends_at)
            if pause_s is None:
                return _final_outcome(outcome, attempts[-ATTEMPTS_RECORDED_MAX:])
            await asyncio.sleep(pause_s)

    async def _attempt(
        self,
        request: LocalActivityRequest,
        task: Json,
        terms: LocalActivityTerms,
        number: int,
        ends_at: float | None,
    ) -> Json:
        if not self._slots.total:
            return failed(local_activities_disabled(request.activity_type))
        await self._slots.take()
        try:
            info = self._info(request, task, terms, number, ends_at)
            return await self._runner.run_local(
                request.activity_type, request.arguments, info, lease_of(task)
            )
        finally:
            self._slots.give_back()

    def _info(
        self,
        request: LocalActivityRequest,
        task: Json,
        terms: LocalActivityTerms,
        number: int,
        ends_at: float | None,
    ) -> ActivityInfo:
        now = datetime.now(UTC)
        whole_left = None if ends_at is None else max(0.0, ends_at - time.monotonic())
        left = [each for each in (terms.start_to_close, whole_left) if each is not None]
        return ActivityInfo(
            activity_id=request.request_id,
            activity_type=request.activity_type,
            attempt=number,
            workflow_id=task["workflow_id"],
            workflow_run_id=task["run_id"],
            workflow_type=task["workflow_type"],
            task_queue=task["task_queue"],
            namespace=self._namespace,
            task_id=task["task_id"],
            task_token=f"{request.request_id}-{number}",
            idempotency_key=request.request_id,
            scheduled_time=now,
            started_time=now,
            start_to_close_timeout=_span(terms.start_to_close),
            schedule_to_close_timeout=_span(terms.schedule_to_close),
            is_local=True,
            deadline=now + timedelta(seconds=min(left)) if left else None,
        )


def local_activities_disabled(activity_type: str) -> Json:
    """Return the failure of a local activity on a worker without slots for them: it would never run there."""
    return {
        "message": f"This worker runs no local activities (max_concurrent_local_activities is 0), so"
        f' "{activity_type}" cannot run here. Call it with workflow.execute_activity, or raise'
        " max_concurrent_local_activities",
        "type": "LocalActivitiesDisabled",
        "non_retryable": True,
    }


@dataclass(frozen=True, slots=True)
class LocalActivityTerms:
    """Timeouts (in seconds) and retry policy of a local activity."""

    attempts_max: int
    pauses_ms: Sequence[int]
    final_types: frozenset[str]
    start_to_close: float | None
    schedule_to_close: float | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LocalActivityTerms:
        retry: RetryPolicy = options.get("retry_policy") or RetryPolicy()
        return cls(
            attempts_max=retry.maximum_attempts or FOR_EVER,
            pauses_ms=retry.pauses_ms(),
            final_types=frozenset(retry.non_retryable_error_types or ()),
            start_to_close=_seconds(options, "start_to_close_timeout"),
            schedule_to_close=_seconds(options, "schedule_to_close_timeout"),
        )

    def pause_s(self, outcome: Json, attempts: int, ends_at: float | None) -> float | None:
        """Return the delay before the next attempt, or None if there is no further attempt."""
        failure = outcome.get("failure")
        if failure is None or failure.get("non_retryable") or failure.get("cancelled"):
            return None
        if attempts >= self.attempts_max or not self.final_types.isdisjoint(_types(failure)):
            return None
        requested = failure.get("next_retry_delay_seconds", failure.get("retry_after_seconds"))
        pause_s = self._own_pause_s(attempts) if requested is None else float(requested)
        late = ends_at is not None and time.monotonic() + pause_s >= ends_at
        return None if late else pause_s

    def _own_pause_s(self, attempts: int) -> float:
        return self.pauses_ms[min(attempts, len(self.pauses_ms)) - 1] / 1000 if self.pauses_ms else 0.0


def _types(failure: Json) -> Iterator[str]:
    """Yield the names by which a retry policy can match a failure: its class, or the timeout that expired."""
    yield str(failure.get("type"))
    if failure.get("kind") == "timeout":
        words = str(failure.get("timeout_type")).split("_")
        yield "TemporalTimeout:" + "".join(word.capitalize() for word in words)


def _final_outcome(outcome: Json, attempts: list[Json]) -> Json:
    if outcome["action"] == "complete":
        return {"outcome": "completed", "result": outcome["result"], "attempts": attempts}
    failure = outcome["failure"]
    timed_out = failure.get("kind") == "timeout"
    kind = "cancelled" if failure.get("cancelled") else "timed_out" if timed_out else "failed"
    record: Json = {
        "outcome": kind,
        "message": failure["message"],
        "exception_type": failure.get("type"),
        "non_retryable": bool(failure.get("non_retryable")),
        "attempts": attempts,
        "exception": failure,
    }
    return record | ({"timeout_kind": failure.get("timeout_type")} if timed_out else {})


def _attempt_record(request: LocalActivityRequest, outcome: Json, number: int, took_s: float) -> Json:
    record: Json = {
        "attempt_id": f"{request.request_id}-{number}",
        "attempt_number": number,
        "outcome": "completed" if outcome["action"] == "complete" else "failed",
        "duration_ms": round(took_s * 1000),
    }
    failure = outcome.get("failure")
    if failure is None:
        return record
    return record | {"message": failure["message"][:1000], "exception_type": failure.get("type")}


def _seconds(options: Mapping[str, Any], name: str) -> float | None:
    span: timedelta | None = options.get(name)
    return None if span is None else span.total_seconds()


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
