"""Operations that find runs, act on many of them, and manage search attributes."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import RouteFamily as Family
from penstock.server.endpoints.operations import batch_operations
from penstock.server.endpoints.visibility import (
    locate,
    queue_series,
    search_attributes,
    timelines,
    workflow_lists,
)
from penstock.server.operation import Operation, with_run
from penstock.wire.visibility import searches as wire
from penstock.wire.visibility.series import ReadSeries
from penstock.wire.visibility.timelines import ReadTimeline

VISIBILITY_OPERATIONS: Final = (
    Operation(
        "GET",
        "/api/workflows",
        "list_workflows",
        "List runs, newest first, by filters or a query.",
        Family.WORK,
        workflow_lists.list_all,
        query=wire.ListWorkflows,
        control="list",
    ),
    Operation(
        "GET",
        "/api/workflows/count",
        "count_workflows",
        "Count runs, by filters or a query.",
        Family.WORK,
        workflow_lists.count,
        query=wire.CountWorkflows,
    ),
    Operation(
        "POST",
        "/api/workflows/batch-operations",
        "carry_out_batch_operation",
        "Cancel, terminate or signal the open runs that a query finds, up to 500 per call.",
        Family.WORK,
        batch_operations.run_batch,
        wire.BatchOperation,
    ),
    *with_run(
        Operation(
            "GET",
            "/api/workflows/{workflow_id}/timeline",
            "read_workflow_timeline",
            "Lanes of spans of a workflow's current run, with the cause of each wait, and where its time went.",
            Family.WORK,
            timelines.read,
            query=ReadTimeline,
            refusals=(404,),
        ),
        "read_run_timeline",
        "Lanes of spans of a run, with the cause of each wait, and where its time went.",
        query=ReadTimeline,
    ),
    Operation(
        "GET",
        "/api/locate",
        "locate_id",
        "Find what an id is: of a workflow, run, activity, task, worker or schedule; and queues by part of their name.",
        Family.WORK,
        locate.read,
        query=wire.LocateId,
    ),
    Operation(
        "GET",
        "/api/metrics/series",
        "read_queue_series",
        "Throughput, backlog, waits, use of limits and shares of a task queue over the last hour or day.",
        Family.WORK,
        queue_series.read,
        query=ReadSeries,
    ),
    Operation(
        "GET",
        "/api/search-attributes",
        "list_search_attributes",
        "List system search attributes and those of the namespace.",
        Family.WORK,
        search_attributes.list_all,
    ),
    Operation(
        "POST",
        "/api/search-attributes",
        "register_search_attribute",
        "Register a search attribute with its type, which values must have from now on.",
        Family.WORK,
        search_attributes.register,
        wire.RegisterSearchAttribute,
        status=201,
        refusals=(409,),
    ),
    Operation(
        "DELETE",
        "/api/search-attributes/{name}",
        "unregister_search_attribute",
        "Unregister a search attribute; values stay.",
        Family.WORK,
        search_attributes.unregister,
        refusals=(404, 409),
    ),
)
