"""Rolling out a build: drain it, resume it, or start new runs on it."""

from __future__ import annotations

from typing import Final

from penstock.errors import NotFound, Reason
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import dialog
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.view import Act, View

ACTS: Final = {
    "drain": "Its workers get no new tasks and finish what they hold.",
    "resume": "Its workers get tasks again.",
    "promote": "New runs of this queue start on this build.",
}
_DONE: Final = {"drain": "drains", "resume": "gets tasks again", "promote": "gets the new runs"}


async def dialog_of(view: View) -> Values:
    name, act, build = view.path["name"], _act(view.path["act"]), view.query.get("build", "")
    body = await view.read("list_build_ids", None, name=name)
    found = next((each for each in body["build_ids"] if (each["build_id"] or "") == build), None)
    workers = 0 if found is None else found["active_worker_count"]
    label = build or "the unversioned workers"
    return dialog(
        f"{act.capitalize()} {label} on {name}",
        f"{act.capitalize()} {label}",
        link("builds", name, act, namespace=view.namespace),
        link("builds", name, act, namespace=view.namespace),
        [
            Effect(
                f"{workers} active {'worker' if workers == 1 else 'workers'}. {ACTS[act]}",
                "warn" if act == "drain" else "",
            )
        ],
        hidden={"build": build},
        command=("task-queue", act, name, *(("--build-id", build) if build else ("--unversioned",))),
        takes_reason=False,
    )


async def carry_out(act: Act) -> Outcome:
    name, step = act.path["name"], _act(act.path["act"])
    build = act.text("build")
    await act.change(f"{step}_build_id", {"build_id": build}, nulls=("build_id",), name=name)
    return Outcome(f"{build or 'The unversioned workers'} on {name}: {_DONE[step]}.")


def _act(name: str) -> str:
    if name not in ACTS:
        raise NotFound(Reason.NOT_FOUND, f"There is no action {name!r}.")
    return name
