"""Change sets: the list, one of them with its plan, and what people do with it."""

from __future__ import annotations

from typing import Final

from penstock.server.dashboard.page_rows import Action, Page
from penstock.server.dashboard.pages.change_sets import acts, change_set_list, detail

_ONE: Final = "/change-sets/{change_set_id}"

CHANGE_SET_PAGES: Final = (
    Page("/change-sets", "change_sets.html", change_set_list.load, "change-sets"),
    Page(_ONE, "change_set.html", detail.load, "change-sets"),
    Page(f"{_ONE}/effect", "change_set_effect.html", detail.load_effect, is_live=False, is_fragment=True),
    Page(f"{_ONE}/do/{{act}}", "change.html", acts.load, is_fragment=True),
)
CHANGE_SET_ACTIONS: Final = (Action(f"{_ONE}/do/{{act}}", acts.do),)
