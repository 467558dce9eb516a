"""Draws schedules, their fires and their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

from penstock.cli.output.exits import echo_err, warn
from penstock.cli.output.hints import command_hint
from penstock.cli.output.payload_text import opened
from penstock.cli.output.screen import Screen, ScreenCell, data

Json = dict[str, Any]


def show_warnings(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the warnings of a response on stderr."""
    for each in found:
        warn(str(each.get("message")))


def draw_list(screen: Screen, body: Json) -> None:
    rows = body["schedules"]
    if not rows:
        create = command_hint("schedule", "create", "ID", "--cron", "0 3 * * *", "--type", "TYPE")
        echo_err(f"No schedules here. Create one with {create}.")
        return
    screen.rows(
        rows,
        "schedule=schedule_id:name, starts=workflow_type, when, status:status, next=next_fire:when, "
        "last=last_fire:when, fires=fires_count, skipped=info.skipped_trigger_count",
        when=lambda row: spec_text(row.get("spec") or {}),
    )
    if body.get("next_page_token"):
        echo_err(f"The first {len(rows)} are shown. See more with --limit.")


def draw_one(screen: Screen, body: Json) -> None:
    screen.fields(
        body,
        "schedule=schedule_id:name, status:status, note, starts, task queue=action.task_queue, arguments, when, "
        "in words, time zone=spec.timezone, start=spec.start_at, end=spec.end_at, overlap=overlap_policy, "
        "jitter=jitter, catch-up window=catchup_window_seconds:span, start by=start_by_seconds:span, "
        "pause on failure=pause_on_failure:flag, remaining starts=remaining_actions, "
        "fires=fires_count, open runs=info.running_count, buffered, failures, skipped, missed, "
        "last skip reason=info.last_skip_reason, created=created_at:exact, updated=updated_at:exact, version",
        starts=_starts,
        arguments=lambda body: data(opened((body.get("action") or {}).get("input"))),
        when=lambda body: spec_text(body.get("spec") or {}),
        in_words=lambda body: "; ".join(_info(body).get("in_words") or ()),
        jitter=lambda body: f"up to {body['jitter_seconds']} s" if body.get("jitter_seconds") else None,
        buffered=lambda body: _info(body).get("buffered_count") or None,
        failures=lambda body: body.get("failures_count") or None,
        skipped=lambda body: _info(body).get("skipped_trigger_count") or None,
        missed=lambda body: _info(body).get("missed_catchup_window_count") or None,
    )
    _draw_moments(
        screen, _info(body).get("next_action_times") or [], "Next", (body.get("spec") or {}).get("timezone")
    )
    draw_fires(screen, _info(body).get("recent_actions") or [], "Latest fires")


def draw_explanation(screen: Screen, body: Json) -> None:
    for each in body.get("sentences") or ():
        screen.line(ScreenCell(str(each)))


def draw_fires(screen: Screen, rows: Sequence[Json], heading: str) -> None:
    screen.rows(
        rows,
        "moment=fire_time:name, outcome:status, trigger, started=workflow_id, reason, recorded=recorded_at:when",
        heading,
    )


def draw_preview(screen: Screen, body: Json) -> None:
    show_warnings(body.get("warnings") or [])
    for each in body.get("in_words") or ():
        screen.line(ScreenCell(str(each)))
    _draw_moments(
        screen, body.get("next_fire_times") or [], f"Next, in {body.get('timezone')}", body.get("timezone")
    )


def draw_created(screen: Screen, body: Json) -> None:
    screen.fields(
        body,
        "schedule=schedule_id:name, outcome:status, in words",
        in_words=lambda body: body.get("in_words"),
    )
    _draw_moments(screen, body.get("next_fire_times") or [], "Next", body.get("timezone"))


def draw_outcome(screen: Screen, body: Json) -> None:
    screen.fields(
        body,
        "schedule=schedule_id:name, outcome:status, started=workflow_id, run=run_id, reason, "
        "buffered=buffer_depth",
    )


def draw_backfill(screen: Screen, body: Json) -> None:
    rows = body.get("results") or []
    if not rows:
        echo_err("The schedule has no moment in that period; nothing was started.")
        return
    screen.rows(rows, "moment=fire_time:name, outcome:status, started=workflow_id, reason")
    counted = "1 fire" if len(rows) == 1 else f"{len(rows)} fires"
    if body.get("outcome") == "dry_run":
        for each in (body.get("effect") or {}).get("sentences") or ():
            echo_err(str(each))
        echo_err(f"{counted} would be made. Leave out --dry-run to make them.")


def draw_events(screen: Screen, body: Json) -> None:
    screen.rows(
        body.get("events") or [],
        "number=sequence, event=event_type:name, recorded=recorded_at:when, by, started=workflow_instance_id, details",
        empty="No events after that one.",
        by=lambda row: (row.get("principal") or {}).get("id"),
        details=_event_details,
    )
    if body.get("has_more"):
        echo_err(f"See more with --after {body.get('next_cursor')}.")


def _event_details(event: Json) -> ScreenCell | None:
    """The payload of an event, less the principal, who has a column."""
    payload = {name: value for name, value in (event.get("payload") or {}).items() if name != "principal"}
    return data(payload) if payload else None


def spec_text(spec: Mapping[str, Any]) -> str:
    """A specification on one line, as it was written."""
    found = [str(each) for each in spec.get("cron_expressions") or ()]
    found += [_interval(each) for each in spec.get("intervals") or ()]
    calendars = len(spec.get("calendars") or ())
    if calendars:
        found.append("1 calendar" if calendars == 1 else f"{calendars} calendars")
    zone = spec.get("timezone")
    return ", ".join(found) + (f" ({zone})" if zone else "")


def _interval(each: Mapping[str, Any]) -> str:
    offset = f"+{each['offset']}" if each.get("offset") else ""
    return f"every {each.get('every')}{offset}"


def _starts(body: Json) -> str:
    action = body.get("action") or {}
    kind = "activity" if action.get("activity_type") else "workflow"
    return f"{kind} {body.get('workflow_type')}"


def _info(body: Json) -> Json:
    found: Json = body.get("info") or {}
    return found


def _draw_moments(screen: Screen, moments: Sequence[str], heading: str, zone: str | None) -> None:
    """Moments with their local time in the zone of the schedule, if that is another one than UTC."""
    if not moments:
        return
    screen.heading(heading)
    for each in moments:
        local = "" if zone in (None, "UTC") else f"{_local(each, str(zone))}  "
        screen.line(ScreenCell(f"  {local}{each}"), ScreenCell(f"({screen.when(each).text})", "dim"))


def _local(moment: str, zone: str) -> str:
    at = datetime.fromisoformat(moment).astimezone(_zone(zone))
    return f"{at:%a %Y-%m-%d %H:%M:%S %Z}"


@cache
def _zone(name: str) -> ZoneInfo:
    """The zone as the packaged data have it, which the server goes by too."""
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as zone_data:
        return ZoneInfo.from_file(zone_data, key=name)
