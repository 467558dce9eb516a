"""Client requests as values that interceptors can change, and the last link of the interceptor chain."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from penstock.sdk.clients.descriptions import ActivityExecutionDescription, WorkflowExecutionDescription
from penstock.sdk.clients.start_batcher import StartBatcher
from penstock.sdk.connection.transport import Transport, route, route_of
from penstock.sdk.converters import DataConverter, Envelope
from penstock.sdk.converters.headers import with_headers
from penstock.sdk.failures import ServerRefused, refusal
from penstock.sdk.id_policies import WorkflowIDConflictPolicy as WorkflowIDConflictPolicy
from penstock.sdk.id_policies import WorkflowIDReusePolicy as WorkflowIDReusePolicy
from penstock.sdk.priority import Priority, priority_fields
from penstock.sdk.retry import RetryPolicy

Json = dict[str, Any]
UpdateStage = Literal["accepted", "completed"]


class WorkflowUpdateStage(StrEnum):
    """A stage of an update, by the names that Temporal's SDK has."""

    ADMITTED = "admitted"
    """Known there before a worker has seen the update. It cannot be waited for."""
    ACCEPTED = "accepted"
    COMPLETED = "completed"


OnLostLease = Literal["redeliver", "fail"]
UniqueUntil = Literal["done", "started"]
UniqueConflictPolicy = Literal["use_existing", "fail"]


def update_stage(stage: WorkflowUpdateStage) -> UpdateStage:
    """Return a stage as a request names it."""
    match WorkflowUpdateStage(stage):
        case WorkflowUpdateStage.ACCEPTED:
            return "accepted"
        case WorkflowUpdateStage.COMPLETED:
            return "completed"
        case _:
            raise ValueError(
                "wait_for_stage is ACCEPTED or COMPLETED: an update is admitted when it is accepted"
            )


QUERY_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 30
"""How long the server may hold a request that waits for an outcome. After that it is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkflowInput:
    """A start, with a signal if it is a signal-with-start."""

    workflow: str
    args: Sequence[Any]
    id: str
    task_queue: str
    request_id: str
    execution_timeout: timedelta | None = None
    run_timeout: timedelta | None = None
    id_reuse_policy: WorkflowIDReusePolicy = WorkflowIDReusePolicy.ALLOW_DUPLICATE
    id_conflict_policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL
    memo: Mapping[str, Any] | None = None
    search_attributes: Mapping[str, Any] | None = None
    priority: Priority | None = None
    business_key: str | None = None
    build_id: str | None = None
    concurrency_key: str | None = None
    start_signal: str | None = None
    start_signal_args: Sequence[Any] = ()
    start_delay: timedelta | None = None
    rpc_timeout: timedelta | None = None
    """How long the server may take to answer."""
    unique_key: str | None = None
    unique_until: UniqueUntil | None = None
    unique_conflict_policy: UniqueConflictPolicy | None = None
    debounce: timedelta | None = None
    debounce_max: timedelta | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Context for interceptors of the worker; of the signal as well if it is a signal-with-start."""


