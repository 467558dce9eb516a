"""Commands for the server's background duties: show what is due, and run a pass now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import given
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.cli.transport.session import CliSession

_RUN_NOW = click.option("--run", "run_now", is_flag=True, help="Do it now, instead of only showing it.")
_LIMIT = click.option(
    "--limit", type=click.IntRange(1, 100), metavar="N", help="Most items to show or act on."
)
_FAILURE_LISTS = ("existing_task_failures", "missing_run_failures", "command_contract_failures")


@noun("system", example="penstock system retention")
def system() -> None:
    """Show what the server's background duties would do now, and run them (needs the admin role)."""


@system.verb("retention", example="penstock system retention --run --limit 100")
@_RUN_NOW
@_LIMIT
@click.pass_obj
def retention(session: CliSession, run_now: bool, limit: int | None) -> None:
    """Show which closed runs are past the retention of the namespace; with --run delete them."""
    _duty(session, "retention", run_now, limit, _draw_retention)


@system.verb("activity-timeouts", example="penstock system activity-timeouts --run")
@_RUN_NOW
@_LIMIT
@click.pass_obj
def activity_timeouts(session: CliSession, run_now: bool, limit: int | None) -> None:
    """Show which activities are past a deadline; with --run end or retry them."""
    _duty(session, "activity-timeouts", run_now, limit, _draw_timeouts)


def _duty(
    session: CliSession,
    duty: str,
    run_now: bool,
    limit: int | None,
    draw: Callable[[Screen, dict[str, Any]], None],
) -> None:
    """Show what a background duty would do, or run it."""
    if not run_now:
        session.show(session.connect().get("system", duty, query={"limit": limit}), draw)
        return
    answer = session.connect().post("system", duty, "pass", body=given(limit=limit))
    session.show(answer, _draw_results)
    _end_if_failed(answer.body)


@system.verb("repair", example="penstock system repair --run")
@_RUN_NOW
@click.option("--workflow", "instance_id", metavar="ID", help="Only this workflow.")
@click.option("--run-id", "run_ids", multiple=True, metavar="RUN", help="Only this run; repeat for more.")
@click.pass_obj
def repair(session: CliSession, run_now: bool, instance_id: str | None, run_ids: tuple[str, ...]) -> None:
    """Show which runs and tasks are stuck; with --run repair them."""
    if not run_now:
        if instance_id or run_ids:
            raise click.UsageError("--workflow and --run-id choose what to repair; they go with --run.")
        session.show(session.connect().get("system", "repair"), _draw_candidates)
        return
    body = given(instance_id=instance_id, run_ids=list(run_ids) or None)
    answer = session.connect().post("system", "repair", "pass", body=body)
    session.show(answer, _draw_repaired)
    _end_if_failed(answer.body)


@system.verb("metrics", example="penstock system metrics")
@click.pass_obj
def metrics(session: CliSession) -> None:
    """Show the counts of runs, tasks, activities and workers that operators watch."""
    session.show(session.connect().get("system", "operator-metrics"), _draw_metrics)


def _end_if_failed(body: dict[str, Any]) -> None:
    failed = int(body.get("failed") or 0) + sum(len(body.get(each) or []) for each in _FAILURE_LISTS)
    if failed:
        raise CommandError(
            "pass_incomplete", f"{failed} could not be done.", "Read why above; the next pass tries again."
        )


def _draw_retention(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "namespace:name, retention, closed before=cutoff:exact, expired runs=expired_run_count, "
        "looked at, archive",
        retention=lambda body: f"{body.get('retention_days')} days",
        looked_at=_looked_at,
        archive=lambda body: _archive(body.get("archive")),
    )
    _draw_ids(screen, body.get("expired_run_ids") or [], "retention", "delete")


def _archive(archive: object) -> ScreenCell:
    if not isinstance(archive, dict):
        return plain(archive)
    if archive.get("trouble"):
        return ScreenCell(f"cannot be written, so nothing is deleted: {archive['trouble']}", "red")
    return ScreenCell("each run is exported before it is deleted" if archive.get("is_configured") else "none")


def _draw_timeouts(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(body, "expired=expired_count, looked at", looked_at=_looked_at)
    _draw_ids(screen, body.get("expired_execution_ids") or [], "activity-timeouts", "end")


def _looked_at(body: dict[str, Any]) -> str:
    more = "; there are more" if body.get("scan_pressure") else ""
    return f"at most {body.get('scan_limit')}{more}"


def _draw_ids(screen: Screen, ids: list[Any], verb: str, what: str) -> None:
    if not ids:
        echo_err("Nothing is due.")
        return
    screen.heading("Due")
    for each in ids:
        screen.line(name(each))
    echo_err(f"To {what} them now: {command_hint('system', verb, '--run')}.")


def _draw_results(screen: Screen, body: dict[str, Any]) -> None:
    counts = ("processed", "pruned", "enforced", "skipped", "failed")
    screen.facts([(each.capitalize(), plain(body.get(each))) for each in counts if each in body])
    screen.rows(
        [each for each in body.get("results") or [] if isinstance(each, dict)],
        "id:name, outcome:status, reason",
        "Each",
        empty="Nothing was due.",
        id=lambda each: each.get("run_id") or each.get("execution_id"),
    )


def _draw_candidates(screen: Screen, body: dict[str, Any]) -> None:
    found = body.get("candidates") or {}
    screen.fields(
        found,
        "stuck tasks=existing_task_candidates, runs without a task=missing_task_candidates, "
        "oldest task=oldest_task_candidate_created_at:exact, "
        "oldest run=oldest_missing_run_started_at:exact, looked at",
        looked_at=_looked_at,
    )
    if found.get("total_candidates"):
        echo_err(f"Set them going with {command_hint('system', 'repair', '--run')}.")
    else:
        echo_err("Nothing is stuck.")


def _draw_repaired(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "looked at=selected_total_candidates, tasks repaired=repaired_existing_tasks, "
        "runs given a task=repaired_missing_tasks, dispatched=dispatched_tasks",
    )
    for each in _FAILURE_LISTS:
        for failure in body.get(each) or []:
            screen.line(plain(failure))


def _draw_metrics(screen: Screen, body: dict[str, Any]) -> None:
    for group, counts in (body.get("operator_metrics") or {}).items():
        if isinstance(counts, dict) and counts:
            screen.heading(str(group).replace("_", " "))
            screen.facts([(str(each).replace("_", " "), plain(value)) for each, value in counts.items()])
