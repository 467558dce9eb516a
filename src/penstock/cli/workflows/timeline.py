"""The command that draws the timeline of a run: a bar per step, with its waits and their causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, plain, status
from penstock.cli.output.times import length
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.run_options import path_of, run_option, same_run

BAR = 48
_LABEL_MAX = 36
_SIGNS = {"running": "█", "failed": "X", "held": "▒", "design": "·"}
_LEGEND = "█ running   X failed attempt   ▒ held back   · waiting by design   | retry or signal"


@verb("timeline", example="penstock workflow timeline order-1001")
@click.argument("workflow_id")
@run_option
@click.option("--type", "type_", metavar="TYPE", help="Only steps of this type: opens a folded line.")
@click.option(
    "--after-step", type=click.IntRange(1), metavar="N", help="With --type: only steps after this one."
)
@click.pass_obj
def show_timeline(
    session: CliSession, workflow_id: str, run_id: str | None, type_: str | None, after_step: int | None
) -> None:
    """Draw what a run did over time: what ran, what waited and for what, and where its time went."""
    if after_step is not None and type_ is None:
        raise click.UsageError("--after-step needs --type.")
    query = {"type": type_, "after_step": None if after_step is None else str(after_step)}
    answer = session.connect().get(*path_of(workflow_id, run_id), "timeline", query=query)
    session.show(answer, _draw)
    following = answer.body.get("next_after_step")
    if not session.json and following is not None:
        named = same_run(workflow_id, run_id)
        more = command_hint(
            "workflow", "timeline", *named, "--type", str(type_), "--after-step", str(following)
        )
        echo_err(f"There are more steps of this type. See them with {more}.")


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    lanes: Sequence[Mapping[str, Any]] = body["lanes"]
    total = max(1, int(body["length_ms"]))
    screen.facts(
        [
            ("Workflow", ScreenCell(str(body["workflow_id"]), "bold")),
            ("Run", plain(body["run_id"])),
            ("Status", status(body["status"])),
            ("Length", ScreenCell(length(total / 1000))),
            *_spent(body["time_spent"]),
        ]
    )
    if not body["complete"]:
        echo_err("The history is too long to be shown in full: this is its beginning.")
    if not lanes:
        echo_err("No step matches.")
        return
    screen.heading("Timeline")
    labels = [_cut(str(lane["label"])) for lane in lanes]
    widths = (max(map(len, labels)), BAR)
    for label, lane in zip(labels, lanes, strict=True):
        bar = ScreenCell("".join(_bar(lane, total)))
        screen.row([ScreenCell(label, "bold"), bar, ScreenCell(_facts(lane))], widths)
    echo_err(_LEGEND)


def _spent(spent: Mapping[str, Any]) -> list[tuple[str, ScreenCell]]:
    waits: Mapping[str, int] = spent["waits"]
    causes = ", ".join(f"{cause} {length(ms / 1000)}" for cause, ms in waits.items())
    return [
        ("Held back", ScreenCell(length(spent["held_back_ms"] / 1000), "yellow")),
        ("Running", ScreenCell(length(spent["running_ms"] / 1000), "cyan")),
        ("By design", ScreenCell(length(spent["by_design_ms"] / 1000))),
        ("Waited for", plain(causes)),
    ]


def _bar(lane: Mapping[str, Any], total: int) -> list[str]:
    cells = [" "] * BAR
    for span in lane["spans"]:
        first = min(BAR - 1, span["from"] * BAR // total)
        last = min(BAR - 1, max(first, -(-span["to"] * BAR // total) - 1))
        cells[first : last + 1] = [_sign(span)] * (last - first + 1)
    for tick in lane.get("ticks", ()):
        cells[min(BAR - 1, tick["at"] * BAR // total)] = "|"
    return cells


def _sign(span: Mapping[str, Any]) -> str:
    if span["state"] == "waiting":
        return _SIGNS["design" if span.get("by_design") else "held"]
    return _SIGNS["failed" if span.get("outcome") in ("failed", "timed_out") else "running"]


def _facts(lane: Mapping[str, Any]) -> str:
    """How long it waited, by cause, and ran."""
    waited: dict[str, int] = {}
    ran = 0
    for span in lane["spans"]:
        took = span["to"] - span["from"]
        if span["state"] == "waiting":
            waited[span["cause"]] = waited.get(span["cause"], 0) + took
        else:
            ran += took
    if lane.get("folded"):
        return ""
    facts = [f"waited {length(ms / 1000)} ({cause})" for cause, ms in waited.items()]
    if ran or any(span["state"] == "running" for span in lane["spans"]):
        facts.append(f"ran {length(ran / 1000)}")
    outcome = lane.get("outcome")
    if outcome not in (None, "completed"):
        facts.append(str(outcome))
    elif lane.get("is_open"):
        facts.append("open")
    return ", ".join(facts)


def _cut(label: str) -> str:
    return label if len(label) <= _LABEL_MAX else f"{label[: _LABEL_MAX - 1]}…"
