"""Operations of operators on whole runs, and on single activities."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import RouteFamily as Family
from penstock.server.endpoints.activities import activity_operations, async_completion
from penstock.server.endpoints.workflows import run_operations
from penstock.server.operation import Operation, with_run
from penstock.wire.requests import CompleteActivity, EndRun, FailActivity, HeartbeatActivity, InChain
from penstock.wire.workflows import run_operations as wire
from penstock.wire.workflows.activity_operations import UpdateActivity

_WORKFLOW = "/api/workflows/{workflow_id}"
_ACTIVITY = "/api/activities/{activity_id}"

RUN_OPERATIONS: Final = (
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/rerun",
            "rerun_workflow",
            "Start the current run again with its input, if it is closed, as a new run.",
            Family.WORK,
            run_operations.rerun,
            EndRun,
            refusals=(404, 409),
        ),
        "rerun_run",
        "Start a closed run again with its input, as a new run.",
    ),
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/reset",
            "reset_workflow",
            "Replace the current run by one that decides anew at an event; an open run is terminated.",
            Family.WORK,
            run_operations.reset,
            wire.ResetRun,
            refusals=(404, 409),
        ),
        "reset_run",
        "Replace a run by one that decides anew at an event; no other run may be open.",
    ),
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/fork",
            "fork_workflow",
            "Start a workflow of another id with the history of the current run up to an event.",
            Family.WORK,
            run_operations.fork,
            wire.ForkRun,
            status=201,
            refusals=(404, 409),
        ),
        "fork_run",
        "Start a workflow of another id with the history of a run up to an event.",
    ),
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/pause",
            "pause_workflow",
            "Dispatch no task of the current run until it is resumed.",
            Family.WORK,
            run_operations.pause,
            wire.PauseRun,
            InChain,
            refusals=(404, 409),
        ),
        "pause_run",
        "Dispatch no task of a run, which must be the current one, until it is resumed.",
    ),
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/resume",
            "resume_workflow",
            "Dispatch the tasks of the current run again.",
            Family.WORK,
            run_operations.resume,
            wire.PauseRun,
            InChain,
            refusals=(404, 409),
        ),
        "resume_run",
        "Dispatch the tasks of a run, which must be the current one, again.",
    ),
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/delete",
            "delete_workflow_run",
            "Delete the current run, if it is closed, with its history and payloads.",
            Family.WORK,
            run_operations.delete,
            wire.DeleteRun,
            refusals=(404, 409),
        ),
        "delete_run",
        "Delete a closed run with its history and payloads.",
    ),
    Operation(
        "GET",
        "/api/deletions",
        "list_deletions",
        "List the records of deleted runs, the newest first.",
        Family.WORK,
        run_operations.list_deletions,
        query=wire.ListDeletions,
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/pause",
        "pause_activity",
        "Dispatch no attempt of an open activity until it is resumed.",
        Family.WORK,
        activity_operations.pause,
        wire.PauseRun,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/resume",
        "resume_activity",
        "Dispatch the attempts of a paused activity again.",
        Family.WORK,
        activity_operations.resume,
        wire.PauseRun,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/reset",
        "reset_activity",
        "Count the attempts of a waiting activity from the first one again.",
        Family.WORK,
        activity_operations.reset,
        wire.PauseRun,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/run-now",
        "run_activity_now",
        "End the backoff or start delay of a waiting activity.",
        Family.WORK,
        activity_operations.run_now,
        wire.PauseRun,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/complete",
        "complete_activity",
        "Record the result of an activity from outside its worker.",
        Family.WORK,
        async_completion.complete,
        CompleteActivity,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/fail",
        "fail_activity",
        "Record a failed attempt of an activity, or its cancellation, from outside its worker.",
        Family.WORK,
        async_completion.fail,
        FailActivity,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/heartbeat",
        "heartbeat_activity",
        "Heartbeat an activity from outside its worker, and learn whether it was cancelled.",
        Family.WORK,
        async_completion.heartbeat,
        HeartbeatActivity,
        refusals=(404, 409),
    ),
    Operation(
        "POST",
        f"{_ACTIVITY}/options",
        "update_activity_options",
        "Change the timeouts, retry policy or task queue of an open activity.",
        Family.WORK,
        activity_operations.update,
        UpdateActivity,
        refusals=(404, 409),
    ),
)
