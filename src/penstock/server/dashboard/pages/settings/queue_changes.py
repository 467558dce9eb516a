"""Changes of one queue: its cap, its rate, its pause, and the weight, cap, rate and pause of a key."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import astuple

from penstock.ports.gather import gather
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages import effects
from penstock.server.dashboard.pages.change_dialog import (
    DialogField,
    common,
    dialog,
    entered,
    lenient,
    moved,
    number,
    seen_version,
    who_set,
    whole,
)
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.pages.setting_fields import (
    SettingField,
    changes_of,
    form_of,
    until,
    values_of,
)
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body


def kind_of(values: View | Act) -> str:
    """The kind of tasks that a dialog is about; activity tasks unless it says otherwise."""
    given = values.query.get("kind") if isinstance(values, View) else values.form.get("kind")
    return "workflow" if given == "workflow" else "activity"


def _address(view: View, *parts: str) -> str:
    return link("queues", view.path["name"], *parts, namespace=view.namespace, kind=kind_of(view))


async def _described(view: View) -> tuple[Body, Body, Body]:
    """The admission, the counts and the limits of the queue's tasks of one kind."""
    kind, name = kind_of(view), view.path["name"]
    body, limits = await gather(
        view.read("describe_task_queue", name=name),
        view.read("read_task_queue_limits", {"task_queue_type": kind}, name=name),
    )
    return body["admission"][f"{kind}_tasks"], body["stats"][f"{kind}_tasks"], limits


_CAP_FIELDS = (
    SettingField("to", "max_active_leases_per_queue", "Leases", "--max-active-leases"),
    SettingField(
        "dispatches", "max_dispatches_per_minute", "Dispatches a minute", "--max-dispatches-per-minute"
    ),
)


async def cap_dialog(view: View) -> Values:
    name, kind = view.path["name"], kind_of(view)
    section, counts, limits = await _described(view)
    cap = limits["limits"]["max_active_leases_per_queue"]
    form = form_of(_CAP_FIELDS, values_of(_CAP_FIELDS, limits["limits"]), view.query)
    leases, dispatches = _CAP_FIELDS
    scope = f"queue:{view.namespace}/{name}/{kind}"
    replaced = who_set(cap["live"], view.now_ms)
    return dialog(
        f"Change the cap of {name}",
        f"Apply to {name}",
        _address(view, "cap"),
        _address(view, "cap"),
        [
            *effects.of_cap(section, counts["ready_count"], form.value(leases), scope),
            *(effects.of_minute(form.value(dispatches)) if dispatches in form.changed else ()),
        ],
        fields=form.dialog_fields,
        hidden={"kind": kind, "if_version": str(limits["version"])} | form.hidden,
        given=view.query,
        now=f"{form.was['to'] or 'No limit'} now.",
        warning=f"{form.was['to']} was {replaced}. This replaces that change." if replaced else "",
        version=limits["version"],
        command=("task-queue", "limits", "set", name, "--type", kind, *form.options) if form.changed else (),
        expires=True,
        endless=form.is_endless,
    )


async def change_cap(act: Act) -> Outcome:
    name, body = act.path["name"], changes_of(act, _CAP_FIELDS)
    if not body:
        return Outcome(f"{name}: nothing was changed")
    shared = {"task_queue_type": kind_of(act), "if_version": seen_version(act)} | until(act, body)
    done = await changed(act, "change_task_queue_limits", body | shared)
    value = done["limits"]["max_active_leases_per_queue"]["value"]
    return Outcome(f"{name}: the cap is {'off' if value is None else value} (v{done['version']})")


