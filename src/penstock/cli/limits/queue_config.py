"""Commands for the settings of a task queue: show, change, history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import KeyParam, LimitParam, SpanParam, WeightParam, WholeLimitParam, given, pairs
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.cli.transport.session import CliSession

BURST_SECONDS_MAX = 3_600
_AGING_SECONDS_MAX = 604_800
KINDS = click.Choice(["activity", "workflow"])
_PER_SECOND = (
    *("queue_rps_limit", "fairness_key_rps_limit_default", "retry_rps_limit"),
    *("rps_limit", "worker_rps_limit"),
)
_SECONDS = ("queue_rps_burst_seconds", "fairness_key_rps_burst_seconds", "aging_wait_seconds")
_SETTINGS = (
    *_PER_SECOND[:3],
    *_SECONDS,
    *("fairness", "fairness_counts", "max_running", "fairness_key_max_running_default", "aging_every"),
    *("max_dispatches_per_minute", "dispatch_window", "dispatch_budget_group", "paused"),
)

_QUEUE = click.option("--task-queue", "-t", "queue", required=True, metavar="NAME", help="The task queue.")
_KIND = click.option(
    "--task-queue-type", "kind", type=KINDS, default="activity", show_default=True, help="Kind of tasks."
)


@noun("config", example="penstock task-queue config get --task-queue payments")
def config() -> None:
    """Show and change a queue's rates, limits, weights and order."""


@config.verb("get", example="penstock task-queue config get --task-queue payments --task-queue-type activity")
@_QUEUE
@_KIND
@click.pass_obj
def get_config(session: CliSession, queue: str, kind: str) -> None:
    """Show every setting of a queue with its reason and author."""
    answer = session.connect().get("task-queues", queue, "config", query={"task_queue_type": kind})
    session.show(answer, draw_config)


@config.verb(
    "set",
    example="penstock task-queue config set --task-queue payments --task-queue-type activity \\\n"
    '    --queue-rps-limit 500 --queue-rps-limit-reason "overall limit" \\\n'
    "    --fairness-key-rps-limit-default 33.3 --fairness-key-weight tenant-big=5",
)
@_QUEUE
@_KIND
@click.option(
    "--queue-rps-limit", type=LimitParam(), help="Most dispatches per second of the whole queue; 0 closes it."
)
@click.option("--queue-rps-limit-reason", metavar="TEXT", help="Why.")
@click.option(
    "--queue-rps-burst-seconds",
    type=SpanParam(BURST_SECONDS_MAX),
    help="Burst, as seconds of the rate; 1 if unset.",
)
@click.option(
    "--fairness-key-rps-limit-default",
    type=LimitParam(),
    help="Most dispatches per second of each fairness key, times its weight.",
)
@click.option("--fairness-key-rps-limit-reason", metavar="TEXT", help="Why.")
@click.option(
    "--fairness-key-rps-burst-seconds", type=SpanParam(BURST_SECONDS_MAX), help="The same for each key."
)
@click.option(
    "--worker-rps-limit", type=click.Choice(["default"]), help="Remove the limit that workers reported."
)
@click.option(
    "--fairness-key-weight",
    "weights",
    type=KeyParam(WeightParam(unset=True), "tenant-big=5"),
    multiple=True,
    help="A key's weight, overriding the weights of tasks; repeatable.",
)
@click.option("--fairness-key-weight-clear-all", "clear", is_flag=True, help="Unset all weights of keys.")
@click.option(
    "--key-rps-limit",
    "rates",
    type=KeyParam(LimitParam(), "tenant-big=10"),
    multiple=True,
    help="A key's own rate; repeatable.",
)
@click.option(
    "--key-max-running",
    "caps",
    type=KeyParam(WholeLimitParam(), "tenant-big=3"),
    multiple=True,
    help="Most running tasks of a key; repeatable.",
)
@click.option("--pause-key", "paused", multiple=True, metavar="KEY", help="Pause a key; repeatable.")
@click.option("--resume-key", "resumed", multiple=True, metavar="KEY", help="Resume a key; repeatable.")
@click.option(
    "--retry-rps-limit", type=LimitParam(least=0.001), help="Most retries per second; further ones wait."
)
@click.option("--max-running", type=WholeLimitParam(), help="Most running tasks of the whole queue.")
@click.option(
    "--fairness-key-max-running-default",
    type=WholeLimitParam(),
    help="Most running tasks of each fairness key.",
)
@click.option(
    "--fairness",
    type=click.Choice(["on", "off", "default"]),
    help="Fair shares, or order of arrival; default: the namespace's setting.",
)
@click.option(
    "--fairness-counts",
    type=click.Choice(["dispatches", "running", "default"]),
    help="The unit of a key's share.",
)
@click.option(
    "--aging-wait",
    type=SpanParam(_AGING_SECONDS_MAX),
    help="Seconds after which a task of low priority may be dispatched early.",
)
@click.option(
    "--aging-every",
    type=WholeLimitParam(least=2, most=1000),
    help="Every N dispatches such a task goes first.",
)
@click.option("--reason", metavar="TEXT", help="Why, for changes without a reason of their own.")
@click.option(
    "--if-version", type=click.IntRange(0), metavar="N", help="Only if the settings are at this version."
)
@click.pass_obj
def set_config(session: CliSession, /, queue: str, kind: str, **flags: Any) -> None:
    """Change settings of a queue; `default` unsets one. They apply from the next dispatch, also to waiting tasks."""
    body = _body(**flags)
    if not body.keys() - {"reason", "if_version"}:
        raise click.UsageError(
            "Name what to change, such as --queue-rps-limit 500; see "
            f"{command_hint('task-queue', 'config', 'set', '--help')}."
        )
    answer = session.connect().patch("task-queues", queue, "config", body={"task_queue_type": kind} | body)
    echo_err(f"The {kind} tasks of {queue} have settings of version {answer.body.get('version')}.")
    session.show(answer, draw_config)


