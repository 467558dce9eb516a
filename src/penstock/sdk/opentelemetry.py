"""OpenTelemetry for clients and workers: spans of requests, runs and activities, and worker metrics.

Theory of operation
-------------------
A span of a client that starts or signals a run puts its context into the headers of the call, in the form of W3C trace
context. The run takes it from there, and each call that its code makes carries a context on: to activities, children,
signals and the next run. So all that follows from a request is one trace, whichever workers run it.

Workflow code is replayed, and a span is exported once. Spans of workflow code are therefore points in time, made and
ended when the code first comes there and left out in a replay: `RunWorkflow`, `StartActivity`, `HandleSignal` and so
on. They are children of what started the run, not of each other, so that a trace looks the same however often code was
replayed. What lasts is in the spans of activities and clients. Random span ids do no harm to a replay, because headers
are not compared with the history.

A run that was started without a context, by a schedule for example, begins a trace whose id derives from its run id.

Requires the package opentelemetry-api, which nothing else in Penstock needs.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from penstock.sdk.activities.context import current
from penstock.sdk.activities.interceptors import ActivityInboundInterceptor, ExecuteActivityInput
from penstock.sdk.clients.interceptors import (
    ClientInterceptor,
    EndWorkflowInput,
    OutboundInterceptor,
    QueryWorkflowInput,
    SignalWorkflowInput,
    StartActivityInput,
    StartedActivity,
    StartedWorkflow,
    StartWorkflowInput,
    UpdateState,
    UpdateWorkflowInput,
)
from penstock.sdk.plugins import SimplePlugin
from penstock.sdk.replay.determinism_guard import unguarded
from penstock.sdk.replay.interceptors import (
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    WorkflowInboundInterceptor,
)
from penstock.sdk.workflow_port.outbound import (
    ContinueAsNewInput,
    ScheduleActivityInput,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowOutboundInterceptor,
)
from penstock.sdk.workflow_port.port import current as current_port

NAME = "penstock"
HEADER = "_tracer-data"
"""The header with the trace context, under the name that Temporal's SDKs use."""


