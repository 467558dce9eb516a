"""Commands for dispatch: explain the options of an activity, and check that workers serve its queue."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.dispatch.files import Sources, dispatch_options, print_warnings
from penstock.cli.grammar import noun
from penstock.cli.output.exits import Exit, RequestRefused, ServerUnreachable, echo_err
from penstock.cli.output.screen import Screen, ScreenCell, name, plain, status
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.cli.transport.connection import ServerConnection
    from penstock.dispatch.inspection.doctor import ClusterView, DoctorFinding
    from penstock.dispatch.inspection.explanation import DispatchExplanation, ExplainedValue

_WIDTH = 40
_OF_A_WORKER = (
    "worker_id",
    "status",
    "build_id",
    "supported_activity_types",
    "max_concurrent_activity_tasks",
)


@noun("dispatch", example="penstock dispatch explain act_llm_gen_text --handle claude-4.6-opus")
def dispatch() -> None:
    """Show where activities are routed, with which options, and which workers serve them."""


@dispatch.verb("explain", example="penstock dispatch explain resize --handle a100 --config dispatch.toml")
@click.argument("activity")
@click.option("--handle", "--key", "routing_key", metavar="KEY", help="The routing key of the call.")
@dispatch_options
@click.pass_obj
def explain_activity(session: CliSession, activity: str, routing_key: str | None, sources: Sources) -> None:
    """Show how a call would be dispatched: each value, its source, and the values it overrides."""
    from penstock.dispatch.inspection.explanation import explain

    if not activity.strip():
        raise click.UsageError("ACTIVITY is empty; name the activity whose dispatch is to be explained.")
    config = sources.load_or_exit(session)
    explanation = explain(config, activity, routing_key)
    pollers = _pollers(session, explanation.served_queue)
    if session.json:
        body = {**explanation.as_json(), "fingerprint": config.fingerprint, "pollers": pollers}
        show_json(json.dumps(body, ensure_ascii=False))
        return
    _draw_explanation(Screen(), explanation, pollers, config.fingerprint)


@dispatch.verb("doctor", example="penstock dispatch doctor --config dispatch.toml")
@dispatch_options
@click.pass_obj
def doctor(session: CliSession, sources: Sources) -> None:
    """Find queues without workers, undeclared routes and ineffective caps; exit code 1 if tasks would wait."""
    from penstock.dispatch.inspection.doctor import examine

    config = sources.load_or_exit(session)
    print_warnings(config)
    seen = _seen(session, config.known_queues())
    findings = examine(config, None if isinstance(seen, ServerUnreachable) else seen)
    if session.json:
        show_json(json.dumps({"findings": [_as_json(each) for each in findings]}, ensure_ascii=False))
    elif findings:
        Screen().table(["finding", "about", "what", "what to do"], [_row(each) for each in findings])
    if isinstance(seen, ServerUnreachable):
        echo_err("Only the configuration was examined, not its workers.")
        raise seen
    if any(finding.is_serious for finding in findings):
        raise click.exceptions.Exit(int(Exit.REFUSED))
    echo_err("Every queue that the configuration routes to is served.")


def _pollers(session: CliSession, queue: str) -> list[dict[str, Any]] | None:
    """The workers of a queue; None and a note if no server can be reached."""
    connection = replace(session.connect(), on_refusal=None)
    try:
        answer = connection.get("workers", query={"task_queue": queue})
    except (ServerUnreachable, RequestRefused) as error:
        echo_err(f"Who polls {queue} is not known: {error.message}")
        return None
    return [{key: row.get(key) for key in _OF_A_WORKER} for row in answer.body.get("workers") or []]


def _draw_explanation(
    screen: Screen, explanation: DispatchExplanation, pollers: list[dict[str, Any]] | None, fingerprint: str
) -> None:
    screen.line(
        ScreenCell(f"dispatch  {explanation.activity}  routing_key={explanation.routing_key}", "bold")
    )
    for value in explanation.values:
        _draw_value(screen, value)
    for cut in explanation.cuts:
        screen.line(
            ScreenCell(
                f"cut: {cut.name} is {cut.effective} in force, not {cut.asked}: {cut.why} ends it", "yellow"
            )
        )
    for warning in explanation.warnings:
        screen.line(ScreenCell(f"warning: {warning}", "yellow"))
    screen.line(ScreenCell(f"fingerprint: {fingerprint}", "dim"))
    if pollers is not None:
        _draw_pollers(screen, explanation, pollers)


def _draw_value(screen: Screen, value: ExplainedValue) -> None:
    cell = f"{value.name}={value.won.value}"
    padded = cell.ljust(_WIDTH) if len(cell) <= _WIDTH - 2 else f"{cell}  "
    screen.line(ScreenCell(f"        {padded}({value.won.source})  {value.won.origin}".rstrip()))
    for lost in reversed(value.lost):
        screen.line(ScreenCell(f"            over {lost.value}  ({lost.source})  {lost.origin}", "dim"))


def _draw_pollers(screen: Screen, explanation: DispatchExplanation, pollers: list[dict[str, Any]]) -> None:
    queue = explanation.served_queue
    if not pollers:
        screen.line(ScreenCell(f"pollers: no worker serves {queue} now", "red"))
        return
    screen.heading(f"Workers of {queue}")
    screen.table(
        ["worker", "status", "takes it"],
        [
            [name(row["worker_id"]), status(row["status"]), plain(_takes(row, explanation.activity))]
            for row in pollers
        ],
    )


def _takes(row: dict[str, Any], activity: str) -> bool:
    types = row.get("supported_activity_types")
    return row.get("max_concurrent_activity_tasks") != 0 and (not types or activity in types)


def _seen(session: CliSession, queues: list[str]) -> ClusterView | ServerUnreachable:
    """The server's workers and queues, or why it cannot be reached."""
    from penstock.dispatch.inspection.doctor import ClusterView, WorkerView

    connection = session.connect()
    try:
        workers = connection.get("workers", query={"status": "active"}).body.get("workers") or []
        rates = {queue: _rate(connection, queue) for queue in queues}
    except ServerUnreachable as error:
        return error
    return ClusterView(
        [
            WorkerView(
                str(row.get("worker_id")),
                str(row.get("task_queue")),
                frozenset(row.get("supported_activity_types") or ()),
                row.get("max_concurrent_activity_tasks") != 0,
            )
            for row in workers
        ],
        rates,
    )


def _rate(connection: ServerConnection, queue: str) -> Any:
    from penstock.dispatch.inspection.doctor import QueueRateView, UnservedTasks

    body = connection.get("task-queues", queue, accept=(404,)).body
    stats = body.get("stats") or {}
    rate = (stats.get("activity_tasks") or {}).get("rate") or {}
    return QueueRateView(
        limit=rate.get("limit"),
        source=rate.get("source"),
        worker_limit=(rate.get("worker_caps") or {}).get("limit"),
        ready=stats.get("approximate_backlog_count") or 0,
        unserved=[
            UnservedTasks(str(row.get("type")), str(row.get("message")), int(row.get("ready_count") or 0))
            for kind in ("workflow_tasks", "activity_tasks")
            for row in ((body.get("admission") or {}).get(kind) or {}).get("unserved") or []
        ],
    )


def _as_json(finding: DoctorFinding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "message": finding.message,
        "advice": finding.advice,
        "is_serious": finding.is_serious,
    }


def _row(finding: DoctorFinding) -> list[ScreenCell]:
    style = "red" if finding.is_serious else "yellow"
    return [
        ScreenCell(finding.kind, style),
        name(finding.subject),
        plain(finding.message),
        plain(finding.advice),
    ]
