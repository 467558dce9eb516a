"""Task handles: the id of a task, and access to its state and result."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from penstock.sdk.clients.descriptions import ActivityExecutionDescription, WorkflowExecutionStatus
from penstock.sdk.clients.handles import ActivityHandle
from penstock.sdk.failures import ActivityFailureError
from penstock.sdk.tasks.client_pool import ClientPool
from penstock.sdk.tasks.errors import task_error

OwnT = TypeVar("OwnT")


class TaskStatus(StrEnum):
    """The state of a task."""

    WAITING = "waiting"
    """Waits for its start time, for a worker, or for its next attempt."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    """Never started."""

    @classmethod
    def read(cls, found: ActivityExecutionDescription) -> TaskStatus:
        if found.status is WorkflowExecutionStatus.RUNNING:
            return cls.RUNNING if found.raw.get("activity_status") == "running" else cls.WAITING
        if found.status is WorkflowExecutionStatus.TIMED_OUT and not found.attempt:
            return cls.EXPIRED
        if found.status is WorkflowExecutionStatus.TERMINATED:
            return cls.CANCELLED
        return cls(found.status.value)


class TaskHandle(Generic[OwnT]):
    """A task that was sent. It works in any event loop, and with the `..._sync` methods without one."""

    def __init__(
        self,
        clients: ClientPool,
        id: str,  # noqa: A002 - the word of the API
        *,
        run_id: str | None = None,
        is_new: bool | None = None,
        result_type: Any = None,
    ) -> None:
        self._clients = clients
        self._result_type = result_type
        self.id = id
        self.run_id = run_id
        """The run that this send created or found; None is the latest run of the id."""
        self.is_new = is_new
        """Whether this send created it; None if nothing was sent."""

    def __repr__(self) -> str:
        return f"TaskHandle({self.id!r})"

    async def result(self, *, timeout: timedelta | float | None = None) -> OwnT:
        """Wait for the task to end and return its result.

        Args:
            timeout: how long to wait; None is unlimited.

        Raises:
            TaskFailed: all attempts failed.
            TaskTimedOut: an attempt did not end in time.
            TaskExpired: it was not started in time.
            TaskCancelled: it was cancelled.
            TimeoutError: it has not ended within `timeout`. The task continues.
        """
        try:
            return await (await self._activity()).result(timeout=timeout)
        except ActivityFailureError as error:
            found = task_error(error)
            raise found from found.cause

    async def status(self) -> TaskStatus:
        return TaskStatus.read(await self.describe())

    async def describe(self) -> ActivityExecutionDescription:
        """Return the server's description of the task."""
        return await (await self._activity()).describe()

    async def cancel(self, reason: str | None = None) -> None:
        """Cancel it. A worker that runs it is notified with the task's next heartbeat.

        Args:
            reason: recorded with the task.
        """
        await (await self._activity()).cancel(reason)

    def result_sync(self, *, timeout: timedelta | float | None = None) -> OwnT:
        return self._clients.wait(self.result(timeout=timeout))

    def status_sync(self) -> TaskStatus:
        return self._clients.wait(self.status())

    def describe_sync(self) -> ActivityExecutionDescription:
        return self._clients.wait(self.describe())

    def cancel_sync(self, reason: str | None = None) -> None:
        self._clients.wait(self.cancel(reason))

    async def _activity(self) -> ActivityHandle[OwnT]:
        client = await self._clients.get()
        return client.get_activity_handle(self.id, run_id=self.run_id, result_type=self._result_type)