@dataclass(frozen=True, slots=True)
class StartedWorkflow:
    id: str
    run_id: str
    is_new: bool
    """False for the open run that has the id already (`USE_EXISTING`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """The run that a request addresses: the current one of an id, the current one of a chain, or a specific one."""

    id: str
    run_id: str | None
    first_execution_run_id: str | None = None
    """The first run of the chain: runs of later starts with the same id are not addressed."""

    @property
    def path(self) -> str:
        return route_of("workflows", self.id) + ("" if self.run_id is None else route("runs", self.run_id))

    @property
    def chain(self) -> Json | None:
        """The field that selects the chain, if the path names no run."""
        if self.run_id is not None or self.first_execution_run_id is None:
            return None
        return {"first_execution_run_id": self.first_execution_run_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalWorkflowInput(RunInput):
    signal: str
    args: Sequence[Any]
    request_id: str
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryWorkflowInput(RunInput):
    query: str
    args: Sequence[Any]
    result_type: Any = None
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWorkflowInput(RunInput):
    """An update. If it is sent again with its `update_id`, it is the same update, and its state is returned."""

    update: str
    args: Sequence[Any]
    update_id: str
    wait_for: UpdateStage
    wait_s: int = WAIT_SECONDS
    headers: Mapping[str, Any] = field(default_factory=dict)
    sent: list[Envelope] = field(default_factory=list, repr=False, compare=False)
    """The arguments as they were sent first."""


@dataclass(frozen=True, slots=True)
class UpdateState:
    """The state of an update. A failed update is raised, not returned."""

    run_id: str
    is_completed: bool
    result: Json | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWorkflowInput(RunInput):
    reason: str | None
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartActivityInput:
    """The start of a standalone activity."""

    activity: str
    args: Sequence[Any]
    id: str
    task_queue: str
    request_id: str
    start_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    schedule_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    start_delay: timedelta | None = None
    good_until: datetime | timedelta | None = None
    on_lost_lease: OnLostLease | None = None
    retry_policy: RetryPolicy | None = None
    id_reuse_policy: WorkflowIDReusePolicy = WorkflowIDReusePolicy.ALLOW_DUPLICATE
    id_conflict_policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.FAIL
    priority: Priority | None = None
    business_key: str | None = None
    build_id: str | None = None
    cost_estimate: int | None = None
    routing_key: str | None = None
    dispatch: Mapping[str, Any] | None = None
    """The configuration by which its options were resolved, and the layer of each option."""
    unique_key: str | None = None
    unique_until: UniqueUntil | None = None
    unique_conflict_policy: UniqueConflictPolicy | None = None
    debounce: timedelta | None = None
    debounce_max: timedelta | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartedActivity:
    id: str
    run_id: str
    is_new: bool


class OutboundInterceptor:
    """One link of the interceptor chain of a client. Override the methods to intercept, and call `next`.

    Each method handles one kind of request. Its `input` is a value that may be changed before it is passed on.

    Args:
        next: the next link, towards the server.
    """

    def __init__(self, next: OutboundInterceptor) -> None:  # noqa: A002 - the word that interceptors use
        self.next = next

    async def start_workflow(self, input: StartWorkflowInput) -> StartedWorkflow:  # noqa: A002
        return await self.next.start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        await self.next.signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        return await self.next.query_workflow(input)

    async def update_workflow(self, input: UpdateWorkflowInput) -> UpdateState:  # noqa: A002
        """Called once per wait, with the same `update_id`."""
        return await self.next.update_workflow(input)

    async def cancel_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        await self.next.cancel_workflow(input)

    async def terminate_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        await self.next.terminate_workflow(input)

    async def describe_workflow(self, input: RunInput) -> WorkflowExecutionDescription:  # noqa: A002
        return await self.next.describe_workflow(input)

    async def start_activity(self, input: StartActivityInput) -> StartedActivity:  # noqa: A002
        return await self.next.start_activity(input)

    async def start_activities(
        self, inputs: Sequence[StartActivityInput]
    ) -> Sequence[StartedActivity | ServerRefused]:
        """Start all `inputs` in few requests. Does not call `start_activity`."""
        return await self.next.start_activities(inputs)

    async def cancel_activity(self, id: str, reason: str | None, run_id: str | None = None) -> None:  # noqa: A002
        await self.next.cancel_activity(id, reason, run_id)

    async def describe_activity(self, id: str, run_id: str | None = None) -> ActivityExecutionDescription:  # noqa: A002
        return await self.next.describe_activity(id, run_id)


class ClientInterceptor:
    """Adds a link to the chain of a client. The first interceptor of a client is the outermost."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        """Return a link that calls `next`."""
        return next


def chain(interceptors: Sequence[ClientInterceptor], last: OutboundInterceptor) -> OutboundInterceptor:
    for each in reversed(interceptors):
        last = each.intercept_client(last)
    return last


def new_id() -> str:
    """Generate a unique id. Ids sort by time, so that rows created together are adjacent in the database."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


