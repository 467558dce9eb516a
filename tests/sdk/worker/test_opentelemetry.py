"""Spans and metrics of workers and clients in OpenTelemetry."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.opentelemetry import (
    OpenTelemetryMetrics,
    OpenTelemetryPlugin,
    TracingInterceptor,
    run_trace_id,
)
from penstock.sdk.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected, new_namespace


@activity.defn
async def greet(name: str) -> str:
    return f"Hello {name}"


@workflow.defn
class Greeter:
    @workflow.run
    async def run(self, name: str) -> str:
        how: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=30)}
        first = await workflow.execute_activity(greet, name, **how)
        return f"{first} {await workflow.execute_activity(greet, name, **how)}"


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("penstock.sdk.opentelemetry.importlib.import_module", missing)
    with pytest.raises(ImportError, match="install opentelemetry-api"):
        TracingInterceptor()


def kept_spans() -> tuple[Any, Any]:
    """A tracer of the real SDK, and the exporter that keeps its spans."""
    export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    memory: Any = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider: Any = importlib.import_module("opentelemetry.sdk.trace").TracerProvider()
    kept = memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    return provider.get_tracer("test"), kept


def tree(kept: Any) -> list[str]:
    """The spans in one line each, below their parents in the order in which they began."""
    spans = sorted(kept.get_finished_spans(), key=lambda span: span.start_time)
    below: dict[int | None, list[Any]] = {}
    known = {span.context.span_id for span in spans}
    for span in spans:
        parent = span.parent.span_id if span.parent and span.parent.span_id in known else None
        below.setdefault(parent, []).append(span)

    def lines(parent: int | None, depth: int) -> list[str]:
        found: list[str] = []
        for span in below.get(parent, []):
            found.append("  " * depth + span.name)
            found += lines(span.context.span_id, depth + 1)
        return found

    return lines(None, 0)


@workflow.defn
class Conversation:
    """Has a child, a signal, an update and a local activity."""

    def __init__(self) -> None:
        self.is_over = False

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: self.is_over)
        first = await workflow.execute_child_workflow(Greeter.run, "you")
        return first + await workflow.execute_local_activity(greet, "me")

    @workflow.signal
    def note(self) -> None: ...

    @workflow.update
    def finish(self) -> None:
        self.is_over = True


@pytest.mark.parametrize("time", ["first", "second"])
async def test_all_that_follows_from_a_request_is_one_trace_however_often_code_is_replayed(
    cluster: Cluster, time: str
) -> None:
    tracer, kept = kept_spans()
    scene = await new_namespace(cluster)
    async with (
        await connected(scene, plugins=[OpenTelemetryPlugin(tracer)]) as client,
        Worker(
            client,
            task_queue="q",
            workflows=[Conversation, Greeter],
            activities=[greet],
            max_cached_workflows=0,
        ),
    ):
        with tracer.start_as_current_span("request"):
            handle = await client.start_workflow(Conversation.run, id="talk", task_queue="q")
            await handle.signal(Conversation.note)
            await handle.execute_update(Conversation.finish)
            assert await handle.result() == "Hello you Hello youHello me"
    assert tree(kept) == [
        "request",
        "  StartWorkflow:Conversation",
        "    RunWorkflow:Conversation",
        "    StartChildWorkflow:Greeter",
        "      RunWorkflow:Greeter",
        "      StartActivity:greet",
        "        RunActivity:greet",
        "      StartActivity:greet",
        "        RunActivity:greet",
        "    StartActivity:greet",
        "      RunActivity:greet",
        "  SignalWorkflow:note",
        "    HandleSignal:note",
        "  UpdateWorkflow:finish",
        "    HandleUpdate:finish",
    ]
    assert len({span.context.trace_id for span in kept.get_finished_spans()}) == 1


async def test_a_run_that_was_started_without_a_trace_begins_one_that_its_id_names(cluster: Cluster) -> None:
    tracer, kept = kept_spans()
    scene = await new_namespace(cluster)
    tracing = TracingInterceptor(tracer)
    async with (
        await connected(scene) as client,
        Worker(client, task_queue="q", workflows=[Greeter], activities=[greet], interceptors=[tracing]),
    ):
        handle = await client.start_workflow(Greeter.run, "you", id="observed", task_queue="q")
        await handle.result()
    run_id = handle.first_execution_run_id or ""
    assert {f"{span.context.trace_id:032x}" for span in kept.get_finished_spans()} == {run_trace_id(run_id)}


async def test_an_interceptor_given_to_client_and_worker_traces_once(cluster: Cluster) -> None:
    tracer, kept = kept_spans()
    scene = await new_namespace(cluster)
    tracing = TracingInterceptor(tracer)
    async with (
        await connected(scene, interceptors=[tracing]) as client,
        Worker(client, task_queue="q", activities=[greet], interceptors=[tracing]),
    ):
        handle = await client.start_activity(greet, "you", id="alone", task_queue="q")
        assert await handle.result() == "Hello you"
    assert tree(kept) == ["StartActivity:greet", "  RunActivity:greet"]


async def test_the_numbers_of_a_worker_are_instruments_of_a_meter(cluster: Cluster) -> None:
    export: Any = importlib.import_module("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider: Any = importlib.import_module("opentelemetry.sdk.metrics").MeterProvider([reader])
    scene = await new_namespace(cluster)
    async with await connected(scene) as client:
        metrics = OpenTelemetryMetrics(provider.get_meter("test"))
        async with Worker(client, task_queue="q", workflows=[Greeter], activities=[greet], metrics=metrics):
            await client.execute_workflow(Greeter.run, "you", id="counted", task_queue="q")
    found = {
        metric.name
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {
        "penstock_worker_tasks_started",
        "penstock_worker_task_seconds",
        "penstock_worker_free_slots",
    } <= found
