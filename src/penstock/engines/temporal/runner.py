"""The workflow runner: Temporal's plain one, with our determinism guard around each first execution.

Temporal's sandbox imports workflow modules anew for each run and refuses classes that were defined outside. Our guard
watches the calls of the code instead, so imports are shared and the code is the one that the worker registered. As on
our engine it is off during a replay: what the code did then was checked when it ran first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from temporalio.worker import (
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowRunner,
)

from penstock.sdk.replay.determinism_guard import DeterminismGuard
from penstock.sdk.workflows.definitions import WorkflowDefinition


class GuardedRunner(WorkflowRunner):
    """Runs workflow code in this process, guarded unless its definition says `sandboxed=False`.

    Args:
        definitions: the workflows of Penstock; all others run as another runner runs them.
        others: that runner.
    """

    def __init__(
        self, definitions: Iterable[WorkflowDefinition] = (), others: WorkflowRunner | None = None
    ) -> None:
        super().__init__()
        self._guarded = frozenset(each.name for each in definitions if each.is_guarded)
        self._others = others or UnsandboxedWorkflowRunner()

    def prepare_workflow(self, defn: Any) -> None:
        self._others.prepare_workflow(defn)

    def set_worker_level_failure_exception_types(self, types: Sequence[type[BaseException]]) -> None:
        self._others.set_worker_level_failure_exception_types(types)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = self._others.create_instance(det)
        if det.defn.name in self._guarded:
            instance.activate = _guarded(instance.activate, det)  # type: ignore[assignment,method-assign]
        return instance


def _guarded(activate: Callable[[Any], Any], det: WorkflowInstanceDetails) -> Callable[[Any], Any]:
    def activate_guarded(act: Any) -> Any:
        if act.is_replaying:
            return activate(act)
        with DeterminismGuard() as watch:
            completion = activate(act)
        if watch.violation is not None and completion.HasField("successful"):
            completion.failed.failure.message = str(watch.violation)
            info = completion.failed.failure.application_failure_info
            info.type = type(watch.violation).__name__
        return completion

    return activate_guarded
