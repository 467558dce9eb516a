"""The flags that say when a schedule fires, how, and what it starts."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from penstock.cli.inputs import JsonObjectParam, KeyValueParam, SecondsParam, arguments, given, pairs
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import input_option

OVERLAPS: Final = ("skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all")
JITTER_MAX: Final = 3_600
MOMENTS: Final = ("cron_expressions", "intervals", "calendars")
"""The parts of a specification that have moments. An update that gives one of them replaces all."""


class IntervalParam(click.ParamType[dict[str, str]]):
    """A distance since the epoch, and an offset after a plus sign: 30m, 1d+6h."""

    name = "interval"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        every, plus, offset = str(value).partition("+")
        seconds = SecondsParam()
        found = {"every": f"PT{seconds.convert(every, param, ctx)}S"}
        return found | {"offset": f"PT{seconds.convert(offset, param, ctx)}S"} if plus else found


class InstantParam(click.ParamType[str]):
    """A time with its zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return f"{text}T00:00:00Z"
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}T.*(Z|[+-]\d{2}:\d{2})", text) is None:
            self.fail(
                f"{value!r} is not a time such as 2026-01-31T12:00:00Z, or a day such as 2026-01-31 (UTC).",
                param,
                ctx,
            )
        return text


SPEC_OPTIONS: Final = (
    click.option(
        "--cron",
        "cron_expressions",
        multiple=True,
        metavar="EXPR",
        help="Cron expression of five fields, or @daily and the like; repeatable.",
    ),
    click.option(
        "--every",
        "intervals",
        type=IntervalParam(),
        multiple=True,
        metavar="TIME[+OFFSET]",
        help="Interval since the epoch, such as 30m or 1d+6h; repeatable.",
    ),
    click.option(
        "--calendar",
        "calendars",
        type=JsonObjectParam(),
        multiple=True,
        metavar="JSON",
        help='Calendar fields, such as \'{"hour": [8], "day_of_week": [{"start": 1, "end": 5}]}\'; repeatable.',
    ),
    click.option(
        "--skip",
        type=JsonObjectParam(),
        multiple=True,
        metavar="JSON",
        help="Calendar fields of times at which it does not fire; repeatable.",
    ),
    click.option("--timezone", metavar="ZONE", help="Time zone, such as Europe/Berlin; UTC if omitted."),
    click.option("--start-at", type=InstantParam(), metavar="TIME", help="No moment before this time."),
    click.option("--end-at", type=InstantParam(), metavar="TIME", help="No moment after this time."),
    click.option(
        "--gap",
        type=click.Choice(["shift", "skip"]),
        help="A time of day that a clock change leaves out: fire right after it, or not (shift).",
    ),
    click.option(
        "--repeat",
        type=click.Choice(["first", "last", "both"]),
        help="A time of day that a clock change repeats: which of the two fires (first).",
    ),
)
JITTER_OPTION: Final = click.option(
    "--jitter",
    "jitter_seconds",
    type=SecondsParam(JITTER_MAX),
    metavar="TIME",
    help="Delay each fire by up to this time, at most 1h.",
)
OVERLAP_OPTION: Final = click.option(
    "--overlap",
    "overlap_policy",
    type=click.Choice(OVERLAPS),
    help="What a fire does while earlier runs are open (skip).",
)
NOTE_OPTION: Final = click.option("--note", metavar="TEXT", help="A note for people.")
_ATTRIBUTE_OPTION: Final = click.option(
    "--search-attribute",
    "attributes",
    type=KeyValueParam(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A search attribute of the runs that it starts; repeat for more.",
)
POLICY_OPTIONS: Final = (
    JITTER_OPTION,
    OVERLAP_OPTION,
    click.option(
        "--catchup-window",
        "catchup_window_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="A fire later than this is recorded as missed, 10s to 365d (1h).",
    ),
    click.option(
        "--pause-on-failure/--no-pause-on-failure",
        default=None,
        help="Pause it when a run that it started fails.",
    ),
    click.option(
        "--start-by",
        "start_by_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="Drop a fire that could not start so long after its moment.",
    ),
    click.option(
        "--max-runs", type=click.IntRange(1), metavar="N", help="Delete the schedule after this many starts."
    ),
    click.option(
        "--memo", type=JsonObjectParam(), metavar="JSON", help="A JSON object stored with each run."
    ),
    _ATTRIBUTE_OPTION,
    NOTE_OPTION,
)
ACTION_OPTIONS: Final = (
    click.option("--type", "workflow_type", metavar="TYPE", help="Workflow type to start."),
    click.option("--activity", "activity_type", metavar="TYPE", help="Activity type to start instead."),
    click.option("--task-queue", "-t", metavar="NAME", help="Queue whose workers run it."),
    input_option,
    click.option("--business-key", metavar="TEXT", help="Your own name for what it starts."),
    click.option("--build-id", metavar="BUILD", help="Run only on workers of this build."),
    click.option(
        "--execution-timeout",
        "execution_timeout_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="Timeout of all runs of a workflow together.",
    ),
    click.option(
        "--run-timeout",
        "run_timeout_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="Timeout of a single run of a workflow.",
    ),
    click.option(
        "--start-to-close",
        "start_to_close_timeout_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="Timeout of one attempt of an activity.",
    ),
    click.option(
        "--schedule-to-close",
        "schedule_to_close_timeout_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="Timeout of all attempts of an activity together.",
    ),
    click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="Most attempts of an activity."),
)
_SPEC_FIELDS: Final = (*MOMENTS, "skip", "timezone", "start_at", "end_at", "gap", "repeat")
_POLICY_FIELDS: Final = (
    *("jitter_seconds", "overlap_policy", "catchup_window_seconds", "pause_on_failure", "start_by_seconds"),
    *("max_runs", "memo", "note"),
)
_ACTION_FIELDS: Final = (
    *(
        "workflow_type",
        "activity_type",
        "task_queue",
        "business_key",
        "build_id",
        "execution_timeout_seconds",
    ),
    *("run_timeout_seconds", "start_to_close_timeout_seconds", "schedule_to_close_timeout_seconds"),
)


def spec_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The specification that the flags give."""
    found = {name: fields[name] for name in _SPEC_FIELDS}
    return given(
        **{name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value}
    )


def policies_of(fields: dict[str, Any]) -> dict[str, Any]:
    """The policies that the flags give."""
    found = {name: fields[name] for name in _POLICY_FIELDS}
    return given(**found, search_attributes=pairs(fields["attributes"], "--search-attribute"))


def action_of(session: CliSession, fields: dict[str, Any], priority: dict[str, Any]) -> dict[str, Any]:
    """The action that the flags of a session's command give."""
    if fields["workflow_type"] and fields["activity_type"]:
        raise click.UsageError("--type and --activity are alternatives; give one of them.")
    values: tuple[Any, ...] = fields["values"]
    found = {name: fields[name] for name in _ACTION_FIELDS}
    return given(
        **found,
        **priority,
        input=arguments(values) if values else None,
        retry_policy=given(max_attempts=fields["max_attempts"]),
        deliver_cancel=True if fields["workflow_type"] and session.asks_code_to_cancel else None,
    )