class TracingInterceptor(ClientInterceptor):
    """Pass it to a client; workers of the client use it as well.

    Arguments and results are not recorded. Spans of clients that start runs name them as `penstock.run_id`.

    Args:
        tracer: the tracer for spans; None is that of the global provider.
    """

    def __init__(self, tracer: Any = None) -> None:
        self._trace = _needed("opentelemetry.trace")
        self._propagation = _needed("opentelemetry.trace.propagation.tracecontext")
        self._form = self._propagation.TraceContextTextMapPropagator()
        self._tracer = tracer or self._trace.get_tracer(NAME)

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _TracedClient(next, self)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _TracedActivity(next, self)

    def intercept_workflow(self, next: WorkflowInboundInterceptor) -> WorkflowInboundInterceptor:  # noqa: A002
        return _TracedWorkflow(next, self)

    @contextmanager
    def asking(self, name: str, facts: Mapping[str, Any]) -> Iterator[Any]:
        """A client span around a request."""
        kind = self._trace.SpanKind.CLIENT
        with self._tracer.start_as_current_span(name, kind=kind, attributes=_attributes(facts)) as span:
            yield span

    @contextmanager
    def running(
        self, name: str, run_id: str | None, headers: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Iterator[Any]:
        """A worker span in the trace of the call that has these headers, or else of the run."""
        kind = self._trace.SpanKind.CONSUMER
        context = self.context_in(headers) or self._context_of(run_id)
        with self._tracer.start_as_current_span(
            name, context=context, kind=kind, attributes=_attributes(facts)
        ) as span:
            yield span

    def headers_with(self, headers: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
        """Return headers with a context; None is the current one."""
        carrier: dict[str, str] = {}
        self._form.inject(carrier, context=context)
        return {**headers, HEADER: carrier} if carrier else dict(headers)

    def context_in(self, headers: Mapping[str, Any]) -> Any:
        """Return the context in the headers of a call; None if there is none."""
        carrier = headers.get(HEADER)
        return self._form.extract(carrier) if isinstance(carrier, Mapping) and carrier else None

    def point(self, name: str, context: Any, facts: Mapping[str, Any]) -> Any:
        """Record a span of workflow code, unless it is a replay, and return the context below it.

        Span ids and times come from outside of the run, and reach nothing that a replay observes.
        """
        if current_port().is_replaying:
            return context
        with unguarded():
            span = self._tracer.start_span(name, context=context, attributes=_attributes(facts))
            span.end()
        return self._trace.set_span_in_context(span, context)

    def run_context(self, headers: Mapping[str, Any]) -> Any:
        """Return the context in which the code of the current run begins."""
        found = self.context_in(headers)
        return self._context_of(current_port().info.run_id) if found is None else found

    def _context_of(self, run_id: str | None) -> Any:
        if run_id is None:
            return None
        trace = self._trace
        whole = trace.SpanContext(
            trace_id=int(run_trace_id(run_id), 16),
            span_id=int(_digest(run_id)[32:48], 16) or 1,
            is_remote=True,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )
        return trace.set_span_in_context(trace.NonRecordingSpan(whole))


class OpenTelemetryPlugin(SimplePlugin):
    """Tracing of a client and its workers: `Client.connect(plugins=[OpenTelemetryPlugin()])`.

    Args:
        tracer: the tracer for spans; None is that of the global provider.
    """

    def __init__(self, tracer: Any = None) -> None:
        super().__init__("opentelemetry", interceptors=[TracingInterceptor(tracer)])


def run_trace_id(run_id: str) -> str:
    """Return the hexadecimal trace id of a run that was started without a trace context.

    Args:
        run_id: the run id.
    """
    return _digest(run_id)[:32]


class OpenTelemetryMetrics:
    """Worker metrics as OpenTelemetry instruments: `Worker(..., metrics=OpenTelemetryMetrics())`.

    Args:
        meter: the meter that creates the instruments; None is that of the global provider.
    """

    def __init__(self, meter: Any = None) -> None:
        self._meter = meter or _needed("opentelemetry.metrics").get_meter(NAME)
        self._counters: dict[str, Any] = {}
        self._times: dict[str, Any] = {}
        self._gauges: dict[str, Any] = {}

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        if name not in self._counters:
            self._counters[name] = self._meter.create_counter(name)
        self._counters[name].add(by, labels)

    def timing(self, name: str, seconds: float, **labels: str) -> None:
        if name not in self._times:
            self._times[name] = self._meter.create_histogram(name, unit="s")
        self._times[name].record(seconds, labels)

    def level(self, name: str, value: float, **labels: str) -> None:
        if name not in self._gauges:
            self._gauges[name] = self._meter.create_gauge(name)
        self._gauges[name].set(value, labels)


class _TracedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, tracing: TracingInterceptor) -> None:  # noqa: A002
        super().__init__(next)
        self._tracing = tracing

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = current().info
        name = f"RunActivity:{info.activity_type}"
        with self._tracing.running(name, info.workflow_run_id, input.headers, info.ids):
            return await self.next.execute_activity(input)


class _TracedWorkflow(WorkflowInboundInterceptor):
    def __init__(self, next: WorkflowInboundInterceptor, tracing: TracingInterceptor) -> None:  # noqa: A002
        super().__init__(next)
        self._tracing = tracing
        self.context: Any = None
        """The context of what the code of the run does."""

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_TracedCalls(outbound, self._tracing, self))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        info = current_port().info
        self.context = self._tracing.run_context(input.headers)
        self._tracing.point(f"RunWorkflow:{info.workflow_type}", self.context, _run_facts())
        return await self.next.execute_workflow(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        self._handled(f"HandleSignal:{input.signal}", input.headers)
        await self.next.handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        self._handled(f"HandleUpdate:{input.update}", input.headers)
        return await self.next.handle_update_handler(input)

    def _handled(self, name: str, headers: Mapping[str, Any]) -> None:
        context = self._tracing.context_in(headers)
        self._tracing.point(name, self.context if context is None else context, _run_facts())


class _TracedCalls(WorkflowOutboundInterceptor):
    def __init__(
        self,
        next: WorkflowOutboundInterceptor,  # noqa: A002
        tracing: TracingInterceptor,
        run: _TracedWorkflow,
    ) -> None:
        super().__init__(next)
        self._tracing, self._run = tracing, run

    def start_activity(self, input: ScheduleActivityInput) -> Any:  # noqa: A002
        return self.next.start_activity(self._traced(f"StartActivity:{input.activity}", input))

    def start_local_activity(self, input: StartLocalActivityInput) -> Any:  # noqa: A002
        return self.next.start_local_activity(self._traced(f"StartActivity:{input.activity}", input))

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> Any:  # noqa: A002
        return await self.next.start_child_workflow(
            self._traced(f"StartChildWorkflow:{input.workflow}", input)
        )

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:  # noqa: A002
        await self.next.signal_child_workflow(self._traced(f"SignalChildWorkflow:{input.signal}", input))

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:  # noqa: A002
        await self.next.signal_external_workflow(
            self._traced(f"SignalExternalWorkflow:{input.signal}", input)
        )

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002
        self.next.continue_as_new(self._traced(f"ContinueAsNew:{input.workflow}", input))

    def _traced(self, name: str, input: Any) -> Any:  # noqa: A002
        context = self._tracing.point(name, self._run.context, _run_facts())
        return replace(input, headers=self._tracing.headers_with(input.headers, context))


class _TracedClient(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, tracing: TracingInterceptor) -> None:  # noqa: A002
        super().__init__(next)
        self._tracing = tracing

    async def start_workflow(self, input: StartWorkflowInput) -> StartedWorkflow:  # noqa: A002
        facts = {"workflow_id": input.id, "workflow_type": input.workflow, "task_queue": input.task_queue}
        with self._tracing.asking(f"StartWorkflow:{input.workflow}", facts) as span:
            started = await self.next.start_workflow(self._traced(input))
            _note_run(span, started.run_id)
            return started

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        with self._tracing.asking(f"SignalWorkflow:{input.signal}", {"workflow_id": input.id}):
            await self.next.signal_workflow(self._traced(input))

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        with self._tracing.asking(f"QueryWorkflow:{input.query}", {"workflow_id": input.id}):
            return await self.next.query_workflow(self._traced(input))

    async def update_workflow(self, input: UpdateWorkflowInput) -> UpdateState:  # noqa: A002
        with self._tracing.asking(f"UpdateWorkflow:{input.update}", {"workflow_id": input.id}):
            return await self.next.update_workflow(self._traced(input))

    async def cancel_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        with self._tracing.asking("CancelWorkflow", {"workflow_id": input.id}):
            await self.next.cancel_workflow(input)

    async def terminate_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        with self._tracing.asking("TerminateWorkflow", {"workflow_id": input.id}):
            await self.next.terminate_workflow(input)

    async def start_activity(self, input: StartActivityInput) -> StartedActivity:  # noqa: A002
        facts = {"activity_id": input.id, "activity_type": input.activity, "task_queue": input.task_queue}
        with self._tracing.asking(f"StartActivity:{input.activity}", facts) as span:
            started = await self.next.start_activity(self._traced(input))
            _note_run(span, started.run_id)
            return started

    def _traced(self, input: Any) -> Any:  # noqa: A002
        return replace(input, headers=self._tracing.headers_with(input.headers))


def _run_facts() -> dict[str, Any]:
    info = current_port().info
    return {"workflow_id": info.workflow_id, "run_id": info.run_id}


def _note_run(span: Any, run_id: str) -> None:
    span.set_attribute("penstock.run_id", run_id)


def _attributes(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"penstock.{name}": value for name, value in facts.items() if value is not None}


def _digest(run_id: str) -> str:
    return hashlib.sha256(f"penstock run {run_id}".encode()).hexdigest()


def _needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(
            "This needs OpenTelemetry: install opentelemetry-api, and an SDK to export with"
        ) from None
