"""The worker API of a server as one worker uses it: registration, polls, histories, reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.sdk.connection.transport import PollAbandoned, Transport, route
from penstock.sdk.lease import SendTime, lease_of, leased
from penstock.sdk.worker.lease_renewal import answer_s

Json = dict[str, Any]
POLL_SECONDS = 30
HISTORY_PAGE = 1000
HISTORY_START_TOKEN = "MA=="
"""The page token of the start of a history."""
TASK_KINDS = ["workflow", "update_validation"]


class WorkerApi:
    """The requests of one worker. All are idempotent: the server recognises polls and reports by their ids."""

    def __init__(
        self, transport: Transport, worker_id: str, task_queue: str, build_id: str | None = None
    ) -> None:
        self._transport = transport
        self.worker_id = worker_id
        self.task_queue = task_queue
        self.build_id = build_id
        self.lease_ms: int | None = None
        """Requested lease of activity tasks in milliseconds; None is the server's default."""

    async def register(self, body: Json) -> Json:
        return await self._transport.work("/worker/register", body, idempotent=True)

    async def heartbeat(self, body: Json) -> Json:
        return await self._transport.work(
            "/worker/heartbeat", {"worker_id": self.worker_id} | body, idempotent=True
        )

    async def deregister(self) -> Json:
        path = "/worker" + route("registrations", self.worker_id)
        return await self._transport.work(path, {}, idempotent=True, method="DELETE")

    async def poll(self, kind: str, tasks_max: int, poll_id: str, **fields: Any) -> list[Json]:
        """Long-poll for up to `tasks_max` tasks of a kind, `workflow` or `activity`.

        Returns no tasks if the poll was abandoned because its server is frozen. The next poll must have another id:
        tasks that the frozen server leased to this one are returned when it resumes, and must not be redelivered.
        """
        lease = self._requested_lease if kind == "activity" else {}
        body = self._poll(poll_id) | {"max_tasks": tasks_max} | lease | fields
        sending = SendTime()
        response = await self._send_poll(f"/worker/{kind}-tasks/poll", body, sending)
        tasks: list[Json] = response.get("tasks") or []
        return [leased(task, sending.at) for task in tasks]

    async def poll_query(self, poll_id: str) -> list[Json]:
        sending = SendTime()
        response = await self._send_poll("/worker/query-tasks/poll", self._poll(poll_id), sending)
        return [leased(response["task"], sending.at)] if response.get("task") else []

    async def _send_poll(self, path: str, body: Json, sending: SendTime) -> Json:
        """Send a poll; the response is empty if the poll was abandoned."""
        try:
            return await self._transport.work(
                path, body, idempotent=True, timeout_s=POLL_SECONDS, on_send=sending, is_poll=True
            )
        except PollAbandoned:
            return {}

    def _poll(self, poll_id: str) -> Json:
        body: Json = {
            "worker_id": self.worker_id,
            "task_queue": self.task_queue,
            "poll_request_id": poll_id,
            "timeout_seconds": POLL_SECONDS,
        }
        return body | ({"build_id": self.build_id} if self.build_id is not None else {})

    async def history(self, task: Json, token: str) -> list[Json]:
        """Return the events of a leased workflow task from a page to the end."""
        events: list[Json] = []
        path = "/worker" + route("workflow-tasks", task["task_id"], "history")
        following: str | None = token
        while following is not None:
            page = await self._transport.work(
                path,
                self.lease(task) | {"next_history_page_token": following, "history_page_size": HISTORY_PAGE},
                idempotent=True,
            )
            events += page["history_events"]
            following = page.get("next_history_page_token")
        return events

    async def renew(self, task: Json) -> Json:
        """Renew the lease of a workflow task."""
        path = "/worker" + route("workflow-tasks", task["task_id"], "heartbeat")
        return await self._extending(task, path, self.lease(task))

    async def start(self, task: Mapping[str, Any]) -> Json:
        """Request the permit of a prefetched task; `started` in the response says whether it may run."""
        path = "/worker" + route("activity-tasks", task["task_id"], "start")
        return await self._extending(task, path, self.attempt(task) | self._requested_lease)

    async def renew_activity(self, task: Mapping[str, Any]) -> Json:
        """Renew the lease of an activity task without heartbeat details."""
        return await self.activity_heartbeat(task, self._requested_lease)

    async def let_go(self, task: Mapping[str, Any]) -> None:
        """Free the slot of an activity that others complete."""
        path = "/worker" + route("activity-tasks", task["task_id"], "complete-async")
        await self._transport.work(path, self.attempt(task), idempotent=True)

    async def activity_heartbeat(self, task: Mapping[str, Any], body: Json) -> Json:
        """Send a heartbeat with details, which also renews the lease of the activity task."""
        path = "/worker" + route("activity-tasks", task["task_id"], "heartbeat")
        return await self._extending(task, path, self.attempt(task) | body)

    async def _extending(self, task: Mapping[str, Any], path: str, body: Json) -> Json:
        """Send a request that renews the lease of a task, and restart the lease from the time it was sent."""
        sending = SendTime()
        response = await self._transport.work(
            path, body, idempotent=True, on_send=sending, answer_s=answer_s(task)
        )
        lease_of(task).extend(sending.at, response)
        return response

    @property
    def _requested_lease(self) -> Json:
        return {} if self.lease_ms is None else {"lease_ms": self.lease_ms}

    async def offloaded(self, item: Json) -> Json:
        """A report with its large payloads uploaded, once for all attempts to send it."""
        offload = getattr(self._transport, "offloaded", None)
        return item if offload is None else await offload(item)

    async def report(self, kind: str, item: Json) -> Json:
        """Report the outcome of one task. `item` contains `task_id` and `action`."""
        rest = {name: value for name, value in item.items() if name not in ("task_id", "action")}
        path = "/worker" + route(f"{kind}-tasks", item["task_id"], item["action"])
        return await self._transport.work(path, rest, idempotent=True)

    async def report_all(self, kind: str, items: Sequence[Json]) -> list[Json]:
        """Report several outcomes. Each has its own response with an `http_status`."""
        response = await self._transport.work(
            f"/worker/{kind}-tasks/batch", {"items": list(items)}, idempotent=True
        )
        responses: list[Json] = response["items"]
        return responses

    async def answer(self, task: Json, action: str, body: Json) -> Json:
        """Complete or fail a query, or approve or reject an update."""
        if "query_task_id" in task:
            parts = ("query-tasks", task["query_task_id"], action)
            lease = {"query_task_attempt": task["query_task_attempt"]}
        else:
            parts = ("update-validation-tasks", task["update_validation_task_id"], action)
            lease = {"update_validation_attempt": task["update_validation_attempt"]}
        body = {"lease_owner": self.worker_id} | lease | body
        return await self._transport.work("/worker" + route(*parts), body, idempotent=True)

    def lease(self, task: Json) -> Json:
        """The fields that prove the lease of a workflow task."""
        return {"lease_owner": self.worker_id, "workflow_task_attempt": task["workflow_task_attempt"]}

    def attempt(self, task: Mapping[str, Any]) -> Json:
        """The fields that prove the lease of an activity task."""
        return {"lease_owner": self.worker_id, "activity_attempt_id": task["activity_attempt_id"]}