async def rate_dialog(view: View) -> Values:
    name, kind = view.path["name"], kind_of(view)
    body, config = await gather(
        view.read("describe_task_queue", name=name),
        view.read("read_task_queue_config", {"task_queue_type": kind}, name=name),
    )
    counts, live = body["stats"][f"{kind}_tasks"], config["queue_rps_limit"]
    value = live["value"] if isinstance(live, dict) else live
    text = entered(view.query, "to", "" if value is None else f"{value:g}")
    new = lenient(number, text, "to")
    return dialog(
        f"Change the rate of {name}",
        f"Apply to {name}",
        _address(view, "rate"),
        _address(view, "rate"),
        effects.of_rate(counts["ready_count"], new),
        fields=[DialogField("to", "Dispatches a second", text, "no limit", inputmode="decimal", narrow=True)],
        hidden={"kind": kind, "if_version": str(config["version"])},
        now=who_set(live, view.now_ms) if isinstance(live, dict) else "",
        warning="A rate has no end: it stays until somebody changes it.",
        version=config["version"],
        given=view.query,
        command=("task-queue", "set-rate", name, text or "default"),
    )


async def change_rate(act: Act) -> Outcome:
    name = act.path["name"]
    new = number(act.text("to"), "to")
    body = {
        "task_queue_type": kind_of(act),
        "queue_rps_limit": "default" if new is None else new,
        "reason": act.text("reason"),
        "if_version": seen_version(act),
    }
    await changed(act, "configure_task_queue", body)
    return Outcome(f"{name}: the rate is {'off' if new is None else f'{new:g} a second'}")


async def pause_dialog(view: View) -> Values:
    name, kind = view.path["name"], kind_of(view)
    section, counts, _ = await _described(view)
    return dialog(
        f"Pause {name}",
        f"Pause {name}",
        _address(view, "pause"),
        _address(view, "pause"),
        effects.of_pause(counts["ready_count"], section["leased_count"]),
        hidden={"kind": kind},
        given=view.query,
        command=("task-queue", "pause", name, "--type", kind),
        expires=True,
    )


async def pause(act: Act) -> Outcome:
    name, kind = act.path["name"], kind_of(act)
    await act.change("pause_task_queue", {"task_queue_type": kind} | common(act), name=name)
    return Outcome(f"{name} is paused: its {kind} tasks wait")


async def resume_dialog(view: View) -> Values:
    name, kind = view.path["name"], kind_of(view)
    _, counts, limits = await _described(view)
    paused = limits["limits"]["paused"]
    return dialog(
        f"Resume {name}",
        f"Resume {name}",
        _address(view, "resume"),
        _address(view, "resume"),
        effects.of_resume(counts["ready_count"]),
        hidden={"kind": kind},
        now=f"The pause was {who_set(paused['live'], view.now_ms)}." if paused["live"] else "",
        given=view.query,
        command=("task-queue", "resume", name, "--type", kind),
    )


async def resume(act: Act) -> Outcome:
    name, kind = act.path["name"], kind_of(act)
    body = {"task_queue_type": kind, "reason": act.text("reason")}
    await act.change("resume_task_queue", body, name=name)
    return Outcome(f"{name} is resumed")


async def key_dialog(view: View) -> Values:
    name, key, kind = view.path["name"], view.path["key"], kind_of(view)
    of_kind = {"task_queue_type": kind}
    body, config = await gather(
        view.read("list_task_queue_keys", of_kind | {"key": key}, name=name),
        view.read("read_task_queue_config", of_kind, name=name),
    )
    keys = body["keys"]
    mine = keys[0] if keys else {}
    waiting = sum(each["backlog_count"] for each in keys)
    was = _KeySettings(
        f"{mine.get('weight') or 1:g}",
        _or_empty(mine.get("max_running")),
        "yes" if mine.get("state") == "paused" else "no",
        _or_empty(mine.get("rps_limit")),
    )
    now = _KeySettings(
        entered(view.query, "weight", was.weight),
        entered(view.query, "cap", was.cap),
        view.query.get("paused", was.paused),
        entered(view.query, "rate", was.rate),
    )
    shown = _key_effects(was, now, keys, key, waiting)
    return dialog(
        f"Settings of the key {key} in {name}",
        f"Apply to {key}",
        _address(view, "keys", key),
        _address(view, "keys", key),
        shown,
        fields=[
            DialogField("weight", "Weight", now.weight, "of its tasks", "decimal", narrow=True),
            DialogField("cap", "Most that run", now.cap, "no limit", narrow=True),
            DialogField("rate", "Dispatches a second", now.rate, "no limit", "decimal", narrow=True),
            DialogField(
                "paused", "Paused", now.paused, options=(("no", "no"), ("yes", "yes: its tasks wait"))
            ),
        ],
        hidden={
            "kind": kind,
            "if_version": str(config["version"]),
            "was": "|".join(astuple(was)),
        },
        version=config["version"],
        given=view.query,
        command=_key_command(view, was, now),
    )


