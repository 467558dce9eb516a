"""Two dialogs of a queue: how it shares among its keys, and the budget group that it belongs to."""

from __future__ import annotations

from typing import Final

from penstock.ports.gather import gather
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import (
    DialogField,
    dialog,
    entered,
    number,
    seen_version,
    who_set,
)
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.pages.setting_fields import WINDOW, SettingField, changes_of, form_of, word
from penstock.server.dashboard.pages.settings.queue_changes import changed, kind_of
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body

FIELDS: Final = (
    SettingField(
        "fairness",
        "fairness",
        "Order",
        "--fairness",
        word,
        (("", "as declared"), ("on", "fair shares"), ("off", "order of arrival")),
    ),
    SettingField(
        "counts",
        "fairness_counts",
        "A share counts",
        "--fairness-counts",
        word,
        (("", "as declared"), ("dispatches", "dispatches"), ("running", "running tasks")),
    ),
    SettingField(
        "key_rate",
        "fairness_key_rps_limit_default",
        "Rate of each key",
        "--fairness-key-rps-limit-default",
        number,
    ),
    SettingField(
        "key_cap",
        "fairness_key_max_running_default",
        "Cap of each key",
        "--fairness-key-max-running-default",
    ),
    SettingField("retries", "retry_rps_limit", "Retries a second", "--retry-rps-limit", number),
    SettingField(
        "burst",
        "queue_rps_burst_seconds",
        "Burst, seconds",
        "--queue-rps-burst-seconds",
        number,
        placeholder="1",
    ),
    SettingField(
        "key_burst",
        "fairness_key_rps_burst_seconds",
        "Burst of a key",
        "--fairness-key-rps-burst-seconds",
        number,
        placeholder="1",
    ),
    SettingField(
        "aging_wait", "aging_wait_seconds", "Aging after, s", "--aging-wait", number, placeholder="none"
    ),
    SettingField("aging_every", "aging_every", "Aging, one in", "--aging-every", placeholder="none"),
    WINDOW,
)
_EFFECTS: Final = {
    "fairness": "{}: which of the waiting tasks goes next changes; nothing that runs is stopped.",
    "counts": "A key's share is of {}, from the next dispatch on.",
    "key_rate": "Each key, times its weight: {} dispatches a second, unless it has a rate of its own.",
    "key_cap": "Each key runs at most {} tasks, unless it has a cap of its own; what runs now counts.",
    "retries": "Retries of this queue: at most {} a second; further ones wait their turn.",
    "burst": "After a pause of {} s without a dispatch, the queue may catch up at once.",
    "key_burst": "After {} s without a dispatch, a key may catch up at once.",
    "aging_wait": "A task of low priority that waits for {} s may go before its turn.",
    "window": "A minute of a limit is {}: see the limits of this queue.",
    "aging_every": "One dispatch in {} goes to a task that has aged.",
}


async def settings_dialog(view: View) -> Values:
    """How a queue shares, and the defaults of its keys."""
    name, kind = view.path["name"], kind_of(view)
    config = await view.read("read_task_queue_config", {"task_queue_type": kind}, name=name)
    lives = {each.name: config[each.setting] for each in FIELDS}
    form = form_of(
        FIELDS, {name: None if live is None else live["value"] for name, live in lives.items()}, view.query
    )
    lines = []
    for each in form.changed:
        told = dict(each.choices).get(form.now[each.name]) or form.now[each.name] or "no limit"
        lines.append(Effect(_EFFECTS[each.name].format(told[:1].upper() + told[1:])))
        replaced = who_set(lives[each.name], view.now_ms)
        if replaced:
            lines.append(Effect(f"{each.label}: {form.was[each.name]} was {replaced}.", "warn"))
    address = link("queues", name, "settings", namespace=view.namespace, kind=kind)
    return dialog(
        f"Order and keys of {name}",
        f"Apply to {name}",
        address,
        address,
        lines or [Effect("Nothing changes yet: enter a new value.")],
        fields=form.dialog_fields,
        hidden={"kind": kind, "if_version": str(config["version"])} | form.hidden,
        warning="These have no end: they stay until somebody changes them.",
        version=config["version"],
        given=view.query,
        command=("task-queue", "config", "set", "-t", name, "--task-queue-type", kind, *form.options)
        if form.changed
        else (),
    )


