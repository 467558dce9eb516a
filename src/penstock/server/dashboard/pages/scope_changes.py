"""Changes of limits that several queues share: of the cluster, of a namespace, or of a budget group."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidInput, Reason
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import (
    DialogField,
    common,
    dialog,
    entered,
    lenient,
    moved,
    who_set,
    whole,
)
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body

_FIELDS = (
    ("leases", "max_active_leases", "Leases", "active_leases"),
    ("dispatches", "max_dispatches_per_minute", "Dispatches a minute", "dispatches_this_minute"),
    ("cost", "max_cost_per_minute", "Cost a minute", "cost_this_minute"),
)
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

    @property
    def command(self) -> Sequence[str]:
        """The words of the command that changes its limits."""
        kind = {"workflow_tasks": ("--type", "workflow"), "activity_tasks": ("--type", "activity")}
        part = kind.get(self.part, ())
        match self.word:
            case "cluster":
                return ("cluster", "limits", "set", *part)
            case "namespace":
                return ("namespace", "limits", "set", self.owner, *part)
            case _:
                shared = ("--global",) if self.group_scope == "global" else ()
                return ("budget-group", "set", self.group, *shared, *part)

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
    fields, lines, was = [], [], []
    changed: list[str] = []
    for name, setting, label, counter in _FIELDS:
        limit = limits.get(setting)
        if limit is None:
            continue
        shown = "" if limit["value"] is None else str(limit["value"])
        text = entered(view.query, name, shown)
        if text != shown:
            changed += [f"--{setting.replace('_', '-')}", text or "default"]
        fields.append(DialogField(name, label, text, "no limit", narrow=True))
        was.append(f"{name}={shown}")
        if text != shown:
            lines.append(_effect(label, found["counts"].get(counter), lenient(whole, text, name)))
        if limit["live"] is not None:
            lines.append(Effect(f"{label}: {shown} was {who_set(limit['live'], view.now_ms)}.", "warn"))
    paused = "yes" if limits["paused"]["value"] else "no"
    held = view.query.get("paused", paused)
    if held != paused:
        text = (
            "All its queues wait until it is resumed; what runs finishes."
            if held == "yes"
            else "Its queues go on."
        )
        lines.insert(0, Effect(text, "warn" if held == "yes" else "flow"))
    fields.append(
        DialogField("paused", "Paused", held, options=(("no", "no"), ("yes", "yes: its queues wait")))
    )
    address = link("limits", "change", namespace=view.namespace, scope=scope.text)
    return dialog(
        f"Change the limits of {scope.name}",
        "Apply",
        address,
        address,
        lines or [Effect("Nothing changes yet: enter a new value.")],
        fields=fields,
        hidden={
            "scope": scope.text,
            "if_version": str(found["version"]),
            "was": ";".join([*was, f"paused={paused}"]),
        },
        version=found["version"],
        given=view.query,
        command=(*scope.command, *changed) if changed else (),
        expires=True,
    )


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
    was = dict(each.partition("=")[::2] for each in act.form.get("was", "").split(";"))
    body: Body = {"if_version": whole(act.text("if_version"), "if_version")}
    for name, setting, _, _ in _FIELDS:
        text = act.form.get(name, "").strip()
        if name in act.form and text != was.get(name, ""):
            body[setting] = "default" if not text else whole(text, name)
    if act.form.get("paused", was.get("paused")) != was.get("paused"):
        body["paused"] = True if act.form["paused"] == "yes" else "default"
    if len(body) == 1:
        return Outcome(f"{scope.name}: nothing was changed")
    await moved(act, scope.change(act, body | common(act)), lambda: scope.changes(act))
    return Outcome(f"The limits of {scope.name} are changed")
