"""What the dialogs of all changes share: their fields, how text becomes values, and who set what is there now."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from penstock.errors import PenstockError, Reason, ValidationFailed
from penstock.server.dashboard.formats import clock
from penstock.server.dashboard.page_rows import Values
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.view import Act
from penstock.server.operation import Body
from penstock.wire.request_parser import field_error

NONE: Final = "none"
"""An empty field in an address, where leaving it out means what is in force."""


MOVED_SHOWN: Final = 3


class DialogField(Struct, frozen=True):
    """One field of a dialog."""

    name: str
    label: str
    value: str = ""
    placeholder: str = ""
    inputmode: str = "numeric"
    narrow: bool = False
    options: tuple[tuple[str, str], ...] = ()
    """What can be chosen, as value and label; empty for a field in which one writes."""
    suggestions: tuple[str, ...] = ()
    """What a field in which one writes offers."""


def dialog(
    title: str,
    submit: str,
    action: str,
    preview: str,
    effects: Sequence[Effect],
    *,
    fields: Sequence[DialogField] = (),
    hidden: Mapping[str, str] | None = None,
    now: str = "",
    warning: str = "",
    given: Mapping[str, str] | None = None,
    version: int | None = None,
    command: Sequence[str] = (),
    expires: bool = False,
    endless: bool = False,
    takes_reason: bool = True,
    reason_option: str = "--reason",
) -> Values:
    """The values of `change.html`.

    Args:
        title: What is changed.
        submit: The label of the button: a verb and an object.
        action: Where the form is posted.
        preview: Where its effect is asked for again, as fields change.
        effects: What the change would do.
        fields: What can be entered, besides the reason.
        hidden: What is posted too.
        now: What is in force now, and who set it.
        warning: What one should know before.
        given: What was entered so far: the reason, and when it ends.
        version: The version that the change is made on; None where there is none.
        command: The words of the same change on the command line, without its reason and its end.
        expires: Whether it may end by itself.
        endless: Whether what was entered stays all the same, such as a limit that is taken away.
        takes_reason: Whether a reason is recorded with it.
        reason_option: The option of the command that takes the reason.
    """
    filled = given or {}
    lasts = filled.get("for", "3600").removeprefix(NONE) if expires else ""
    reason = filled.get("reason", "")
    return {
        "title": title,
        "submit": submit,
        "action": action,
        "preview": preview,
        "effects": effects,
        "fields": fields,
        "hidden_fields": hidden or {},
        "now": now,
        "warning": warning,
        "reason": reason,
        "version": version,
        "command": as_cli(
            command,
            {
                "--for": f"{lasts}s" if lasts and not endless else "",
                reason_option: reason if takes_reason else "",
            },
            filled,
        ),
        "expires": expires,
        "lasts": lasts,
        "takes_reason": takes_reason,
    }


def as_cli(words: Sequence[str], options: dict[str, str], query: Mapping[str, str]) -> str:
    """A change as a command that a person can paste.

    Args:
        words: The command and what it changes; nothing if there is no change yet.
        options: Options with their texts; those without a text are left out.
        query: The parameters of the dialog, which name its namespace.
    """
    if not words:
        return ""
    namespace = query.get("namespace", "default")
    given = options | {"--namespace": "" if namespace == "default" else namespace}
    more = [part for name, text in given.items() if text.strip() for part in (name, text)]
    return shlex.join(["penstock", *words, *more])


def entered(query: Mapping[str, str], name: str, shown: str) -> str:
    """What a field of a dialog begins with: what the address says, `none` for nothing, or what is in force."""
    text = query.get(name, shown)
    return "" if text == NONE else text


def whole(text: str | None, field: str) -> int | None:
    """A whole number; None for an empty field. Raises `ValidationFailed`."""
    if not text:
        return None
    try:
        return int(text.replace(",", "").replace(" ", ""))
    except ValueError:
        raise field_error(field, f"must be a whole number, not {text[:40]!r}") from None


def number(text: str | None, field: str) -> float | None:
    """A number; None for an empty field. Raises `ValidationFailed`."""
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise field_error(field, f"must be a number, not {text[:40]!r}") from None


def lenient(read: Any, text: str | None, field: str) -> Any:
    """What a preview shows while a field is being typed: nothing, where it is not a number yet."""
    try:
        return read(text, field)
    except ValidationFailed:
        return None


def common(act: Act) -> dict[str, Any]:
    """The reason and the expiry of a form, as fields of a request."""
    return {"reason": act.text("reason"), "expires_in_seconds": whole(act.text("for"), "for")}


def seen_version(act: Act) -> int | None:
    """The version that the dialog of a change showed; None if it showed none."""
    return whole(act.text("if_version"), "if_version")


async def moved(act: Act, changing: object, read: Callable[[], Awaitable[Sequence[Body]]]) -> Body:
    """The response of a change; a conflict says what somebody else has changed in the meantime, and what to do.

    Args:
        act: The change.
        changing: The change, being carried out.
        read: Reads the newest changes of the same settings, newest first.
    """
    try:
        found: Body = await changing  # type: ignore[misc]
    except PenstockError as error:
        if error.reason is not Reason.CONFIG_VERSION_CONFLICT:
            raise
        seen = seen_version(act) or 0
        others = [each for each in await read() if each["version"] > seen]
        told = "; ".join(change_words(each) for each in others[:MOVED_SHOWN])
        raise type(error)(
            error.reason,
            f"Nothing was changed, because somebody was faster: {told or error.message} "
            "What you entered is still here: look at its effect again, and apply it if it is still right.",
            **error.details,
        ) from None
    return found


def change_words(change: Body) -> str:
    """A recorded change in words."""
    key = change.get("fairness_key")
    of_key = f" of {key}" if key else ""
    reason = f" (“{change['reason']}”)" if change["reason"] else ""
    before, after = ("none" if change[each] is None else change[each] for each in ("before", "after"))
    return (
        f"{change['by']} changed {change['setting'].replace('_', ' ')}{of_key}: {before} → {after}{reason}."
    )


def who_set(live: Body | None, now_ms: int) -> str:
    """Who set a value, when, why, and until when."""
    if live is None:
        return ""
    reason = f": “{live['reason']}”" if live["reason"] else ""
    until = f", until {clock(live['ends_at'], now_ms)}" if live["ends_at"] else ""
    return f"set by {live['updated_by']} at {clock(live['updated_at'], now_ms)}{reason}{until}"
