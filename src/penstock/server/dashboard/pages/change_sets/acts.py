"""What people do with a change set: approve it, take an approval back, apply it, withdraw it, roll it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.core.permissions import Role
from penstock.errors import NotFound, Reason
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import DialogField, dialog
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body

_TITLES: Final = {
    "approve": "Approve this change set",
    "unapprove": "Take your approval back",
    "apply": "Apply this change set",
    "withdraw": "Withdraw this change set",
    "rollback": "Roll this change set back",
}
_DONE: Final = {
    "approve": "The plan is approved as it is now",
    "unapprove": "The change set has no approval of yours",
    "apply": "All its settings are in force from the next grant on",
    "withdraw": "The change set is withdrawn",
}
_OPERATIONS: Final = {
    "approve": "approve_change_set",
    "unapprove": "unapprove_change_set",
    "apply": "apply_change_set",
    "withdraw": "withdraw_change_set",
}
_SENTENCES_SHOWN: Final = 8


async def load(view: View) -> Values:
    """The dialog of one act, with what it would do."""
    change_set_id, act = view.path["change_set_id"], _act(view.path["act"])
    body = await view.read("plan_change_set", None, change_set_id=change_set_id)
    address = link("change-sets", change_set_id, "do", act, namespace=view.namespace)
    takes_reason = act == "rollback"
    return dialog(
        _TITLES[act],
        _TITLES[act].split(" ")[0] if act != "rollback" else "Propose the rollback",
        address,
        address,
        _effects(act, body),
        fields=_fields(view) if act == "apply" else (),
        hidden={"plan": body["plan"]} if act in ("approve", "apply") and body["plan"] else None,
        given=view.query,
        command=("change", act, change_set_id, *_options(act, body, view.query)),
        takes_reason=takes_reason,
    )


def _fields(view: View) -> Sequence[DialogField]:
    found = [DialogField("at", "When, UTC", view.query.get("at", ""), "now, or 2026-03-01T08:00:00Z", "text")]
    if view.principal.role is Role.ADMIN:
        text = view.query.get("break_glass", "")
        found.append(
            DialogField("break_glass", "Break-glass: why not wait", text, "only in an emergency", "text")
        )
    return found


def _options(act: str, body: Body, query: Mapping[str, str]) -> Sequence[str]:
    found: list[str] = ["--plan", body["plan"]] if act in ("approve", "apply") and body["plan"] else []
    if act == "apply":
        for name, option in (("at", "--at"), ("break_glass", "--break-glass")):
            found += [option, query[name]] if query.get(name) else []
    return found


def _effects(act: str, body: Body) -> list[Effect]:
    match act:
        case "approve" | "apply":
            sentences = body["summary"][:_SENTENCES_SHOWN]
            left = len(body["summary"]) - len(sentences)
            more = [f"And {left} more settings."] if left > 0 else []
            warnings = [Effect(each["message"], "warn") for each in body["checks"]]
            return [Effect(" ".join([*sentences, *more])), *warnings]
        case "rollback":
            return [
                Effect(f"A new change set gives {len(body['items'])} settings their old values back."),
                Effect(
                    "It is applied by the same rules, and leaves what somebody else changed since.", "warn"
                ),
            ]
        case "withdraw":
            return [Effect("It cannot be applied any more.", "warn")]
        case _:
            return [Effect("Your approval does not count any more.", "warn")]


async def do(act: Act) -> Outcome:
    """Carry it out."""
    change_set_id, what = act.path["change_set_id"], _act(act.path["act"])
    if what == "rollback":
        body = await act.change(
            "roll_back_change_set", {"reason": act.text("reason")}, change_set_id=change_set_id
        )
        address = link("change-sets", body["change_set_id"], namespace=act.namespace)
        return Outcome("The rollback is proposed: look at its plan, and apply it", address)
    sent: dict[str, Any] = {}
    if what in ("approve", "apply"):
        sent["plan"] = act.text("plan")
    if what == "apply":
        sent |= {"apply_at": act.text("at"), "break_glass": act.text("break_glass")}
    await act.change(_OPERATIONS[what], sent, change_set_id=change_set_id)
    later = what == "apply" and sent["apply_at"]
    return Outcome(f"The server applies it at {later}" if later else _DONE[what])


def _act(name: str) -> str:
    if name not in _TITLES:
        raise NotFound(
            Reason.NOT_FOUND, f"Nothing with the name {name[:40]!r} can be done with a change set."
        )
    return name
