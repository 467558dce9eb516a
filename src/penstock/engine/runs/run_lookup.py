"""Finding the run that a read request names: the current run of a workflow id, or any past run."""

from __future__ import annotations

from msgspec import Struct

from penstock.core.model import Activity, ActivityId, Instance, Run, RunHost, RunId
from penstock.engine.runs.address import no_instance, no_run
from penstock.ports.store import Tx


class Located(Struct, frozen=True):
    """A run and its workflow id's row."""

    run: Run
    instance: Instance

    @property
    def is_current(self) -> bool:
        return self.run.run_id == self.instance.run_id


async def locate(tx: Tx, namespace: str, workflow_id: str, run_id: str | None = None) -> Located:
    """Find a run of a workflow. Raises `NotFound`, also for standalone activities."""
    found = await tx.runs.named(namespace, workflow_id, None if run_id is None else RunId(run_id))
    if found is None:
        raise no_instance(workflow_id)
    instance, run = found
    if run is None or (run.namespace, run.workflow_id) != (namespace, workflow_id):
        raise no_run(workflow_id, run_id or instance.run_id)
    if run.host is not RunHost.WORKFLOW:
        raise no_instance(workflow_id)
    return Located(run, instance)


async def locate_activity(tx: Tx, namespace: str, activity_id: str) -> tuple[Run, Activity] | None:
    """A standalone activity by its caller's id, or any activity by its id in the history."""
    instance = await tx.runs.instance(namespace, activity_id)
    run = None if instance is None else await tx.runs.get(instance.run_id)
    if run is not None and run.host is RunHost.ACTIVITY:
        found = await tx.activities.get(ActivityId(f"{run.run_id}-a1"))
    else:
        found = await tx.activities.get(ActivityId(activity_id))
        run = None if found is None else await tx.runs.get(found.run_id)
    if run is None or found is None or run.namespace != namespace:
        return None
    return run, found