class HttpOutbound(OutboundInterceptor):
    """The last link: sends the requests over HTTP."""

    def __init__(self, transport: Transport, converter: DataConverter) -> None:
        super().__init__(self)
        self._transport = transport
        self._converter = converter
        self._workflows, self._activities = (
            StartBatcher(transport, "workflows"),
            StartBatcher(transport, "activities"),
        )

    async def start_workflow(self, input: StartWorkflowInput) -> StartedWorkflow:  # noqa: A002
        body = workflow_start_body(input, self._converter)
        async with within(input.rpc_timeout, f"The server did not answer the start of {input.id!r}"):
            if input.start_signal is None:
                response = await self._workflows.send(body, input.request_id)
            else:
                response = await self._signal_with_start(input, input.start_signal, body)
        return StartedWorkflow(
            response["workflow_id"], response["run_id"], response["outcome"] == "started_new"
        )

    async def _signal_with_start(self, start: StartWorkflowInput, signal: str, body: Json) -> Json:
        if body["id_conflict_policy"] == WorkflowIDConflictPolicy.FAIL:
            body["id_conflict_policy"] = WorkflowIDConflictPolicy.USE_EXISTING.value
        what = f'the signal "{signal}" of workflow "{start.workflow}"'
        body |= {
            "signal_name": signal,
            "signal_input": self._converter.encode_arguments(
                with_headers(start.start_signal_args, start.headers), what
            ),
            "signal_request_id": start.request_id,
        }
        path = route("workflows", "signal-with-start")
        return await self._transport.control(
            "POST", path, body, idempotent=True, idempotency_key=start.request_id
        )

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        arguments = self._converter.encode_arguments(
            with_headers(input.args, input.headers), f'signal "{input.signal}"'
        )
        body = {"input": arguments, "request_id": input.request_id}
        await self._transport.control(
            "POST", input.path + route("signal", input.signal), body, idempotent=True, query=input.chain
        )

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        arguments = self._converter.encode_arguments(
            with_headers(input.args, input.headers), f'query "{input.query}"'
        )
        body = {"input": arguments}
        path = input.path + route("query", input.query)
        response = await self._transport.control(
            "POST", path, body, idempotent=True, timeout_s=QUERY_SECONDS, query=input.chain
        )
        result = response["result_envelope"]
        if result is None and response["result"] is not None:  # from a worker that answers in plain JSON
            result = self._converter.encode(response["result"], f'result of query "{input.query}"')
        return self._converter.decode(result, input.result_type)

    async def update_workflow(self, input: UpdateWorkflowInput) -> UpdateState:  # noqa: A002
        body = {
            "input": self._update_arguments(input),
            "request_id": input.update_id,
            "wait_for": input.wait_for,
            "wait_timeout_seconds": input.wait_s,
        }
        response = await self._transport.control(
            "POST",
            input.path + route("update", input.update),
            body,
            idempotent=True,
            timeout_s=input.wait_s + QUERY_SECONDS,
            query=input.chain,
        )
        done = response["update_status"] == "completed"
        return UpdateState(response["run_id"], done, response["result_envelope"])

    def _update_arguments(self, update: UpdateWorkflowInput) -> Envelope:
        """Return the encoded arguments: those of the first wait, because codecs and headers may differ each time."""
        if not update.sent:
            arguments = with_headers(update.args, update.headers)
            update.sent.append(self._converter.encode_arguments(arguments, f'update "{update.update}"'))
        return update.sent[0]

    async def cancel_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        await self._end(input, "cancel")

    async def terminate_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        await self._end(input, "terminate")

    async def _end(self, end: EndWorkflowInput, how: str) -> None:
        body = _present(reason=end.reason, request_id=end.request_id)
        await self._transport.control("POST", end.path + route(how), body, idempotent=True, query=end.chain)

    async def describe_workflow(self, input: RunInput) -> WorkflowExecutionDescription:  # noqa: A002
        return WorkflowExecutionDescription.read(
            await self._transport.control("GET", input.path, idempotent=True, query=input.chain),
            self._converter,
        )

    async def start_activity(self, input: StartActivityInput) -> StartedActivity:  # noqa: A002
        return _started(
            await self._activities.send(activity_start_body(input, self._converter), input.request_id)
        )

    async def start_activities(
        self, inputs: Sequence[StartActivityInput]
    ) -> Sequence[StartedActivity | ServerRefused]:
        starts = [(activity_start_body(each, self._converter), each.request_id) for each in inputs]
        return [_outcome(response) for response in await self._activities.send_all(starts)]

    async def cancel_activity(self, id: str, reason: str | None, run_id: str | None = None) -> None:  # noqa: A002
        body = _present(reason=reason, request_id=new_id())
        path = route("activities", id, "cancel")
        await self._transport.control("POST", path, body, idempotent=True, query=_present(run_id=run_id))

    async def describe_activity(self, id: str, run_id: str | None = None) -> ActivityExecutionDescription:  # noqa: A002
        path = route("activities", id)
        response = await self._transport.control("GET", path, idempotent=True, query=_present(run_id=run_id))
        return ActivityExecutionDescription.read(response, self._converter)


def workflow_start_body(start: StartWorkflowInput, converter: DataConverter) -> Json:
    """The request that starts a workflow."""
    return _present(
        workflow_id=start.id,
        workflow_type=start.workflow,
        task_queue=start.task_queue,
        input=converter.encode_arguments(
            with_headers(start.args, start.headers), f'workflow "{start.workflow}"'
        ),
        **_id_policies(start),
        execution_timeout_seconds=_whole_seconds(start.execution_timeout, "execution_timeout"),
        run_timeout_seconds=_whole_seconds(start.run_timeout, "run_timeout"),
        start_delay_seconds=_whole_seconds(start.start_delay, "start_delay"),
        start_delay_ms=_whole_ms(start.start_delay, "start_delay"),
        memo=_plain(start.memo),
        search_attributes=_plain(start.search_attributes),
        business_key=start.business_key,
        build_id=start.build_id,
        concurrency_key=start.concurrency_key,
        **_unique_fields(start),
        deliver_cancel=True,
    ) | priority_fields(start.priority)


