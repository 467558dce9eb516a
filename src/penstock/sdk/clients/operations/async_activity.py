"""The handle by which others complete an activity that left its worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.sdk.connection.transport import route_of
from penstock.sdk.failures import CancelledError, ServerRefused, failure_of

Json = dict[str, Any]


class AsyncActivityCancelledError(Exception):
    """The activity was asked to stop: report it by `report_cancellation`, or complete it all the same."""


class AsyncActivityHandle:
    """An activity that called `activity.raise_complete_async`. Any process may complete it, once.

    Args:
        context: the client's.
        activity_id: its id.
        attempt_id: the attempt that the token named; None is the one that runs.
        workflow_id: its workflow, which the server checks.
        run_id: its run, which the server checks.
    """

    def __init__(
        self,
        context: Any,
        activity_id: str,
        *,
        attempt_id: str | None = None,
        workflow_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._context = context
        self.id = activity_id
        named = {"activity_attempt_id": attempt_id, "workflow_id": workflow_id, "run_id": run_id}
        self._named = {name: value for name, value in named.items() if value is not None}

    def __repr__(self) -> str:
        return f"AsyncActivityHandle({self.id!r})"

    async def heartbeat(self, *details: Any) -> None:
        """Restart the heartbeat timeout.

        Args:
            details: progress, which the next attempt gets.

        Raises:
            AsyncActivityCancelledError: the activity was asked to stop.
            ServerRefused: the attempt has ended.
        """
        response = await self._send("heartbeat", {"details": self._encoded(details)} if details else {})
        if response["cancel_requested"]:
            raise AsyncActivityCancelledError(f"Activity {self.id!r} was asked to stop")
        if not response["can_continue"]:
            raise ServerRefused(response["reason"], f"The attempt of activity {self.id!r} has ended", 409)

    async def complete(self, result: Any = None) -> None:
        """Complete the activity. Sent again with the same result, nothing changes.

        Args:
            result: its result.

        Raises:
            ServerRefused: the attempt has ended otherwise.
        """
        what = f"the result of activity {self.id!r}"
        await self._send("complete", {"result": self._context.converter.encode(result, what)})

    async def fail(self, error: BaseException, last_heartbeat_details: Sequence[Any] = ()) -> None:
        """Fail the attempt; the retry policy of the activity applies.

        Args:
            error: why.
            last_heartbeat_details: progress, which the next attempt gets.

        Raises:
            ServerRefused: the attempt has ended otherwise.
        """
        if last_heartbeat_details:
            await self._send("heartbeat", {"details": self._encoded(last_heartbeat_details)})
        await self._send("fail", {"failure": failure_of(error, self._context.converter)})

    async def report_cancellation(self, *details: Any) -> None:
        """Report that the activity has stopped as it was asked to.

        Args:
            details: shown to the workflow with the cancellation.

        Raises:
            ServerRefused: the attempt has ended otherwise.
        """
        failure = failure_of(CancelledError("Cancelled", *details), self._context.converter)
        await self._send("fail", {"failure": failure | {"cancelled": True}})

    def _encoded(self, details: Sequence[Any]) -> Json:
        encoded: Json = self._context.converter.encode_arguments(details, f"the heartbeat of {self!r}")
        return encoded

    async def _send(self, operation: str, body: Json) -> Json:
        path = route_of("activities", self.id, operation)
        control = self._context.transport.control
        response: Json = await control("POST", path, self._named | body, idempotent=True)
        return response
