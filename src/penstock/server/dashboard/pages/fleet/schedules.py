"""Schedules: what fires next, how the last fires went, and pause, resume, trigger and backfill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.errors import NotFound, Reason
from penstock.server.dashboard.formats import ago, moment_ms
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import DialogField, dialog
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body
from penstock.wire.request_parser import field_error

PAGE_SIZE: Final = 100
FIRES_SHOWN: Final = 10
AGENDA_HOURS: Final = 12
ACTS: Final = ("pause", "resume", "trigger", "backfill", "delete")
BULK: Final = ("pause", "resume")
BULK_CALLS_MAX: Final = 20
OVERLAPS: Final = ("", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all")


async def load(view: View) -> Values:
    after = view.query.get("after")
    body = await view.read(
        "list_schedules", {"page_size": str(PAGE_SIZE)} | ({"next_page_token": after} if after else {})
    )
    found = body["schedules"]
    return {
        "schedules": found,
        "next_page": body.get("next_page_token"),
        "agenda": agenda(found, view.now_ms),
        "hours": AGENDA_HOURS,
        "sentence": _sentence(found, view.now_ms),
    }


async def load_one(view: View) -> Values:
    body = await view.read("describe_schedule", None, schedule_id=view.path["schedule_id"])
    info = body["info"]
    return {
        "schedule": body,
        "info": info,
        "fires": info["recent_actions"][-FIRES_SHOWN:],
        "buffered": info["buffered_actions"],
        "upcoming": info["next_action_times"][:FIRES_SHOWN],
        "words": info["in_words"],
        "spec": json.dumps(body["spec"], indent=2, ensure_ascii=False),
    }


def agenda(found: Sequence[Body], now_ms: int) -> list[dict[str, Any]]:
    """The next fire of each schedule that comes in the next hours: position in per cent, and its name."""
    window = AGENDA_HOURS * 3_600_000
    rows = []
    for each in found:
        at = moment_ms(each["next_fire_at"])
        if at is not None and 0 <= at - now_ms <= window and not each["paused"]:
            rows.append(
                {
                    "x": round(100 * (at - now_ms) / window, 2),
                    "name": each["schedule_id"],
                    "at": each["next_fire_at"],
                }
            )
    return sorted(rows, key=lambda row: row["x"])[:20]


def _sentence(found: Sequence[Body], now_ms: int) -> str:
    if not found:
        return ""
    paused = sum(1 for each in found if each["paused"])
    failed = sum(1 for each in found if each["failures_count"])
    parts = [f"{paused} of {len(found)} paused" if paused else "None is paused"]
    if failed:
        parts.append(f"{failed} failed at least once")
    soon = min((each["next_fire_at"] for each in found if each["next_fire_at"]), default=None)
    first = "" if soon is None else f" The next one fires {ago(soon, now_ms)}."
    return f"{', '.join(parts)}.{first}"


async def dialog_of(view: View) -> Values:
    schedule_id, act = view.path["schedule_id"], _act(view.path["act"])
    body = await view.read("describe_schedule", None, schedule_id=schedule_id)
    address = link("schedules", schedule_id, "act", act, namespace=view.namespace)
    fields: list[DialogField] = []
    options = tuple((each, each or f"as declared: {body['overlap_policy']}") for each in OVERLAPS)
    if act == "backfill":
        fields += [
            DialogField("start", "From, UTC", view.query.get("start", ""), "2026-01-31T00:00:00Z", "text"),
            DialogField("end", "To, UTC", view.query.get("end", ""), "2026-02-01T00:00:00Z", "text"),
        ]
    if act in ("trigger", "backfill"):
        fields.append(
            DialogField("overlap", "If a run is open", view.query.get("overlap", ""), options=options)
        )
    return dialog(
        f"{act.capitalize()} {schedule_id}",
        f"{act.capitalize()} {schedule_id}",
        address,
        address,
        [Effect(_effect(act, body), "warn" if act in ("pause", "backfill", "delete") else "")],
        fields=fields,
        given=view.query,
        command=("schedule", act, schedule_id, *_options(act, view.query)),
        takes_reason=act in ("pause", "resume"),
        reason_option="--note",
    )


def _options(act: str, query: Mapping[str, str]) -> Iterator[str]:
    """The options of the command, as far as they were entered."""
    if act == "backfill":
        yield from ("--from", query.get("start") or "TIME", "--to", query.get("end") or "TIME")
    if act in ("trigger", "backfill") and query.get("overlap"):
        yield from ("--overlap", query["overlap"])
    if act == "delete":
        yield "--yes"


def _effect(act: str, body: Body) -> str:
    running = body["info"]["running_count"]
    open_runs = f"{running} of its runs {'is' if running == 1 else 'are'} open and go on."
    match act:
        case "pause":
            return f"It fires no more until it is resumed. {open_runs}"
        case "resume":
            return "It fires again, from the next moment on."
        case "trigger":
            overlap = body["overlap_policy"]
            return f"It fires once, now. {open_runs} If a run is open, the overlap policy decides: {overlap}."
        case "delete":
            return f"It is gone with the record of its fires, and fires no more. {open_runs}"
        case _:
            return "It fires for each of its moments in this range, as if they came now."


async def carry_out(act: Act) -> Outcome:
    schedule_id, name = act.path["schedule_id"], _act(act.path["act"])
    body: Body
    match name:
        case "pause" | "resume":
            body = {"note": act.text("reason")}
        case "delete":
            await act.change("delete_schedule", None, schedule_id=schedule_id)
            return Outcome(f"{schedule_id} is deleted.", go_to=link("schedules", namespace=act.namespace))
        case "trigger":
            body = {"overlap_policy": act.text("overlap")}
        case _:
            start, end = act.text("start"), act.text("end")
            if start is None or end is None:
                raise field_error("start" if start is None else "end", "is missing")
            body = {"start_time": start, "end_time": end, "overlap_policy": act.text("overlap")}
    answer = await act.change(f"{name}_schedule", body, schedule_id=schedule_id)
    outcome = f": {answer['outcome']}" if answer.get("outcome") else ""
    return Outcome(f"{schedule_id}: {name} done{outcome}.")


async def bulk_dialog(view: View) -> Values:
    """Which schedules a query finds, and what would become of them."""
    act, query = _act(view.path["act"], BULK), view.query.get("query", "").strip()
    asked = {"page_size": str(PAGE_SIZE)} | ({"query": query} if query else {})
    body = await view.read("list_schedules", asked)
    found, more = body["schedules"], body.get("next_page_token")
    names = ", ".join(each["schedule_id"] for each in found[:5])
    count = f"{'More than ' if more else ''}{len(found)} {'schedule' if len(found) == 1 else 'schedules'}"
    pauses = "They fire no more until they are resumed; runs that they started go on."
    effect = f"{count}: {names}{', …' if len(found) > 5 else ''}. " + (
        pauses if act == "pause" else "They fire again."
    )
    address = link("schedules", "bulk", act, namespace=view.namespace)
    return dialog(
        f"{act.capitalize()} schedules",
        f"{act.capitalize()} all that match",
        address,
        address,
        [
            Effect(
                effect if found else "No schedule matches: nothing would happen.",
                "warn" if act == "pause" else "",
            )
        ],
        fields=[DialogField("query", "Which", query, "TaskQueue = 'reports'", "text")],
        given=view.query,
        command=("schedule", "batch", act, "--query", query or "QUERY", "--yes"),
        reason_option="--note",
    )


async def change_all(act: Act) -> Outcome:
    """Pause or resume all that match, in portions, each of which commits by itself."""
    operation, query = _act(act.path["act"], BULK), act.text("query")
    if query is None:
        raise field_error("query", "is missing: which schedules?")
    acted = failed = 0
    token = None
    for _ in range(BULK_CALLS_MAX):
        body = {"operation": operation, "query": query, "note": act.text("reason"), "token": token}
        answer = await act.change("batch_schedules", body)
        acted, failed, token = acted + answer["acted"], failed + answer["failed"], answer["next_token"]
        if token is None:
            break
    rest = " More match: do it again for them." if token is not None else ""
    refused = f" {failed:,} refused it." if failed else ""
    return Outcome(f"{operation.capitalize()}d: {acted:,} schedules.{refused}{rest}")


def _act(name: str, known: Sequence[str] = ACTS) -> str:
    if name not in known:
        raise NotFound(Reason.NOT_FOUND, f"There is no action {name!r}.")
    return name
