"""What can be done to a run, as one table: what it means, what it takes, and which operation does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from penstock.errors import NotFound, Reason
from penstock.server.operation import Body


class RunAct(Struct, frozen=True):
    """One act on a run."""

    explained: str
    button: str
    done: str
    """What happened, after the id of the workflow."""
    tone: str = ""
    takes: tuple[str, ...] = ("reason",)
    """Its fields, of `name`, `input`, `event`, `id`, `reapply` and `reason`."""
    is_repeatable: bool = True
    """Whether the operation takes an id that makes a repetition harmless."""
    leads_to_run: bool = False
    """Whether another run comes of it, which is shown then."""


_NAMED: Final = ("name", "input")
_COPIED: Final = ("event", "reapply", "reason")
ACTS: Final[Mapping[str, RunAct]] = {
    "query": RunAct(
        "A worker replays its history and answers. Nothing is changed or recorded.",
        "Ask",
        "answered",
        takes=_NAMED,
    ),
    "signal": RunAct(
        "Its code gets the signal with the next workflow task, and decides what follows.",
        "Send the signal",
        "got the signal",
        takes=_NAMED,
    ),
    "update": RunAct(
        "Its code gets the update with the next workflow task, may refuse it, and answers with a result.",
        "Send the update",
        "got the update",
        takes=_NAMED,
    ),
    "pause": RunAct(
        "None of its tasks is dispatched until it is resumed. Signals and results are recorded and wait; a task that "
        "runs now finishes.",
        "Pause the run",
        "is paused",
        "warn",
        is_repeatable=False,
    ),
    "resume": RunAct(
        "Its tasks are dispatched again, as limits allow.",
        "Resume the run",
        "is resumed",
        is_repeatable=False,
    ),
    "cancel": RunAct(
        "Asks it to stop: its code may clean up first, and the run ends as cancelled.",
        "Cancel the run",
        "is asked to stop",
        "warn",
    ),
    "terminate": RunAct(
        "Ends it at once: no code of the workflow runs any more, and nothing is cleaned up.",
        "Terminate the run",
        "is terminated",
        "bad",
    ),
    "reset": RunAct(
        "A new run of the same id takes over its history up to the event and decides anew from there. If it is open, "
        "it is terminated. Activities that completed after the event run again.",
        "Reset the run",
        "goes on from the event in a new run",
        "bad",
        _COPIED,
        leads_to_run=True,
    ),
    "fork": RunAct(
        "A workflow of another id starts with its history up to the event, and decides anew from there. This run is "
        "left as it is.",
        "Fork the run",
        "is forked",
        takes=(*_COPIED[:1], "id", *_COPIED[1:]),
        leads_to_run=True,
    ),
    "rerun": RunAct(
        "Starts it again with its input, as a new run of the same id. All its activities run again.",
        "Start it again",
        "runs again",
        "warn",
        leads_to_run=True,
    ),
    "redrive": RunAct(
        "A new run continues it where it failed: results of completed activities are reused, not repeated.",
        "Redrive the run",
        "continues in a new run",
        takes=(),
        leads_to_run=True,
    ),
    "repair": RunAct(
        "Ends the backoff of its workflow task, or creates one that is missing. Nothing is lost or repeated.",
        "Repair the run",
        "is repaired",
        takes=(),
    ),
    "archive": RunAct(
        "Marks it as archived, and exports it where the server keeps an archive.",
        "Archive the run",
        "is archived",
    ),
    "delete": RunAct(
        "Deletes this run with its history and payloads, for good. A record of the deletion stays.",
        "Delete the run",
        "is deleted",
        "bad",
        is_repeatable=False,
    ),
}


def act_of(name: str) -> RunAct:
    """An act by its name. Raises `NotFound`."""
    found = ACTS.get(name)
    if found is None:
        raise NotFound(Reason.NOT_FOUND, f"There is no action {name!r}.")
    return found


def offered(run: Body) -> Sequence[str]:
    """The acts that the state of a run allows, beside queries; those that change least come first."""
    actions, is_current = run["actions"], run["is_current_run"]
    if not run["is_terminal"]:
        pausing = "resume" if run["pause"] else "pause"
        asked = ["signal", "update", pausing, "cancel", "terminate"] if is_current else []
        return [each for each in asked if actions.get(f"can_{each}", True)]
    again = (["rerun"] + (["redrive"] if run["status"] == "failed" else [])) if is_current else ["rerun"]
    return [*again, *(["archive"] if actions["can_archive"] else []), "delete"]