async def change_settings(act: Act) -> Outcome:
    """Change what differs from what the dialog began with."""
    name, body = act.path["name"], changes_of(act, FIELDS)
    if not body:
        return Outcome(f"{name}: nothing was changed")
    shared = {"reason": act.text("reason"), "if_version": seen_version(act)}
    found = await changed(act, "configure_task_queue", {"task_queue_type": kind_of(act)} | body | shared)
    return Outcome(f"{name}: order and keys are changed (v{found['version']})")


async def group_dialog(view: View) -> Values:
    """The budget group whose limits count the queue's tasks too."""
    name, kind = view.path["name"], kind_of(view)
    limits, groups, described = await gather(
        view.read("read_task_queue_limits", {"task_queue_type": kind}, name=name),
        view.read("list_budget_groups"),
        view.read("describe_task_queue", name=name),
    )
    limit = limits["limits"]["dispatch_budget_group"]
    was = limit["value"] or ""
    now = entered(view.query, "to", was)
    known = {each["budget_group"]: each for each in groups["budget_groups"]}
    counts = described["stats"][f"{kind}_tasks"]
    address = link("queues", name, "group", namespace=view.namespace, kind=kind)
    replaced = who_set(limit["live"], view.now_ms)
    change = ("--dispatch-budget-group", now) if now else ("--unset", "dispatch-budget-group")
    return dialog(
        f"Budget group of {name}",
        f"Apply to {name}",
        address,
        address,
        _of_group(was, now, known.get(now), counts),
        fields=[
            DialogField("to", f"Group, {was or 'none'} now", now, "none", "text", suggestions=tuple(known))
        ],
        hidden={"kind": kind, "if_version": str(limits["version"]), "was": was},
        warning=f"{was} was {replaced}." if replaced else "",
        version=limits["version"],
        given=view.query,
        command=("task-queue", "limits", "set", name, "--type", kind, *change) if now != was else (),
    )


def _of_group(was: str, now: str, group: Body | None, counts: Body) -> list[Effect]:
    """What another group would mean for the queue."""
    if now == was:
        return [Effect("Nothing changes yet: enter a group, or nothing to leave it.")]
    leaves = [Effect(f"The limits of {was} no longer count its tasks.")] if was else []
    if not now:
        return leaves
    running, waiting = counts["leased_count"], counts["ready_count"]
    if group is None:
        note = f"No queue is in {now} yet: it has no limit until somebody sets one."
        return [*leaves, Effect(note, "warn")]
    limits, used = group["all"]["limits"], group["all"]["counts"]
    most = limits["max_active_leases"]["value"]
    found = [
        Effect(
            f"Its {running:,} running and {waiting:,} waiting tasks count in {now}, from the next grant on."
        )
    ]
    if most is not None:
        text = f"{now} has {used['active_leases'] or 0:,} of {most:,} leases in use now."
        found.append(Effect(text, "warn" if (used["active_leases"] or 0) + running >= most else "flow"))
    if limits["paused"]["value"]:
        found.append(Effect(f"{now} is paused: its tasks wait until it is resumed.", "warn"))
    return [*leaves, *found]


async def change_group(act: Act) -> Outcome:
    """Put the queue into a group, or out of its group."""
    name, group = act.path["name"], act.text("to")
    body = {
        "task_queue_type": kind_of(act),
        "dispatch_budget_group": group or "default",
        "if_version": seen_version(act),
        "reason": act.text("reason"),
    }
    await changed(act, "change_task_queue_limits", body)
    return Outcome(f"{name} is in the budget group {group}" if group else f"{name} is in no budget group")
