"""The command group for workflows."""

from __future__ import annotations

from penstock.cli.grammar import noun
from penstock.cli.limits.run_caps import limits
from penstock.cli.workflows.batch import batch
from penstock.cli.workflows.debug import debug_workflow
from penstock.cli.workflows.describe import describe_workflow, list_runs
from penstock.cli.workflows.history.export import export_history
from penstock.cli.workflows.history.replay import replay_workflows
from penstock.cli.workflows.history.show import show_history
from penstock.cli.workflows.maintenance import archive_workflow, redrive_workflow, repair_workflow
from penstock.cli.workflows.messages import query_workflow, signal_workflow, update_workflow
from penstock.cli.workflows.results import show_result
from penstock.cli.workflows.run_operations import (
    delete_workflow,
    fork_workflow,
    list_deletions,
    pause_workflow,
    rerun_workflow,
    reset_workflow,
    resume_workflow,
)
from penstock.cli.workflows.search import count_workflows, list_workflows
from penstock.cli.workflows.start import start_workflow
from penstock.cli.workflows.termination import cancel_workflow, terminate_workflow
from penstock.cli.workflows.timeline import show_timeline


@noun("workflow", example="penstock workflow start --type orders.fulfillment --task-queue orders")
def workflow() -> None:
    """Start, find, inspect, message and end workflows."""


for _command in (
    start_workflow,
    list_workflows,
    count_workflows,
    describe_workflow,
    list_runs,
    show_history,
    show_timeline,
    show_result,
    signal_workflow,
    query_workflow,
    update_workflow,
    cancel_workflow,
    terminate_workflow,
    pause_workflow,
    resume_workflow,
    batch,
    debug_workflow,
    repair_workflow,
    redrive_workflow,
    rerun_workflow,
    reset_workflow,
    fork_workflow,
    archive_workflow,
    delete_workflow,
    list_deletions,
    export_history,
    replay_workflows,
    limits,
):
    workflow.add_command(_command)