@config.verb("history", example="penstock task-queue config history --task-queue payments")
@_QUEUE
@_KIND
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=50,
    show_default=True,
    help="Most rows to show.",
)
@click.pass_obj
def show_history(session: CliSession, queue: str, kind: str, limit: int) -> None:
    """Show who changed which setting of a queue, newest first."""
    answer = session.connect().get(
        "task-queues", queue, "config", "history", query={"task_queue_type": kind, "limit": limit}
    )
    session.show(answer, draw_history)


def _body(
    *,
    weights: Sequence[tuple[str, Any]],
    clear: bool,
    rates: Sequence[tuple[str, Any]],
    caps: Sequence[tuple[str, Any]],
    paused: Sequence[str],
    resumed: Sequence[str],
    aging_wait: Any,
    **plain_flags: Any,
) -> dict[str, Any]:
    weighed = pairs(weights, "--fairness-key-weight")
    unset = [key for key, weight in weighed.items() if weight == "default"]
    return given(
        **plain_flags,
        aging_wait_seconds=aging_wait,
        set_fairness_weight_overrides={key: each for key, each in weighed.items() if each != "default"},
        unset_fairness_weight_overrides=unset or None,
        clear_fairness_weight_overrides=clear or None,
        keys=_keys(rates, caps, paused, resumed),
    )


def _keys(
    rates: Sequence[tuple[str, Any]],
    caps: Sequence[tuple[str, Any]],
    paused: Sequence[str],
    resumed: Sequence[str],
) -> dict[str, dict[str, Any]]:
    both = sorted(set(paused) & set(resumed))
    if both:
        raise click.UsageError(f"--pause-key and --resume-key both name {both[0]!r}.")
    keys: dict[str, dict[str, Any]] = {}
    for field, values in (
        ("rps_limit", pairs(rates, "--key-rps-limit")),
        ("max_running", pairs(caps, "--key-max-running")),
        ("paused", {key: key in paused for key in (*paused, *resumed)}),
    ):
        for key, value in values.items():
            keys.setdefault(key, {})[field] = value
    return keys


def draw_config(screen: Screen, body: dict[str, Any]) -> None:
    """Draw every setting of a line, and what follows from them."""
    effective = body.get("effective") or {}
    screen.fields(
        body,
        "task queue:name, tasks=task_queue_type, namespace, version, order, rate",
        order=lambda _: _order(effective),
        rate=lambda _: _effective_rate(effective),
    )
    made = [(setting, body[setting]) for setting in _SETTINGS if isinstance(body.get(setting), dict)]
    if isinstance(body.get("worker_rps_limit"), dict):
        made.append(("worker_rps_limit", body["worker_rps_limit"]))
    draw_settings(screen, made)
    keys = body.get("keys") or []
    _draw_keys(screen, keys, body.get("key_count"))
    if not made and not keys:
        echo_err(
            "Nothing is set: every key has the weight that its tasks carry, and nothing limits the queue."
        )


def _order(effective: dict[str, Any]) -> ScreenCell:
    order = "fair shares" if effective.get("fairness") else "order of arrival"
    return ScreenCell(f"{order} (set by the {effective.get('fairness_source')})")


def _effective_rate(effective: dict[str, Any]) -> ScreenCell:
    limit = effective.get("queue_rps_limit")
    if limit is None:
        return ScreenCell("no limit", "dim")
    return ScreenCell(f"{rate(limit)} (set by the {effective.get('queue_rps_limit_source')})")


def draw_settings(
    screen: Screen, made: Sequence[tuple[str, dict[str, Any]]], title: str = "Settings"
) -> None:
    """Draw settings with their reasons, one to a line."""
    if not made:
        return
    screen.heading(title)
    screen.table(
        ["setting", "value", "reason", "by", "when"],
        [
            [
                name(setting),
                setting_value(setting, each.get("value")),
                plain(each.get("reason")),
                plain(each.get("updated_by") or each.get("worker_id")),
                screen.when(each.get("updated_at")),
            ]
            for setting, each in made
        ],
    )


def _draw_keys(screen: Screen, keys: Sequence[dict[str, Any]], count: object) -> None:
    screen.rows(
        keys,
        "key=fairness_key:name, weight, rate, max running, paused:flag, reason, by=updated_by, "
        "when=updated_at:when",
        "Keys with settings of their own",
        weight=lambda row: setting_value("fairness_weight_override", row.get("weight_override")),
        rate=lambda row: setting_value("rps_limit", row.get("rps_limit")),
    )
    if keys and isinstance(count, int) and count > len(keys):
        echo_err(f"The first {len(keys)} of {count} keys are shown.")


def draw_history(screen: Screen, body: dict[str, Any]) -> None:
    """Draw who changed what, newest first."""
    screen.rows(
        body.get("changes") or [],
        "version:name, when=at:when, by, setting, key=fairness_key, before, after, reason",
        empty="These settings were never changed.",
        before=lambda row: setting_value(str(row.get("setting")), row.get("before")),
        after=lambda row: setting_value(str(row.get("setting")), row.get("after")),
    )


def setting_value(setting: str, value: object) -> ScreenCell:
    """A value with its unit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(value)
    show: Callable[[float], str] = "{:g}".format
    if setting in _PER_SECOND:
        show = rate
    elif setting in _SECONDS:
        show = "{:g} s".format
    return ScreenCell(show(value), "red" if value == 0 and setting in _PER_SECOND else "")


def rate(per_second: float) -> str:
    return f"{per_second:g}/s" if per_second else "closed"
