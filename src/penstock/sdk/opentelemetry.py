"""OpenTelemetry for clients and workers: spans of requests and activities, and worker metrics.

Requires the package opentelemetry-api, which nothing else in Penstock needs.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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

NAME = "penstock"


class TracingInterceptor(ClientInterceptor):
    """Pass it to a client, a worker, or both.

    All activities of a run are in one trace, whichever workers run them: the trace id derives from the run id, and
    spans of clients that start runs carry it as `penstock.run_trace_id`. Arguments and results are not recorded.

    Args:
        tracer: the tracer for spans; None is that of the global provider.
    """

    def __init__(self, tracer: Any = None) -> None:
        self._trace = _needed("opentelemetry.trace")
        self._tracer = tracer or self._trace.get_tracer(NAME)

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _TracedClient(next, self)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _TracedActivity(next, self)

    @contextmanager
    def asking(self, name: str, facts: Mapping[str, Any]) -> Iterator[Any]:
        """A client span around a request."""
        kind = self._trace.SpanKind.CLIENT
        with self._tracer.start_as_current_span(name, kind=kind, attributes=_attributes(facts)) as span:
            yield span

    @contextmanager
    def running(self, name: str, run_id: str | None, facts: Mapping[str, Any]) -> Iterator[Any]:
        """A worker span in the trace of a run."""
        kind = self._trace.SpanKind.CONSUMER
        with self._tracer.start_as_current_span(
            name, context=self._context_of(run_id), kind=kind, attributes=_attributes(facts)
        ) as span:
            yield span

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


def run_trace_id(run_id: str) -> str:
    """Return the hexadecimal trace id of a run.

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
        with self._tracing.running(f"RunActivity:{info.activity_type}", info.workflow_run_id, info.ids):
            return await self.next.execute_activity(input)


class _TracedClient(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, tracing: TracingInterceptor) -> None:  # noqa: A002
        super().__init__(next)
        self._tracing = tracing

    async def start_workflow(self, input: StartWorkflowInput) -> StartedWorkflow:  # noqa: A002
        facts = {"workflow_id": input.id, "workflow_type": input.workflow, "task_queue": input.task_queue}
        with self._tracing.asking(f"StartWorkflow:{input.workflow}", facts) as span:
            started = await self.next.start_workflow(input)
            _note_run(span, started.run_id)
            return started

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:  # noqa: A002
        with self._tracing.asking(f"SignalWorkflow:{input.signal}", {"workflow_id": input.id}):
            await self.next.signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002
        with self._tracing.asking(f"QueryWorkflow:{input.query}", {"workflow_id": input.id}):
            return await self.next.query_workflow(input)

    async def update_workflow(self, input: UpdateWorkflowInput) -> UpdateState:  # noqa: A002
        with self._tracing.asking(f"UpdateWorkflow:{input.update}", {"workflow_id": input.id}):
            return await self.next.update_workflow(input)

    async def cancel_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        with self._tracing.asking("CancelWorkflow", {"workflow_id": input.id}):
            await self.next.cancel_workflow(input)

    async def terminate_workflow(self, input: EndWorkflowInput) -> None:  # noqa: A002
        with self._tracing.asking("TerminateWorkflow", {"workflow_id": input.id}):
            await self.next.terminate_workflow(input)

    async def start_activity(self, input: StartActivityInput) -> StartedActivity:  # noqa: A002
        facts = {"activity_id": input.id, "activity_type": input.activity, "task_queue": input.task_queue}
        with self._tracing.asking(f"StartActivity:{input.activity}", facts) as span:
            started = await self.next.start_activity(input)
            _note_run(span, started.run_id)
            return started


def _note_run(span: Any, run_id: str) -> None:
    span.set_attribute("penstock.run_id", run_id)
    span.set_attribute("penstock.run_trace_id", run_trace_id(run_id))


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
