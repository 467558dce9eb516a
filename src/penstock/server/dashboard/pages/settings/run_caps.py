"""Caps on runs: how many runs of a workflow type, a queue, a key or the namespace may be open at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.core.limits.run_caps import RunScopeKind
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import (
    DialogField,
    dialog,
    moved,
    seen_version,
    who_set,
)
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.pages.setting_fields import (
    SettingField,
    SettingForm,
    changes_of,
    form_of,
    until,
    word,
)
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body
from penstock.wire.request_parser import field_error

NOUNS: Final = {
    RunScopeKind.TYPE.value: "workflow type",
    RunScopeKind.QUEUE.value: "task queue",
    RunScopeKind.KEY.value: "concurrency key",
    RunScopeKind.EACH_KEY.value: "each concurrency key without a cap of its own",
    RunScopeKind.NAMESPACE.value: "the whole namespace",
}
NAMED: Final = (RunScopeKind.TYPE.value, RunScopeKind.QUEUE.value, RunScopeKind.KEY.value)
_OPTIONS: Final = {
    RunScopeKind.TYPE.value: "--type",
    RunScopeKind.QUEUE.value: "--task-queue",
    RunScopeKind.KEY.value: "--key",
}
FIELDS: Final = (
    SettingField("most", "max_open_runs", "Open runs", "--max-open-runs"),
    SettingField(
        "surplus",
        "surplus",
        "A start beyond it",
        "--surplus",
        word,
        (
            ("", "waits (the default)"),
            ("queue", "waits"),
            ("refuse", "is refused"),
            ("cancel_running", "cancels the oldest run"),
            ("keep_newest", "replaces those that wait"),
        ),
    ),
)
_SURPLUS: Final = {
    "": "A start beyond it waits, and goes when a run ends.",
    "queue": "A start beyond it waits, and goes when a run ends.",
    "refuse": "A start beyond it is refused: its caller gets an error.",
    "cancel_running": "A start beyond it cancels the oldest run, and goes when that has ended.",
    "keep_newest": "A start beyond it takes the place of those that wait, which end as cancelled.",
}


def scope_words(scope: str, name: str | None) -> str:
    """What a cap is for, as people call it."""
    return f"{NOUNS[scope]} {name}" if name else NOUNS[scope]


def address_of(scope: str, name: str | None, namespace: str, **more: str) -> str:
    """The dialog that changes a cap."""
    return link("run-limits", "change", namespace=namespace, scope=scope, name=name, **more)


async def cap_dialog(view: View) -> Values:
    """A cap that is there, or a new one, for which the dialog asks what it is for."""
    scope = view.query.get("scope", RunScopeKind.TYPE.value)
    if scope not in NOUNS:
        raise field_error("scope", f"must be one of {', '.join(NOUNS)}")
    name = view.query.get("name", "").strip() if scope in NAMED else ""
    found = await _read(view, scope, name) if name or scope not in NAMED else None
    live = {each.name: found and found["limits"][each.setting] for each in FIELDS}
    form = form_of(FIELDS, {name: value and value["value"] for name, value in live.items()}, view.query)
    lines = _effects(form, found) if form.changed else [Effect("Nothing changes yet: enter a new value.")]
    shared: dict[str, Any] = {
        "given": view.query,
        "command": _command(scope, name, form) if form.changed else (),
        "expires": True,
        "endless": form.is_endless,
    }
    address = link("run-limits", "change", namespace=view.namespace)
    if view.query.get("new") == "yes" or found is None:
        what = [
            DialogField("scope", "Runs of", scope, options=tuple(NOUNS.items())),
            DialogField("name", "Its name", name, "orders", "text"),
        ]
        fields, hidden = [*what, *form.dialog_fields], form.hidden | {"new": "yes"}
        return dialog("Cap runs", "Apply", address, address, lines, fields=fields, hidden=hidden, **shared)
    replaced = who_set(live["most"], view.now_ms)
    return dialog(
        f"Cap on the runs of {scope_words(scope, name)}",
        "Apply",
        address,
        address_of(scope, name or None, view.namespace),
        lines,
        fields=form.dialog_fields,
        hidden=form.hidden | {"scope": scope, "name": name, "if_version": str(found["version"])},
        warning=f"{form.was['most']} was {replaced}. This replaces that change." if replaced else "",
        version=found["version"],
        **shared,
    )


def _command(scope: str, name: str, form: SettingForm) -> list[str]:
    """The words of the same change on the command line."""
    which = [_OPTIONS[scope], name or "NAME"] if scope in NAMED else []
    each = ["--each-key"] if scope == RunScopeKind.EACH_KEY else []
    return ["workflow", "limits", "set", *which, *each, *form.options]


async def _read(view: View, scope: str, name: str) -> Body:
    return await view.read("read_run_limit", {"name": name} if name else None, scope=scope)


def _effects(form: SettingForm, found: Body | None) -> list[Effect]:
    text, most = form.now["most"], form.value(FIELDS[0])
    if not text:
        return [Effect("No cap: every start goes at once, and so do those that wait for this one.")]
    if most is None:
        return [Effect("A cap is a whole number; 0 closes it.")]
    open_runs = 0 if found is None else found["counts"]["open_runs"]
    lines = []
    if most == 0:
        lines.append(Effect("0 closes it: no run starts. Those that are open go on.", "warn"))
    elif open_runs > most:
        lines.append(
            Effect(
                f"{open_runs:,} are open now and go on. None starts until fewer than {most:,} are.", "warn"
            )
        )
    else:
        lines.append(Effect(f"At most {most:,} are open at a time, counting those that are open already."))
    return [*lines, Effect(_SURPLUS[form.now["surplus"]])]


async def change_cap(act: Act) -> Outcome:
    """Change the cap, from its next start on."""
    scope, name = act.form.get("scope", ""), act.text("name")
    if scope not in NOUNS:
        raise field_error("scope", f"must be one of {', '.join(NOUNS)}")
    settings = changes_of(act, FIELDS)
    if scope not in NAMED:
        name = None
    elif name is None:
        raise field_error("name", f"is missing: which {NOUNS[scope]}?")
    if not settings:
        return Outcome("Nothing was changed")
    body = settings | {"name": name, "if_version": seen_version(act)} | until(act, settings)

    async def read() -> Sequence[Body]:
        query = {"limit": "5"} | ({"name": name} if name else {})
        found = await act.read("read_run_limit_history", query, scope=scope)
        changes: Sequence[Body] = found["changes"]
        return changes

    done = await moved(act, act.change("change_run_limit", body, scope=scope), read)
    live = done["limits"]["max_open_runs"]
    cap = "no cap" if live is None else f"at most {live['value']} open"
    return Outcome(f"Runs of {scope_words(scope, name)}: {cap} (v{done['version']})")
