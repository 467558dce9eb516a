"""What can be done to one activity, of a workflow or standalone: pause, resume, reset, run now, new options, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import NotFound, Reason
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import dialog, whole
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.pages.setting_fields import SettingField, form_of, word
from penstock.server.dashboard.view import Act, View

ACTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "pause": (
        "pause_activity",
        "No attempt of it is dispatched until it is resumed. A running attempt learns it by its heartbeat.",
        "is paused",
    ),
    "resume": ("resume_activity", "Its attempts are dispatched again, as limits allow.", "is resumed"),
    "reset": (
        "reset_activity",
        "Its attempts are counted from the first one again, so that it has all its retries.",
        "begins with its first attempt again",
    ),
    "run-now": (
        "run_activity_now",
        "Its backoff or start delay ends now.",
        "is dispatched as soon as limits allow",
    ),
    "update-options": (
        "update_activity_options",
        "What you enter applies from its next attempt on; what you leave empty stays.",
        "has new options",
    ),
    "cancel": (
        "cancel_activity",
        "It ends as cancelled. A running attempt learns it by its heartbeat.",
        "is cancelled",
    ),
}
"""The operation, what it does, and what is said afterwards."""


def _seconds(text: str | None, field: str) -> int | None:
    value = whole(text, field)
    return None if value is None else value * 1000


def _attempts(text: str | None, field: str) -> dict[str, int] | None:
    value = whole(text, field)
    return None if value is None else {"max_attempts": value}


_OPTIONS: Final = (
    SettingField("queue", "task_queue", "Task queue", "--task-queue", word, placeholder="as it is"),
    SettingField(
        "attempts", "retry_policy", "Attempts at most", "--max-attempts", _attempts, placeholder="as it is"
    ),
    *(
        SettingField(
            option.replace("-", "_"),
            f"{name}_timeout_ms",
            label,
            f"--{option}",
            _seconds,
            placeholder="as it is",
            unit="s",
        )
        for option, name, label in (
            ("start-to-close", "start_to_close", "One attempt, s"),
            ("schedule-to-start", "schedule_to_start", "Wait in the queue, s"),
            ("schedule-to-close", "schedule_to_close", "All attempts, s"),
            ("heartbeat", "heartbeat", "Heartbeat, s"),
        )
    ),
)


async def dialog_of(view: View) -> Values:
    """What the act does to the activity, as it is now."""
    name, activity_id = view.path["act"], view.path["activity_id"]
    _, explained, _ = _act(name)
    found = await view.read("explain_activity", None, activity_id=activity_id)
    form = form_of(_OPTIONS if name == "update-options" else (), {}, view.query)
    address = link("tasks", activity_id, "act", name, namespace=view.namespace)
    verb = {"run-now": "Run now:", "update-options": "Change options of"}.get(name, name.capitalize())
    return dialog(
        f"{verb} {activity_id}",
        {"run-now": "Run it now", "update-options": "Change its options"}.get(
            name, f"{name.capitalize()} it"
        ),
        address,
        address,
        [Effect(explained, "warn" if name in ("pause", "cancel") else ""), Effect(found["summary"], "")],
        fields=form.dialog_fields,
        given=view.query,
        command=("activity", name, activity_id, *form.options),
    )


async def carry_out(act: Act) -> Outcome:
    name, activity_id = act.path["act"], act.path["activity_id"]
    operation, _, done = _act(name)
    body: dict[str, Any] = {"reason": act.text("reason")}
    if name == "update-options":
        body |= {each.setting: each.read(act.text(each.name), each.name) for each in _OPTIONS}
    await act.change(operation, body, activity_id=activity_id)
    return Outcome(f"{activity_id} {done}.")


def _act(name: str) -> tuple[str, str, str]:
    found = ACTS.get(name)
    if found is None:
        raise NotFound(Reason.NOT_FOUND, f"There is no action {name!r}.")
    return found
