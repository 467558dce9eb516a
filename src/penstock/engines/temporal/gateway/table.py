"""The routes that a Temporal cluster can answer. Any other request is refused by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from penstock.engines.temporal.gateway import activities, queues, runs, schedules, starts, workflows
from penstock.engines.temporal.gateway.context import GatewayAnswer
from penstock.engines.temporal.refusals import not_here

_TABLE: dict[tuple[str, str], GatewayAnswer] = {
    ("GET", "cluster/info"): queues.cluster_info,
    ("POST", "workflows"): starts.start,
    ("POST", "workflows/batch"): starts.start_many,
    ("POST", "workflows/signal-with-start"): starts.signal_with_start,
    ("GET", "workflows"): runs.list_runs,
    ("GET", "workflows/count"): runs.count_runs,
    ("GET", "workflows/*"): runs.describe,
    ("GET", "workflows/*/runs/*"): runs.describe,
    ("GET", "workflows/*/runs/*/history"): runs.history,
    ("GET", "activities/*"): activities.describe,
    ("GET", "activities/*/result"): activities.result,
    ("POST", "activities/*/cancel"): activities.cancel,
    ("POST", "activities"): activities.start,
    ("POST", "activities/batch"): activities.start_many,
    ("GET", "activities"): activities.list_activities,
    ("GET", "task-queues/*"): queues.describe_queue,
    ("GET", "activities/*/why"): queues.why_activity,
    ("GET", "tasks/*/why"): queues.no_task,
    ("GET", "schedules"): schedules.list_all,
    ("POST", "schedules"): schedules.create,
    ("GET", "schedules/*"): schedules.describe,
    ("PUT", "schedules/*"): schedules.update,
    ("DELETE", "schedules/*"): schedules.delete,
    ("POST", "schedules/*/pause"): schedules.pause,
    ("POST", "schedules/*/resume"): schedules.resume,
    ("POST", "schedules/*/trigger"): schedules.trigger,
    ("POST", "schedules/*/backfill"): schedules.backfill,
    **{
        (method, f"workflows/*{run}/{rest}"): answer
        for run in ("", "/runs/*")
        for method, rest, answer in (
            ("GET", "result", workflows.result),
            ("POST", "signal/*", workflows.signal),
            ("POST", "query/*", workflows.query),
            ("POST", "update/*", workflows.update),
            ("POST", "cancel", workflows.cancel),
            ("POST", "terminate", workflows.terminate),
            ("GET", "why", queues.why),
        )
    },
}


_PAGE: Final = ("page_size", "next_page_token")
_QUERIES: Mapping[GatewayAnswer, Collection[str]] = {
    runs.list_runs: ("query", "status", "workflow_type", *_PAGE),
    runs.count_runs: ("query", "status", "workflow_type", "group_by"),
    runs.describe: ("first_execution_run_id",),
    runs.history: ("wait_new_event", "derived", *_PAGE),
    activities.describe: ("run_id",),
    activities.result: ("run_id", "wait_seconds"),
    activities.cancel: ("run_id",),
    activities.list_activities: ("status", *_PAGE),
    queues.why_activity: ("run_id",),
    schedules.list_all: ("query", "status", "workflow_type", *_PAGE),
    workflows.result: ("first_execution_run_id", "wait_seconds"),
    **dict.fromkeys(
        (
            workflows.signal,
            workflows.query,
            workflows.update,
            workflows.cancel,
            workflows.terminate,
            queues.why,
        ),
        ("first_execution_run_id",),
    ),
}
"""The query parameters that each answer has something for. Any other is refused by name."""


def check_query(method: str, path: str, answer: GatewayAnswer, query: Mapping[str, Any]) -> None:
    """Refuse query parameters that an answer would ignore.

    Args:
        method: of the request, for messages.
        path: of the request, for messages.
        answer: the function that `find_answer` returned.
        query: the parameters that are given.
    """
    for name in query:
        if name not in _QUERIES.get(answer, ()):
            raise not_here(f"the parameter {name} of {method} {path}")


def find_answer(method: str, parts: Sequence[str]) -> tuple[GatewayAnswer, list[str]]:
    """Return the function for a request and the open parts of its path. Raises `NotOnThisEngineError`."""
    for (verb, pattern), answer in _TABLE.items():
        names = _matched(pattern.split("/"), parts) if verb == method else None
        if names is not None:
            return answer, names
    raise not_here(f"{method} /{'/'.join(parts)}")


def _matched(pattern: Sequence[str], parts: Sequence[str]) -> list[str] | None:
    if len(pattern) != len(parts):
        return None
    if any(wanted not in ("*", given) for wanted, given in zip(pattern, parts, strict=True)):
        return None
    return [given for wanted, given in zip(pattern, parts, strict=True) if wanted == "*"]