def activity_start_body(start: StartActivityInput, converter: DataConverter) -> Json:
    """The request that starts a standalone activity."""
    body = _present(
        activity_id=start.id,
        activity_type=start.activity,
        task_queue=start.task_queue,
        input=converter.encode_arguments(
            with_headers(start.args, start.headers), f'activity "{start.activity}"'
        ),
        **_id_policies(start),
        retry_policy=start.retry_policy.on_the_wire() if start.retry_policy else None,
        business_key=start.business_key,
        build_id=start.build_id,
        cost_estimate=start.cost_estimate,
        routing_key=start.routing_key,
        dispatch=start.dispatch,
        on_lost_lease=start.on_lost_lease,
        **_unique_fields(start),
    )
    if start.good_until is not None:
        body |= _good_until_field(start.good_until)
    for name in _TIMES:
        ms = _whole_ms(getattr(start, name), name)
        if ms is not None:
            body[f"{name}_seconds"], body[f"{name}_ms"] = -(-ms // 1000), ms
    return body | priority_fields(start.priority)


async def wait_for_end(transport: Transport, path: str, which: Json | None = None) -> Json:
    """Long-poll until something has ended. `which` are query parameters that select its run."""
    loop = asyncio.get_running_loop()
    while True:
        started_at = loop.time()
        response = await transport.control(
            "GET",
            path,
            idempotent=True,
            timeout_s=WAIT_SECONDS,
            query={"wait_seconds": WAIT_SECONDS} | (which or {}),
        )
        if response["is_terminal"]:
            return response
        await pace(loop.time() - started_at)


@asynccontextmanager
async def within(timeout: timedelta | float | None, message: str) -> AsyncIterator[None]:
    """Raise a `TimeoutError` with this message if the block takes longer."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"{message} within {seconds:g} seconds") from None


async def pace(took_s: float) -> None:
    """Pause before the next long poll if the server returned early: it shuts down, or cannot wait."""
    if took_s < 1:
        await asyncio.sleep(0.5)


_TIMES: Final = (
    "start_to_close_timeout",
    "schedule_to_start_timeout",
    "schedule_to_close_timeout",
    "heartbeat_timeout",
    "start_delay",
)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_TIME: Final = timedelta(0)


def _started(response: Json) -> StartedActivity:
    new = response["outcome"] == "started_new"
    return StartedActivity(response["activity_id"], response["workflow_run_id"], new)


def _outcome(item: Json) -> StartedActivity | ServerRefused:
    status = item.pop("http_status")
    return _started(item) if status < 400 else refusal(status, item)


def _id_policies(start: StartWorkflowInput | StartActivityInput) -> dict[str, str]:
    return {
        "id_reuse_policy": WorkflowIDReusePolicy(start.id_reuse_policy).value,
        "id_conflict_policy": WorkflowIDConflictPolicy(start.id_conflict_policy).value,
    }


def _unique_fields(start: StartWorkflowInput | StartActivityInput) -> Json:
    waits = {"debounce_seconds": start.debounce, "debounce_max_seconds": start.debounce_max}
    return {
        "unique_key": start.unique_key,
        "unique_until": start.unique_until,
        "unique_conflict_policy": start.unique_conflict_policy,
        **{
            name: None if time is None else (_whole_ms(time, name.removesuffix("_seconds")) or 0) / 1000
            for name, time in waits.items()
        },
    }


def _present(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _plain(values: Mapping[str, Any] | None) -> Json | None:
    """Return values that the server stores as JSON, not as payloads."""
    if values is None:
        return None
    plain: Json = msgspec.to_builtins(dict(values), str_keys=True)
    return plain


def _good_until_field(until: datetime | timedelta) -> Json:
    """The field for the latest start. A datetime is compared with the server's clock."""
    if isinstance(until, timedelta):
        return {"good_for_ms": _whole_ms(until, "good_until")}
    return {"good_until": until.astimezone(UTC).isoformat()}


def _whole_ms(time: timedelta | None, name: str) -> int | None:
    if time is None:
        return None
    if not isinstance(time, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {type(time).__name__}")
    if time < _NO_TIME or (not time and name != "start_delay"):
        raise ValueError(f"{name} must be longer than nothing")
    return -(-time // _MILLISECOND)


def _whole_seconds(time: timedelta | None, name: str) -> int | None:
    """Round a workflow timeout up to the whole seconds that the server accepts."""
    ms = _whole_ms(time, name)
    return None if ms is None else -(-ms // 1000)
