"""Spans and metrics of workers and clients in OpenTelemetry."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest

from penstock.sdk import activity, workflow
from penstock.sdk.opentelemetry import OpenTelemetryMetrics, TracingInterceptor, run_trace_id
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


async def test_all_activities_of_a_run_are_in_one_trace_that_its_start_names(cluster: Cluster) -> None:
    export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    memory: Any = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider: Any = importlib.import_module("opentelemetry.sdk.trace").TracerProvider()
    kept = memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    tracing = TracingInterceptor(provider.get_tracer("test"))
    scene = await new_namespace(cluster)
    async with await connected(scene, interceptors=[tracing]) as client:
        async with Worker(
            client, task_queue="q", workflows=[Greeter], activities=[greet], interceptors=[tracing]
        ):
            handle = await client.start_workflow(Greeter.run, "you", id="observed", task_queue="q")
            await handle.result()
        run_id = handle.first_execution_run_id or ""
    spans = {span.name: span for span in kept.get_finished_spans()}
    ran = [span for span in kept.get_finished_spans() if span.name == "RunActivity:greet"]
    assert [f"{span.context.trace_id:032x}" for span in ran] == [run_trace_id(run_id)] * 2
    assert spans["StartWorkflow:Greeter"].attributes["penstock.run_trace_id"] == run_trace_id(run_id)


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
