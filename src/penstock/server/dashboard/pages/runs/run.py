"""One run: its state in a sentence, input and result or error, where its time went, timeline, history, and relatives.

The page costs the same for a run of ten events and of fifty thousand: the timeline folds on the server, and of the
history it reads the newest page and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from penstock.errors import NotFound, Reason
from penstock.ports.gather import gather
from penstock.server.dashboard.formats import moment_ms
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.runs.asks import asks_of
from penstock.server.dashboard.pages.runs.completion import quoted
from penstock.server.dashboard.pages.runs.lanes import (
    LANES_SHOWN,
    TimelineWindow,
    axis,
    drawn,
    followed_ms,
    spent_parts,
    window_of,
)
from penstock.server.dashboard.pages.runs.payload_text import pretty
from penstock.server.dashboard.pages.runs.run_acts import offered
from penstock.server.dashboard.pages.runs.steps import RunFailure, last_failure, steps
from penstock.server.dashboard.view import View
from penstock.server.operation import Body
from penstock.wire import responses

EVENTS_SHOWN: Final = 100
CHILDREN_SHOWN: Final = 20
OPENED_MAX: Final = 5
"""Children whose steps are shown at a time."""
EVENT_CHARACTERS: Final = 64_000


async def load(view: View) -> Values:
    at = await _address(view)
    run = await view.read("describe_run", None, **at)
    kind, window, opened = view.query.get("type"), _window(view, run), _opened(view)
    asked = {"width": str(window.width)}
    token = view.query.get("events")
    query = {"order": "desc", "page_size": str(EVENTS_SHOWN)} | ({"next_page_token": token} if token else {})
    (timeline, inside), (history, streams), (children, (asks, why)) = await gather(
        gather(
            view.read("read_run_timeline", asked | ({"type": kind} if kind else {}), **at),
            gather(*(view.read("read_run_timeline", asked, **each) for each in opened)),
        ),
        gather(view.read("read_history", query, **at), view.read("list_streams", None, **at)),
        gather(_tree(view, at, opened), gather(asks_of(view, at), _why(view, at, run))),
    )
    events = [_readable(each) for each in reversed(history["events"])]
    failure = await _failure(view, at, events) if view.sees_payloads else None
    lanes = drawn(timeline, window, inside=inside)
    return {
        "run": run,
        "acts": offered(run),
        "why": why,
        "reason": run["wait_reason"] if view.sees_payloads else run["wait_kind"],
        "timeline": timeline,
        "lanes": lanes[:LANES_SHOWN],
        "lanes_left_out": max(0, len(lanes) - LANES_SHOWN),
        "opened_type": kind,
        "axis": axis(timeline, window),
        "window": window,
        "here": _addresses(view, run, window, opened),
        "opened": [each["run_id"] for each in opened],
        "spent": spent_parts(timeline["time_spent"]),
        "failure": failure,
        "input": pretty(run["input"]) if view.sees_payloads else None,
        "output": pretty(run["output"]) if view.sees_payloads and run["status"] == "completed" else None,
        "sees_payloads": view.sees_payloads,
        "shows_events": view.query.get("history") == "events",
        "events": list(reversed(events)),
        "steps": steps(events),
        "older": history["next_page_token"],
        "is_older_page": token is not None,
        "children": children,
        "parent": await _parent(view, run),
        "streams": streams["streams"],
        "asks": [] if run["is_terminal"] else asks,
    }


def _window(view: View, run: Body) -> TimelineWindow:
    started_ms, closed_ms = moment_ms(run["started_at"]), moment_ms(run["closed_at"])
    end_ms = view.now_ms if closed_ms is None else closed_ms
    whole_ms = end_ms - (end_ms if started_ms is None else started_ms)
    return window_of(view.query, whole_ms, is_open=closed_ms is None)


def _opened(view: View) -> list[dict[str, str]]:
    """The children that the address opens, as `workflow_id/run_id`, several joined by spaces."""
    pairs = [each.rpartition("/") for each in view.query.get("open", "").split()[:OPENED_MAX]]
    return [{"workflow_id": unquote(name), "run_id": run_id} for name, _, run_id in pairs if name and run_id]


def _addresses(view: View, run: Body, window: TimelineWindow, opened: list[dict[str, str]]) -> dict[str, Any]:
    """Where the buttons of the timeline lead: the same page with another window, or with other children open."""

    def at(
        shown: TimelineWindow | None = None, *, follow: int | None = None, open_: list[str] | None = None
    ) -> str:
        times: dict[str, str | None] = {}
        if follow is not None:
            times = {"follow": str(follow)}
        elif shown is not None and not shown.is_whole:
            times = {"from": str(shown.from_ms), "to": str(shown.to_ms)}
        children = keys if open_ is None else open_
        shared = {"namespace": view.namespace, "type": view.query.get("type"), "open": " ".join(children)}
        return link("runs", run["workflow_id"], run["run_id"], **shared | times) + "#run-timeline"

    keys = [f"{quote(each['workflow_id'], safe='')}/{each['run_id']}" for each in opened]

    def toggled(workflow_id: str, run_id: str) -> str:
        key = f"{quote(workflow_id, safe='')}/{run_id}"
        wanted = [each for each in keys if each != key] if key in keys else [*keys, key]
        follow = window.length_ms if window.follows else None
        return at(window, follow=follow, open_=wanted)

    return {
        "closer": at(window.zoomed(0.5)),
        "wider": at(window.zoomed(2)),
        "whole": at(),
        "follow": at() if window.follows else at(follow=followed_ms(window)),
        "toggled": toggled,
    }


async def event(view: View) -> Values:
    """One event as JSON."""
    at = await _address(view)
    wanted = view.path["event"]
    if not wanted.isdigit():
        raise NotFound(Reason.NOT_FOUND, "Events are numbered.")
    token = responses.page_token(int(wanted) + 1)
    page = await view.read(
        "read_history",
        {"order": "desc", "page_size": "1", "derived": "false", "next_page_token": token},
        **at,
    )
    found = page["events"][0] if page["events"] else None
    if found is None or found["sequence"] != int(wanted):
        raise NotFound(Reason.NOT_FOUND, f"The run has no event {wanted}.")
    found = _readable(found)
    return at | {"event": found, "json": pretty(found, EVENT_CHARACTERS), "sees_payloads": view.sees_payloads}


def _readable(event: Body) -> Body:
    """An event whose payload is read: the API sends most of them as the store has them."""
    payload = event["payload"]
    return event | {"payload": msgspec.json.decode(payload)} if isinstance(payload, msgspec.Raw) else event


async def _address(view: View) -> dict[str, str]:
    """The ids of the run that the path names; of the current run if it names only the workflow."""
    workflow_id = view.path["workflow_id"]
    run_id = view.path.get("run_id")
    if run_id is None:
        run_id = (await view.read("describe_workflow", workflow_id=workflow_id))["run_id"]
    return {"workflow_id": workflow_id, "run_id": str(run_id)}


async def _tree(view: View, at: Mapping[str, str], opened: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The newest children that the workflow started, each with its own below it if it is opened, and its depth."""
    is_open = {each["run_id"] for each in opened}

    async def below(workflow_id: str, depth: int) -> list[dict[str, Any]]:
        query = f"ParentWorkflowId = {quoted(workflow_id)}"
        body = await view.read("list_workflows", {"query": query, "page_size": str(CHILDREN_SHOWN)})
        rows: list[dict[str, Any]] = []
        for child in body["workflows"]:
            rows.append(child | {"depth": depth})
            if child["run_id"] in is_open and depth < OPENED_MAX:
                rows += await below(child["workflow_id"], depth + 1)
        return rows

    return await below(at["workflow_id"], 0)


async def _failure(view: View, at: Mapping[str, str], events: list[Body]) -> RunFailure | None:
    """The newest failure. The event of an attempt that is tried again has no trace; its activity still has."""
    found = last_failure(events)
    if found is None or found.trace:
        return found
    failing = (await view.read("debug_run", None, **at))["activities"]
    trace = next((each["stack_trace"] for each in failing if each["activity_type"] == found.of), None)
    return found.with_trace(trace) if trace else found


async def _parent(view: View, run: Body) -> Body | None:
    """The run that started this one, if it is still known."""
    if not run["parent"]:
        return None
    at = {name: str(run["parent"][name]) for name in ("workflow_id", "run_id")}
    try:
        return await view.read("describe_run", None, **at)
    except NotFound:
        return None


async def _why(view: View, at: Mapping[str, str], run: Body) -> Body | None:
    """Why the run waits; None for one that is closed or not current."""
    if run["is_terminal"] or not run["is_current_run"]:
        return None
    return await view.read("explain_workflow", workflow_id=at["workflow_id"])
