"""Which run a reader means: the current one of a workflow id, or any that is named, also a past one."""

from __future__ import annotations

from msgspec import Struct

from penstock.core.model import Instance, Run, RunHost, RunId
from penstock.engine.runs.address import no_instance, no_run
from penstock.ports.store import Tx


class Located(Struct, frozen=True):
    run: Run
    instance: Instance

    @property
    def is_current(self) -> bool:
        return self.run.run_id == self.instance.run_id


async def locate(tx: Tx, namespace: str, workflow_id: str, run_id: str | None = None) -> Located:
    """The run of a workflow; standalone activities are not found here."""
    found = await tx.runs.named(namespace, workflow_id, None if run_id is None else RunId(run_id))
    if found is None:
        raise no_instance(workflow_id)
    instance, run = found
    if run is None or (run.namespace, run.workflow_id) != (namespace, workflow_id):
        raise no_run(workflow_id, run_id or instance.run_id)
    if run.host is not RunHost.WORKFLOW:
        raise no_instance(workflow_id)
    return Located(run, instance)
