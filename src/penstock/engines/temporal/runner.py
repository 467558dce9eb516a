"""The workflow runner: Temporal's plain one, with our determinism guard around each first execution.

Temporal's sandbox imports workflow modules anew for each run and refuses classes that were defined outside. Our guard
watches the calls of the code instead, so imports are shared and the code is the one that the worker registered. As on
our engine it is off during a replay: what the code did then was checked when it ran first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from penstock.sdk.replay.determinism_guard import DeterminismGuard


class GuardedRunner(UnsandboxedWorkflowRunner):
    """Runs workflow code in this process, guarded unless its definition says `sandboxed=False`.

    Args:
        unguarded: names of workflow types that are not guarded; None is the dynamic workflow.
    """

    def __init__(self, unguarded: frozenset[str | None] = frozenset()) -> None:
        super().__init__()
        self._unguarded = unguarded

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        if det.defn.name not in self._unguarded:
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
