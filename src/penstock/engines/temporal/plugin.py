"""`PenstockPlugin`: workflows and activities of Penstock in a worker of temporalio that somebody else owns.

    worker = temporalio.worker.Worker(
        client, task_queue="orders", workflows=[Theirs], activities=[theirs],
        plugins=[PenstockPlugin(workflows=[Order], activities=[charge], dispatch=load_dispatch("dispatch.toml"))],
    )

The worker keeps its slots, rates and client; the plugin adds ours beside what it runs. The client needs our converter
to read types that JSON has none for: `Client.connect(…, plugins=[plugin])` sets it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig

from penstock.engines.temporal.activities import TemporalActivities
from penstock.engines.temporal.definitions import temporal_class
from penstock.engines.temporal.lint import check_code
from penstock.engines.temporal.payloads import CONVERTER
from penstock.engines.temporal.port import RunSettings
from penstock.engines.temporal.refusals import not_here
from penstock.engines.temporal.runner import GuardedRunner
from penstock.engines.temporal.support import check_support
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.info import WorkerIdentity
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.dispatch_options import Dispatch, config_getter
from penstock.sdk.workflows.definitions import WorkflowDefinition


class PenstockPlugin(SimplePlugin):
    """Adds workflows and activities of Penstock to clients and workers of temporalio.

    Args:
        workflows: classes decorated with `@workflow.defn` of Penstock.
        activities: functions decorated with `@activity.defn` of Penstock.
        dispatch: routes the activities of these workflows.
        data_converter: encodes arguments and results; its codecs apply to what Penstock code sends.
        interceptors: objects with `intercept_activity` or `intercept_workflow`, outermost first.
        auto_heartbeat: whether heartbeats are sent for activities that do not configure this themselves; None takes
            the value of `dispatch`.
        thread_slots: threads for sync activities.
    """

    def __init__(
        self,
        *,
        workflows: Sequence[type] = (),
        activities: Sequence[Callable[..., Any]] = (),
        dispatch: Dispatch | None = None,
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[Any] = (),
        auto_heartbeat: bool | None = None,
        thread_slots: int = 100,
    ) -> None:
        if not data_converter.failure_converter.is_plain:
            raise not_here("a failure converter of a DataConverter", "give one to temporalio's client")
        definitions = [WorkflowDefinition.of(each) for each in workflows]
        check_code(definitions)
        getter = config_getter(dispatch)
        config = getter()
        check_support(config)
        settings = RunSettings(data_converter, getter, interceptors)
        beats = auto_heartbeat if auto_heartbeat is not None else config is not None and config.auto_heartbeat
        self._definitions = definitions
        self._activities = [ActivityDefinition.to_run(each) for each in activities]
        self._converter = data_converter
        self._options = {"thread_slots": thread_slots, "auto_heartbeat": beats, "interceptors": interceptors}
        self._of_workers: list[TemporalActivities] = []
        super().__init__(
            "penstock",
            data_converter=CONVERTER,
            workflows=[temporal_class(each, settings) for each in definitions],
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add the workflows, with their determinism guard, and activities with threads and processes of their own."""
        config = super().configure_worker(config)
        where = WorkerIdentity("", config.get("task_queue") or "", config.get("identity") or "plugin")
        activities = TemporalActivities(self._activities, self._converter, where, self._options)
        self._of_workers.append(activities)
        config["activities"] = [*(config.get("activities") or ()), *activities.functions]
        theirs = config.get("unsandboxed_workflow_runner")
        config["unsandboxed_workflow_runner"] = GuardedRunner(self._definitions, theirs)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002
        """Run a worker, then release its threads and processes."""
        try:
            await super().run_worker(worker, next)
        finally:
            registered = worker.config(active_config=True).get("activities") or ()
            for each in [one for one in self._of_workers if any(fn in registered for fn in one.functions)]:
                self._of_workers.remove(each)
                await each.runner.close()
