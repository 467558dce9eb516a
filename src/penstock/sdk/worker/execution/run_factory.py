"""Creates the in-memory run for a workflow task from the definition of its type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.sdk.converters import DataConverter
from penstock.sdk.dispatch_options import ConfigGetter
from penstock.sdk.priority import priority_in
from penstock.sdk.replay.info import PolledRun
from penstock.sdk.replay.instance import WorkflowRun
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.registry import WorkerRegistry

Json = dict[str, Any]
RunFactory = Callable[[Json], WorkflowRun]
"""Creates a run in its initial state. Raises `UnknownWorkflowTypeError` if the worker has no such type."""


def run_factory(
    registry: WorkerRegistry,
    options: WorkerOptions,
    converter: DataConverter,
    namespace: str,
    interceptors: Sequence[Any],
    dispatch: ConfigGetter,
) -> RunFactory:
    stuck_after_s = None if options.debug_mode else options.task_timeout.total_seconds()

    def begin(task: Json) -> WorkflowRun:
        return WorkflowRun(
            registry.workflow(task["workflow_type"]),
            _place(task, namespace),
            converter,
            stuck_after_s=stuck_after_s,
            interceptors=interceptors,
            dispatch=dispatch,
        )

    return begin


def with_arguments(task: Json, events: list[Json]) -> list[Json]:
    """Return the events with the workflow's arguments added to the start event.

    The server sends them beside the history.
    """
    if not events or events[0].get("sequence") != 1:
        return events
    given = task["workflow_arguments"] if "workflow_arguments" in task else task.get("arguments")
    started = events[0] | {"payload": {"arguments": given} | events[0]["payload"]}
    return [started, *events[1:]]


def _place(task: Json, namespace: str) -> PolledRun:
    return PolledRun(
        namespace=namespace,
        task_queue=task["task_queue"],
        workflow_id=task["workflow_id"],
        run_id=task["run_id"],
        workflow_type=task["workflow_type"],
        priority=priority_in(task),
        arguments=task.get("arguments"),
    )
