"""Changes of limits that several queues share: of the cluster, of a namespace, or of a budget group."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidInput, Reason
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import dialog, moved, seen_version, who_set
from penstock.server.dashboard.pages.effects import Effect, of_window
from penstock.server.dashboard.pages.setting_fields import (
    PAUSED,
    WINDOW,
    SettingField,
    SettingForm,
    changes_of,
    form_of,
    until,
    values_of,
)
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body

_FIELDS = (
    SettingField("leases", "max_active_leases", "Leases", "--max-active-leases"),
    SettingField(
        "dispatches", "max_dispatches_per_minute", "Dispatches a minute", "--max-dispatches-per-minute"
    ),
    SettingField("cost", "max_cost_per_minute", "Cost a minute", "--max-cost-per-minute"),
    WINDOW,
    PAUSED,
)
_COUNTERS = {"leases": "active_leases", "dispatches": "dispatches_this_minute", "cost": "cost_this_minute"}
_PARTS = {"": "all", "workflow": "workflow_tasks", "activity": "activity_tasks"}


class _Scope:
    """A scope by its name, such as `group:default/bank` or `cluster/activity`."""

    def __init__(self, text: str) -> None:
        word, _, rest = text.partition(":")
        parts = rest.split("/") if rest else text.split("/")[1:]
        self.text = text
        self.word = "cluster" if word.startswith("cluster") else word
        self.owner = parts[0] if self.word != "cluster" and parts else ""
        self.group = parts[1] if self.word == "group" and len(parts) > 1 else ""
        kinds = {"cluster": parts, "namespace": parts[1:], "group": parts[2:]}.get(self.word)
        if kinds is None or (kinds[0] if kinds else "") not in _PARTS:
            raise InvalidInput(Reason.MALFORMED_REQUEST, f"There is no scope {text[:100]!r}.")
        self.part = _PARTS[kinds[0] if kinds else ""]

    @property
    def name(self) -> str:
        whose = {"cluster": "the cluster", "namespace": f"the namespace {self.owner}"}
        kind = "" if self.part == "all" else f" ({self.part.replace('_', ' ')})"
        return whose.get(self.word, f"the budget group {self.group}") + kind

    @property
    def group_scope(self) -> str:
        return "global" if self.owner == "*" else "namespace"

    async def read(self, view: View) -> Body:
        match self.word:
            case "cluster":
                body = await view.read("read_cluster_limits")
            case "namespace":
                body = await view.read("read_namespace_limits", name=self.owner)
            case _:
                body = await view.read("read_budget_group", {"scope": self.group_scope}, group=self.group)
        found: Body = body[self.part]
        return found

    async def change(self, act: Act, body: Body) -> Body:
        body = body | {"kind": self.part}
        match self.word:
            case "cluster":
                return await act.change("change_cluster_limits", body)
            case "namespace":
                return await act.change("change_namespace_limits", body, name=self.owner)
            case _:
                return await act.change(
                    "change_budget_group", body | {"scope": self.group_scope}, group=self.group
                )

    def command(self, form: SettingForm) -> Sequence[str]:
        """The words of the command that makes the change; nothing if it takes two, or there is none."""
        kind = {"workflow_tasks": ("--type", "workflow"), "activity_tasks": ("--type", "activity")}
        shared = ("--global",) if self.word == "group" and self.group_scope == "global" else ()
        options = [*shared, *kind.get(self.part, ())]
        if PAUSED in form.changed:
            verb = "pause" if form.now["paused"] == "yes" else "resume"
            noun = {"namespace": ("namespace", verb, self.owner), "group": ("budget-group", verb, self.group)}
            is_whole = self.part == "all" and len(form.changed) == 1
            return [*noun[self.word], *options] if is_whole and self.word in noun else ()
        sets = {
            "cluster": ("cluster", "limits", "set"),
            "namespace": ("namespace", "limits", "set", self.owner),
            "group": ("budget-group", "set", self.group),
        }
        return [*sets[self.word], *options, *form.options] if form.changed else ()

    async def changes(self, act: Act) -> Sequence[Body]:
        """The newest changes of its limits."""
        query = {"kind": self.part, "limit": "5"}
        match self.word:
            case "cluster":
                body = await act.read("read_cluster_limits_history", query)
            case "namespace":
                body = await act.read("read_namespace_limits_history", query, name=self.owner)
            case _:
                query["scope"] = self.group_scope
                body = await act.read("read_budget_group_history", query, group=self.group)
        found: Sequence[Body] = body["changes"]
        return found


async def scope_dialog(view: View) -> Values:
    scope = _Scope(view.query.get("scope", ""))
    found = await scope.read(view)
    limits = found["limits"]
    form = form_of(_FIELDS, values_of(_FIELDS, limits), view.query)
    lines: list[Effect] = []
    for each in _FIELDS:
        if each in form.changed:
            lines += _effects(each, form, found["counts"])
        live = limits[each.setting]["live"]
        if live is not None:
            lines.append(
                Effect(f"{each.label}: {form.was[each.name]} was {who_set(live, view.now_ms)}.", "warn")
            )
    if WINDOW in form.changed:
        lines.append(Effect("What a minute is has no end, so nothing of this change ends by itself.", "warn"))
    address = link("limits", "change", namespace=view.namespace, scope=scope.text)
    return dialog(
        f"Change the limits of {scope.name}",
        "Apply",
        address,
        address,
        lines or [Effect("Nothing changes yet: enter a new value.")],
        fields=form.dialog_fields,
        hidden={"scope": scope.text, "if_version": str(found["version"])} | form.hidden,
        version=found["version"],
        given=view.query,
        command=scope.command(form),
        expires=True,
        endless=form.is_endless,
    )


def _effects(field: SettingField, form: SettingForm, counts: Body) -> list[Effect]:
    """What one changed setting of a scope would do."""
    text = form.now[field.name]
    if field is PAUSED:
        held = "All its queues wait until it is resumed; what runs finishes."
        return [Effect(held, "warn") if text == "yes" else Effect("Its queues go on.")]
    if field is WINDOW:
        return of_window(text)
    return [_effect(field.label, counts.get(_COUNTERS[field.name]), form.value(field))]


def _effect(label: str, used: int | None, new: int | None) -> Effect:
    if new is None:
        return Effect(f"{label}: no limit.")
    if new == 0:
        return Effect(f"{label}: 0 closes it. Nothing more is dispatched; what runs finishes.", "warn")
    if used is None:
        return Effect(f"{label}: at most {new:,}, counted from the leases that already exist.")
    if used > new:
        return Effect(f"{label}: {used:,} are used now. Nothing starts until that is below {new:,}.", "warn")
    return Effect(f"{label}: {used:,} of {new:,} are used now; room for {new - used:,} more.")


async def change_scope(act: Act) -> Outcome:
    """Change what differs from what the dialog began with."""
    scope = _Scope(act.form.get("scope", ""))
    settings = changes_of(act, _FIELDS)
    if not settings:
        return Outcome(f"{scope.name}: nothing was changed")
    body = settings | {"if_version": seen_version(act)}
    await moved(act, scope.change(act, body | until(act, settings)), lambda: scope.changes(act))
    return Outcome(f"The limits of {scope.name} are changed")