class _KeySettings(Struct, frozen=True):
    """The texts of the fields of a key's dialog."""

    weight: str = ""
    cap: str = ""
    paused: str = ""
    rate: str = ""


def _key_effects(
    was: _KeySettings, now: _KeySettings, keys: Sequence[Body], key: str, waiting: int
) -> list[Effect]:
    """What the change of a key would do."""
    if now.paused == "yes" and was.paused == "no":
        return effects.of_pause(waiting, 0)[:1]
    shown: list[Effect] = []
    if now.weight != was.weight or (now.cap, now.rate) == (was.cap, was.rate):
        shown += effects.of_weight(keys, key, lenient(number, now.weight, "weight"))
    if now.cap != was.cap:
        running = keys[0]["running"] if keys else 0
        shown += effects.of_key_cap(waiting, running, lenient(whole, now.cap, "cap"))
    if now.rate != was.rate:
        shown += effects.of_rate(waiting, lenient(number, now.rate, "rate"), "this key")
    return shown


def _key_command(view: View, was: _KeySettings, now: _KeySettings) -> list[str]:
    """The words of the command that changes what differs."""
    key = view.path["key"]
    words = ["task-queue", "config", "set", "-t", view.path["name"], "--task-queue-type", kind_of(view)]
    if now.weight != was.weight:
        words += ["--fairness-key-weight", f"{key}={now.weight or 'default'}"]
    if now.cap != was.cap:
        words += ["--key-max-running", f"{key}={now.cap or 'default'}"]
    if now.rate != was.rate:
        words += ["--key-rps-limit", f"{key}={now.rate or 'default'}"]
    if now.paused != was.paused:
        words += ["--pause-key" if now.paused == "yes" else "--resume-key", key]
    return words


async def change_key(act: Act) -> Outcome:
    """Change what differs from what the dialog began with."""
    name, key = act.path["name"], act.path["key"]
    was = _KeySettings(*(act.form.get("was", "") + "|||").split("|")[:4])
    weight, cap, paused, rate = (act.text(each) for each in _KeySettings.__struct_fields__)
    body: Body = {
        "task_queue_type": kind_of(act),
        "reason": act.text("reason"),
        "if_version": seen_version(act),
    }
    if (weight or "") != was.weight:
        if weight is None:
            body["unset_fairness_weight_overrides"] = [key]
        else:
            body["set_fairness_weight_overrides"] = {key: number(weight, "weight")}
    of_key: Body = {}
    if (cap or "") != was.cap:
        of_key["max_running"] = "default" if cap is None else whole(cap, "cap")
    if (rate or "") != was.rate:
        of_key["rps_limit"] = "default" if rate is None else number(rate, "rate")
    if (paused or "no") != was.paused:
        of_key["paused"] = paused == "yes"
    if of_key:
        body["keys"] = {key: of_key}
    if not of_key and not any("overrides" in field for field in body):
        return Outcome(f"{key}: nothing was changed")
    await changed(act, "configure_task_queue", body)
    return Outcome(f"{key} in {name} is changed")


async def changed(act: Act, operation: str, body: Body) -> Body:
    """The response of a change of the queue; a conflict says what moved."""
    name = act.path["name"]

    async def read() -> Sequence[Body]:
        query = {"task_queue_type": kind_of(act), "limit": "5"}
        found = await act.read("read_task_queue_config_history", query, name=name)
        changes: Sequence[Body] = found["changes"]
        return changes

    return await moved(act, act.change(operation, body, name=name), read)


def _or_empty(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
