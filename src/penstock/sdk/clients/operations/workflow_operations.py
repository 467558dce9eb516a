"""What a workflow handle does to its run as an operator: pause, resume, reset, fork, rerun and delete it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.sdk.clients.interceptors import RunInput, new_id
from penstock.sdk.connection.transport import route

if TYPE_CHECKING:
    from penstock.sdk.clients.descriptions import Json, WorkflowExecutionDescription


class WorkflowOperations:
    """Operations of a workflow handle on the run that it addresses at that moment."""

    if TYPE_CHECKING:
        id: str
        run_id: str | None
        _context: Any
        _result_type: Any

        async def describe(self) -> WorkflowExecutionDescription: ...

        def __init__(
            self,
            context: Any,
            id: str,  # noqa: A002
            *,
            run_id: str | None = None,
            result_type: Any = None,
        ) -> None: ...

    async def pause(self, reason: str | None = None) -> None:
        """Dispatch no task of the run until it is resumed. What a worker runs already goes on.

        Args:
            reason: shown with the run, and kept in its audit trail.
        """
        await self._operate("pause", {"reason": reason})

    async def resume(self, reason: str | None = None) -> None:
        """Dispatch the tasks of the paused run again.

        Args:
            reason: kept in the audit trail of the run.
        """
        await self._operate("resume", {"reason": reason})

    async def reset(
        self,
        event: int,
        *,
        reapply: Literal["signals", "none"] = "signals",
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Self:
        """Go back to a decision point in a new run, and return its handle. An open run is terminated.

        Args:
            event: the first event that a completed workflow task recorded; it is decided anew.
            reapply: whether the new run gets the signals that came later.
            reason: kept in the audit trail of the run.
            request_id: identifies the request: a repetition returns the same run. None generates one.
        """
        body = {"event": event, "reapply": reapply, "reason": reason, "request_id": request_id or new_id()}
        return self._made(await self._operate("reset", body))

    async def fork(
        self,
        event: int,
        *,
        id: str | None = None,  # noqa: A002
        args: Sequence[Any] | None = None,
        reapply: Literal["signals", "none"] = "none",
        reason: str | None = None,
        request_id: str | None = None,
    ) -> Self:
        """Start a workflow of another id with the run's history up to a decision point, and return its handle.

        Args:
            event: the first event that a completed workflow task recorded; it is decided anew.
            id: the workflow id of the fork; None generates one.
            args: the input of the fork; None takes that of the run.
            reapply: whether the fork gets the signals that came later.
            reason: kept in the audit trail of the run.
            request_id: identifies the request: a repetition returns the same run. None generates one.
        """
        body = {
            "event": event,
            "workflow_id": id,
            "input": None if args is None else self._context.converter.encode_arguments(args, "the fork"),
            "reapply": reapply,
            "reason": reason,
            "request_id": request_id or new_id(),
        }
        return self._made(await self._operate("fork", body))

    async def rerun(self, reason: str | None = None, *, request_id: str | None = None) -> Self:
        """Start the closed run again with its input, and return a handle of the new run.

        Args:
            reason: kept in the audit trail of the closed run.
            request_id: identifies the request: a repetition returns the same run. None generates one.
        """
        body = {"reason": reason, "request_id": request_id or new_id()}
        return self._made(await self._operate("rerun", body))

    async def delete(self, reason: str | None = None) -> None:
        """Delete the closed run with its history and payloads. A record of the deletion stays.

        Args:
            reason: kept in that record.
        """
        path = await self._run_path() + route("delete")
        await self._context.transport.control("POST", path, _present({"reason": reason}), idempotent=False)

    async def _operate(self, operation: str, body: Json) -> Json:
        path = await self._run_path() + route(operation)
        answer: Json = await self._context.transport.control("POST", path, _present(body), idempotent=True)
        return answer

    async def _run_path(self) -> str:
        run_id = self.run_id or (await self.describe()).run_id
        return RunInput(id=self.id, run_id=run_id).path

    def _made(self, response: Json) -> Self:
        made = type(self)
        return made(
            self._context, response["workflow_id"], run_id=response["run_id"], result_type=self._result_type
        )


def _present(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
