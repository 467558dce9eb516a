"""A plug-in that carries the tenant of a request to all code that works for it, and programs that read it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import Any

from penstock import ClientInterceptor, OutboundInterceptor, SimplePlugin, activity, workflow
from penstock.worker import (
    ActivityInboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)
HEADER = "tenant"
SOON = timedelta(seconds=30)


def _sent(input: Any) -> Any:  # noqa: A002
    tenant = TENANT.get()
    return input if tenant is None else replace(input, headers={**input.headers, HEADER: {"name": tenant}})


@contextmanager
def _tenant_in(headers: Mapping[str, Any]) -> Any:
    token = TENANT.set(headers[HEADER]["name"]) if HEADER in headers else None
    try:
        yield
    finally:
        if token is not None:
            TENANT.reset(token)


class TenantInterceptor(ClientInterceptor, Interceptor):
    """Sends the tenant with each call, and sets it around the code that is called."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _Sending(next)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _AroundActivity(next)

    def workflow_interceptor_class(self, input: Any) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        return _AroundWorkflow


class _Sending(OutboundInterceptor):
    async def start_workflow(self, input: Any) -> Any:  # noqa: A002
        return await self.next.start_workflow(_sent(input))

    async def signal_workflow(self, input: Any) -> None:  # noqa: A002
        await self.next.signal_workflow(_sent(input))

    async def query_workflow(self, input: Any) -> Any:  # noqa: A002
        return await self.next.query_workflow(_sent(input))

    async def update_workflow(self, input: Any) -> Any:  # noqa: A002
        return await self.next.update_workflow(_sent(input))

    async def start_activity(self, input: Any) -> Any:  # noqa: A002
        return await self.next.start_activity(_sent(input))


class _AroundActivity(ActivityInboundInterceptor):
    async def execute_activity(self, input: Any) -> Any:  # noqa: A002
        with _tenant_in(input.headers):
            return await self.next.execute_activity(input)


class _AroundWorkflow(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_FromWorkflow(outbound))

    async def execute_workflow(self, input: Any) -> Any:  # noqa: A002
        with _tenant_in(input.headers):
            return await self.next.execute_workflow(input)

    async def handle_signal(self, input: Any) -> None:  # noqa: A002
        with _tenant_in(input.headers):
            await self.next.handle_signal(input)

    def handle_query(self, input: Any) -> Any:  # noqa: A002
        with _tenant_in(input.headers):
            return self.next.handle_query(input)

    def handle_update_validator(self, input: Any) -> None:  # noqa: A002
        with _tenant_in(input.headers):
            self.next.handle_update_validator(input)

    async def handle_update_handler(self, input: Any) -> Any:  # noqa: A002
        with _tenant_in(input.headers):
            return await self.next.handle_update_handler(input)


class _FromWorkflow(WorkflowOutboundInterceptor):
    def start_activity(self, input: Any) -> Any:  # noqa: A002
        return self.next.start_activity(_sent(input))

    def start_local_activity(self, input: Any) -> Any:  # noqa: A002
        return self.next.start_local_activity(_sent(input))

    async def start_child_workflow(self, input: Any) -> Any:  # noqa: A002
        return await self.next.start_child_workflow(_sent(input))

    async def signal_child_workflow(self, input: Any) -> None:  # noqa: A002
        await self.next.signal_child_workflow(_sent(input))

    async def signal_external_workflow(self, input: Any) -> None:  # noqa: A002
        await self.next.signal_external_workflow(_sent(input))

    def continue_as_new(self, input: Any) -> Any:  # noqa: A002
        self.next.continue_as_new(_sent(input))


@activity.defn
async def tenant_of_activity(prefix: str, suffix: str = "!") -> str:
    return f"{prefix} {TENANT.get()}{suffix}"


@activity.defn
def tenant_of_thread() -> str | None:
    return TENANT.get()


@workflow.defn
class Listener:
    """A child that returns the tenants of the signals that it gets."""

    def __init__(self) -> None:
        self.heard: list[str | None] = []

    @workflow.run
    async def run(self) -> list[str | None]:
        own = TENANT.get()
        await workflow.wait_condition(lambda: len(self.heard) == 2)
        return [own, *self.heard]

    @workflow.signal
    async def hear(self) -> None:
        self.heard.append(TENANT.get())


@workflow.defn
class Everywhere:
    """Reads the tenant wherever code of a run may be."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.is_done = False

    @workflow.run
    async def run(self, is_second: bool = False) -> dict[str, Any]:
        if is_second:
            return {"next run": TENANT.get()}
        self.found["run"] = TENANT.get()
        self.found["activity"] = await workflow.execute_activity(
            tenant_of_activity, "of", start_to_close_timeout=SOON
        )
        self.found["thread"] = await workflow.execute_activity(tenant_of_thread, start_to_close_timeout=SOON)
        self.found["local"] = await workflow.execute_local_activity(
            tenant_of_activity, "of", start_to_close_timeout=SOON
        )
        child = await workflow.start_child_workflow(Listener.run)
        await child.signal(Listener.hear)
        await workflow.get_external_workflow_handle(child.id).signal(Listener.hear)
        self.found["child"] = await child
        await workflow.wait_condition(lambda: self.is_done)
        return self.found

    @workflow.signal
    async def note(self) -> None:
        self.found["signal"] = TENANT.get()

    @workflow.query
    def ask(self) -> str | None:
        return TENANT.get()

    @workflow.update
    async def finish(self, result: str) -> str:
        self.is_done = True
        return f"{result} {TENANT.get()}"

    @finish.validator
    def check(self, result: str) -> None:
        if TENANT.get() is None:
            raise ValueError("a tenant is needed")


@workflow.defn
class Twice:
    """Continues as new once."""

    @workflow.run
    async def run(self, is_second: bool = False) -> str | None:
        if not is_second:
            workflow.continue_as_new(True)
        return TENANT.get()


TENANTS = SimplePlugin("tenants", interceptors=[TenantInterceptor()])
PROGRAMS: dict[str, Any] = {
    "workflows": [Everywhere, Listener, Twice],
    "activities": [tenant_of_activity, tenant_of_thread],
}
EXPECTED = {
    "run": "acme",
    "activity": "of acme!",
    "thread": "acme",
    "local": "of acme!",
    "child": ["acme", "acme", "acme"],
    "signal": "globex",
}
