"""Operations for debugging, repair, archiving, retention and system metrics."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import RouteFamily as Family
from penstock.server.endpoints.operations import history_export, system
from penstock.server.endpoints.visibility import debug
from penstock.server.endpoints.workflows import repair
from penstock.server.operation import Operation, with_run
from penstock.wire.operations import system as wire
from penstock.wire.requests import EndRun

_WORKFLOW = "/api/workflows/{workflow_id}"
_RUN = _WORKFLOW + "/runs/{run_id}"
_SYSTEM = "/api/system"

SYSTEM_OPERATIONS: Final = (
    *with_run(
        Operation(
            "GET",
            f"{_WORKFLOW}/history/export",
            "export_history",
            "Export the complete history of the current run, sealed.",
            Family.WORK,
            history_export.export,
            refusals=(404,),
        ),
        "export_run_history",
        "Export the complete history of a run, sealed.",
    ),
    *with_run(
        Operation(
            "GET",
            f"{_WORKFLOW}/debug",
            "debug_workflow",
            "Debug the current run: tasks, activities, queue, failures and findings.",
            Family.WORK,
            debug.describe,
            query=wire.ReadDebug,
            control="debug_workflow",
            refusals=(404,),
        ),
        "debug_run",
        "Debug a run: tasks, activities, queue, failures and findings.",
        query=wire.ReadDebug,
    ),
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/repair",
            "repair_workflow",
            "Repair the current run: end the backoff of its workflow task, or create a missing one.",
            Family.WORK,
            repair.repair,
            wire.RepairRun,
            control="repair",
            refusals=(404, 409),
        ),
        "repair_run",
        "Repair a run, which must be the current one.",
    ),
    *with_run(
        Operation(
            "POST",
            f"{_WORKFLOW}/archive",
            "archive_workflow",
            "Archive the current run, if it is closed; its history is written to the archive if one is configured.",
            Family.WORK,
            repair.archive,
            EndRun,
            control="archive",
            refusals=(404, 409),
        ),
        "archive_run",
        "Archive a closed run; its history is written to the archive if one is configured.",
    ),
    Operation(
        "GET",
        f"{_SYSTEM}/metrics",
        "read_system_metrics",
        "Read which workflow types fail repeatedly.",
        Family.SYSTEM,
        system.metrics,
    ),
    Operation(
        "GET",
        f"{_SYSTEM}/operator-metrics",
        "read_operator_metrics",
        "Read the metrics of a namespace: runs, tasks, activities, workers.",
        Family.SYSTEM,
        system.operator_metrics,
    ),
    Operation(
        "GET",
        f"{_SYSTEM}/repair",
        "read_repair_candidates",
        "Read what could be repaired in the namespace.",
        Family.SYSTEM,
        system.repair,
        query=wire.ScanParameters,
    ),
    Operation(
        "POST",
        f"{_SYSTEM}/repair/pass",
        "repair_pass",
        "Repair up to 100 tasks and runs of the namespace, or those that are named.",
        Family.SYSTEM,
        system.repair_pass,
        wire.RepairPass,
        may_fail_partially=True,
    ),
    Operation(
        "GET",
        f"{_SYSTEM}/activity-timeouts",
        "read_activity_timeouts",
        "Read which activities of the namespace exceeded a timeout.",
        Family.SYSTEM,
        system.activity_timeouts,
        query=wire.ScanParameters,
    ),
    Operation(
        "POST",
        f"{_SYSTEM}/activity-timeouts/pass",
        "activity_timeouts_pass",
        "Time out up to 100 activities of the namespace that exceeded a timeout.",
        Family.SYSTEM,
        system.activity_timeouts_pass,
        wire.TimeoutPass,
        may_fail_partially=True,
    ),
    Operation(
        "GET",
        f"{_SYSTEM}/retention",
        "read_retention",
        "Read which runs are past the retention of the namespace, and whether the archive is writable.",
        Family.SYSTEM,
        system.expired,
        query=wire.ScanParameters,
    ),
    Operation(
        "POST",
        f"{_SYSTEM}/retention/pass",
        "retention_pass",
        "Archive and delete up to 100 runs that are past the retention of the namespace.",
        Family.SYSTEM,
        system.retention_pass,
        wire.RetentionPass,
        may_fail_partially=True,
    ),
)
