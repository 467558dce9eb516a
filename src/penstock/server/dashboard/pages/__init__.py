"""The pages and actions of the dashboard, as two tables."""

from __future__ import annotations

from typing import Final

from penstock.server.dashboard.page_rows import Action, Page
from penstock.server.dashboard.pages import (
    changes,
    find,
    limits,
    overview,
    queue,
    queue_keys,
    queues,
    system,
    why,
)
from penstock.server.dashboard.pages.change_sets import CHANGE_SET_ACTIONS, CHANGE_SET_PAGES
from penstock.server.dashboard.pages.fleet import FLEET_ACTIONS, FLEET_PAGES
from penstock.server.dashboard.pages.runs import RUN_ACTIONS, RUN_PAGES
from penstock.server.dashboard.pages.settings import queue_changes, queue_settings, run_caps, scope_changes

_QUEUE: Final = "/queues/{name}"
_KEY: Final = "/queues/{name}/keys/{key}"

PAGES: Final = (
    Page("/", "overview.html", overview.load, "overview"),
    Page("/find", "find.html", find.load, is_live=False, is_fragment=True),
    Page("/queues", "queues.html", queues.load, "queues"),
    Page(_QUEUE, "queue.html", queue.load, "queues"),
    Page(f"{_QUEUE}/cap", "change.html", queue_changes.cap_dialog, is_fragment=True),
    Page(f"{_QUEUE}/rate", "change.html", queue_changes.rate_dialog, is_fragment=True),
    Page(f"{_QUEUE}/pause", "change.html", queue_changes.pause_dialog, is_fragment=True),
    Page(f"{_QUEUE}/resume", "change.html", queue_changes.resume_dialog, is_fragment=True),
    Page(f"{_QUEUE}/settings", "change.html", queue_settings.settings_dialog, is_fragment=True),
    Page(f"{_QUEUE}/group", "change.html", queue_settings.group_dialog, is_fragment=True),
    Page(f"{_QUEUE}/keys", "queue_keys.html", queue_keys.load, "queues", is_live=False),
    Page(_KEY, "change.html", queue_changes.key_dialog, is_fragment=True),
    *FLEET_PAGES,
    *RUN_PAGES,
    Page("/why/{id}", "why.html", why.load, "queues"),
    Page("/limits", "limits.html", limits.load, "limits"),
    Page("/limits/change", "change.html", scope_changes.scope_dialog, is_fragment=True),
    Page("/run-limits/change", "change.html", run_caps.cap_dialog, is_fragment=True),
    Page("/changes", "changes.html", changes.load, "changes"),
    *CHANGE_SET_PAGES,
    Page("/system", "system.html", system.load, "system"),
)
ACTIONS: Final = (
    *FLEET_ACTIONS,
    *RUN_ACTIONS,
    *CHANGE_SET_ACTIONS,
    Action(f"{_QUEUE}/cap", queue_changes.change_cap),
    Action(f"{_QUEUE}/rate", queue_changes.change_rate),
    Action(f"{_QUEUE}/pause", queue_changes.pause),
    Action(f"{_QUEUE}/resume", queue_changes.resume),
    Action(f"{_QUEUE}/settings", queue_settings.change_settings),
    Action(f"{_QUEUE}/group", queue_settings.change_group),
    Action(_KEY, queue_changes.change_key),
    Action("/limits/change", scope_changes.change_scope),
    Action("/run-limits/change", run_caps.change_cap),
)
