"""Fields of a dialog that are settings of the API: what is in force, what was entered, and what of it changes.

A form carries what its fields began with (`was`). Only what differs is sent, so a setting that nobody touched keeps
its author, its reason and its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from penstock.errors import ValidationFailed
from penstock.server.dashboard.pages.change_dialog import DialogField, common, entered, number, whole
from penstock.server.dashboard.view import Act
from penstock.server.operation import Body
from penstock.wire.request_parser import field_error

Reader = Callable[[str | None, str], Any]
DEFAULT: Final = "default"
"""The word of the API and of the command line that unsets a setting."""


def held(text: str | None, field: str) -> bool | str:
    """A pause: `yes` holds, and anything else returns to what is declared."""
    return True if text == "yes" else DEFAULT


def word(text: str | None, field: str) -> str | None:
    """A text; None for an empty field."""
    return text or None


class SettingField(Struct, frozen=True):
    """One setting as a field of a form."""

    name: str
    """Of the field, and of the parameter in the address of its dialog."""
    setting: str
    """In the requests of the API."""
    label: str
    option: str
    """Of the command line."""
    read: Reader = whole
    """Turns the text of the field into the value of the setting."""
    choices: tuple[tuple[str, str], ...] = ()
    placeholder: str = "no limit"
    unit: str = ""
    """What the command line wants behind the number."""

    def in_force(self, value: object) -> str:
        """A value as the text of the field; empty for none."""
        if self.read is held:
            return "yes" if value else "no"
        if value is None:
            return ""
        return f"{value:g}" if isinstance(value, int | float) else str(value)


WINDOW: Final = SettingField(
    "window",
    "dispatch_window",
    "A minute is",
    "--dispatch-window",
    word,
    (("", "as declared"), ("minute", "a calendar minute"), ("sliding", "any sixty seconds")),
)


PAUSED: Final = SettingField(
    "paused", "paused", "Paused", "", held, (("no", "no"), ("yes", "yes: its queues wait"))
)


class SettingForm(Struct, frozen=True):
    """The fields of a dialog with what was in force, and what they say now."""

    fields: Sequence[SettingField]
    was: Mapping[str, str]
    now: Mapping[str, str]

    @property
    def changed(self) -> list[SettingField]:
        """The fields that differ from what is in force."""
        return [each for each in self.fields if self.now[each.name] != self.was[each.name]]

    @property
    def dialog_fields(self) -> list[DialogField]:
        """What the dialog shows."""
        return [
            DialogField(
                each.name,
                each.label,
                self.now[each.name],
                each.placeholder,
                "numeric" if each.read is whole else "decimal" if each.read is number else "text",
                narrow=not each.choices,
                options=each.choices,
            )
            for each in self.fields
        ]

    @property
    def hidden(self) -> dict[str, str]:
        """What the form carries, so that only what differs is sent."""
        return {"was": json.dumps(dict(self.was), ensure_ascii=False)}

    @property
    def options(self) -> list[str]:
        """The same change as options of the command line."""
        return [
            part
            for each in self.changed
            for part in (each.option, f"{self.now[each.name]}{each.unit}" if self.now[each.name] else DEFAULT)
        ]

    @property
    def is_endless(self) -> bool:
        """Whether nothing that is entered can end by itself."""
        return WINDOW in self.changed or not any(
            self.now[each.name] not in ("", "no") for each in self.changed
        )

    def value(self, field: SettingField) -> Any:
        """What a field says; None for nothing, and for what is not a value yet."""
        try:
            return field.read(self.now[field.name], field.name)
        except ValidationFailed:
            return None


def form_of(
    fields: Sequence[SettingField], values: Mapping[str, object], query: Mapping[str, str]
) -> SettingForm:
    """The form of some settings.

    Args:
        fields: The settings.
        values: What is in force, by name of the field.
        query: The parameters of the dialog: what was entered so far.
    """
    was = {each.name: each.in_force(values.get(each.name)) for each in fields}
    return SettingForm(fields, was, {name: entered(query, name, text) for name, text in was.items()})


def values_of(fields: Sequence[SettingField], limits: Mapping[str, Any]) -> dict[str, object]:
    """What is in force, by name of the field. Of a choice, what somebody chose: the declared one is its first.

    Args:
        fields: The settings.
        limits: The limits of a scope, as the API describes them.
    """
    found: dict[str, object] = {}
    for each in fields:
        limit = limits[each.setting]
        live = limit["live"]
        chosen = each.read is word
        found[each.name] = (None if live is None else live["value"]) if chosen else limit["value"]
    return found


def changes_of(act: Act, fields: Sequence[SettingField]) -> Body:
    """The settings of a posted form that differ from what it began with; `default` unsets one."""
    was = _was(act)
    body: Body = {}
    for each in fields:
        text = act.text(each.name) or ""
        if each.name in act.form and text != was.get(each.name, ""):
            body[each.setting] = each.read(text, each.name) if text else DEFAULT
    return body


def until(act: Act, settings: Body) -> Body:
    """The reason and the end of a change. Nothing ends where all is unset, or where a window is among the settings.

    Args:
        act: The change.
        settings: What it sets; `default` unsets.
    """
    ends = WINDOW.setting not in settings and any(each != DEFAULT for each in settings.values())
    return common(act) if ends else {"reason": act.text("reason")}


def _was(act: Act) -> Mapping[str, str]:
    try:
        found = json.loads(act.form.get("was") or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise field_error("was", "must be what the form began with")
    return found
