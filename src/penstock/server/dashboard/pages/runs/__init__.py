"""The pages about runs: the list with its query box, one run, and what can be done to runs."""

from __future__ import annotations

from typing import Final

from penstock.server.dashboard.page_rows import Action, Page
from penstock.server.dashboard.pages.runs import bulk, run, run_commands, run_list, run_parts

_RUN: Final = "/runs/{workflow_id}/{run_id}"

RUN_PAGES: Final = (
    Page("/runs", "runs.html", run_list.load, "runs", is_live=False),
    Page("/runs/suggest", "suggest.html", run_list.suggest, is_live=False, is_fragment=True),
    Page("/runs/bulk/{act}", "bulk.html", bulk.dialog, is_live=False, is_fragment=True),
    Page("/runs/{workflow_id}", "run.html", run.load, "runs"),
    Page(_RUN, "run.html", run.load, "runs"),
    Page(f"{_RUN}/events/{{event}}", "event.html", run.event, is_live=False, is_fragment=True),
    Page(f"{_RUN}/streams/{{stream}}", "stream.html", run_parts.stream, "runs"),
    Page(f"{_RUN}/debug", "debug.html", run_parts.debug, "runs"),
    Page(f"{_RUN}/act/{{act}}", "act.html", run_commands.dialog, is_live=False, is_fragment=True),
)
RUN_ACTIONS: Final = (
    Action("/runs/bulk/{act}", bulk.carry_out),
    Action(f"{_RUN}/act/{{act}}", run_commands.carry_out),
)
