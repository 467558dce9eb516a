"""Commands for task queues: pollers, backlog, limits and worker builds."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun
from penstock.cli.inputs import LimitParam, SpanParam
from penstock.cli.limits.admission import draw_admission
from penstock.cli.limits.options import for_option, reason_option
from penstock.cli.limits.queue_config import BURST_SECONDS_MAX, KINDS, config
from penstock.cli.limits.queue_limits import limits, pause, resume
from penstock.cli.limits.queue_rate import set_rate
from penstock.cli.matching.backlog import draw_backlog
from penstock.cli.output.columns import lookup
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, ScreenCell, plain
from penstock.cli.output.times import span
from penstock.cli.transport.session import CliSession
from penstock.cli.workers.commands import slots


@noun("task-queue", example="penstock task-queue describe payments")
def task_queue() -> None:
    """Inspect task queues, change their limits and fairness, and roll out worker builds."""


task_queue.add_command(config)
task_queue.add_command(limits)
_KIND = click.option("--type", "--task-queue-type", "kind", type=KINDS, help="Only one kind of its tasks.")
_UNVERSIONED = click.option("--unversioned", is_flag=True, help="Workers without a build id.")
_KEY = click.option("--fairness-key", "key", metavar="KEY", help="Only this fairness key.")


@task_queue.verb("list", example="penstock task-queue list")
@click.pass_obj
def list_queues(session: CliSession) -> None:
    """List the task queues of the namespace with their backlogs."""
    session.show(session.connect().get("task-queues"), _draw_list)


@task_queue.verb("describe", example="penstock task-queue describe payments --json | jq .admission")
@click.argument("queue")
@click.pass_obj
def describe_queue(session: CliSession, queue: str) -> None:
    """Show a queue's admission, pollers, counts, backlog by priority and key, and current leases."""
    session.show(session.connect().get("task-queues", queue), _draw_one)


@task_queue.verb("build-ids", example="penstock task-queue build-ids payments")
@click.argument("queue")
@click.pass_obj
def list_builds(session: CliSession, queue: str) -> None:
    """List the builds of a queue's workers and the state of their rollout."""
    session.show(session.connect().get("task-queues", queue, "build-ids"), _draw_builds)


@task_queue.verb("drain", example="penstock task-queue drain payments --build-id 2026-04-22")
@click.argument("queue")
@click.option("--build-id", metavar="BUILD", help="The build to drain.")
@_UNVERSIONED
@click.pass_obj
def drain_build(session: CliSession, queue: str, build_id: str | None, unversioned: bool) -> None:
    """Stop dispatching tasks to a build; its workers finish what they hold."""
    _roll(session, queue, "drain", _cohort(build_id, unversioned))


@task_queue.verb("pause", example='penstock task-queue pause payments --for 30m --reason "stuck"')
@click.argument("queue")
@_KIND
@_KEY
@for_option
@reason_option
@click.pass_obj
def pause_queue(
    session: CliSession,
    queue: str,
    kind: str | None,
    key: str | None,
    seconds: int | None,
    reason: str | None,
) -> None:
    """Pause dispatch of a queue, or of one fairness key; running tasks continue."""
    pause(session, queue, kind, key, seconds, reason)


@task_queue.verb("resume", example="penstock task-queue resume payments")
@click.argument("queue")
@_KIND
@_KEY
@click.option("--build-id", metavar="BUILD", help="A drained build, instead of the queue.")
@click.option("--unversioned", is_flag=True, help="Drained workers without a build id.")
@reason_option
@click.pass_obj
def resume_queue(
    session: CliSession,
    queue: str,
    kind: str | None,
    key: str | None,
    build_id: str | None,
    unversioned: bool,
    reason: str | None,
) -> None:
    """Resume a paused queue or fairness key, or a drained build."""
    if build_id is None and not unversioned:
        resume(session, queue, kind, key, reason)
        return
    if kind or key or reason:
        raise click.UsageError(
            "A build is resumed for the whole queue: leave out --type, --fairness-key and --reason."
        )
    _roll(session, queue, "resume", _cohort(build_id, unversioned))


@task_queue.verb("set-rate", example='penstock task-queue set-rate payments 20 --reason "their quota"')
@click.argument("queue")
@click.argument("rate", type=LimitParam(), metavar="F|default")
@click.option(
    "--burst-seconds",
    "burst",
    type=SpanParam(BURST_SECONDS_MAX),
    help="Burst, as seconds of the rate; 1 if unset.",
)
@reason_option
@click.pass_obj
def set_queue_rate(session: CliSession, queue: str, rate: Any, burst: Any, reason: str | None) -> None:
    """Set the most activities dispatched per second, overriding the workers; 0 pauses, `default` unsets."""
    set_rate(session, queue, rate, burst, reason)


@task_queue.verb("promote", example="penstock task-queue promote payments --build-id 2026-04-29")
@click.argument("queue")
@click.option("--build-id", metavar="BUILD", help="The build to promote.")
@_UNVERSIONED
@click.pass_obj
def promote_build(session: CliSession, queue: str, build_id: str | None, unversioned: bool) -> None:
    """Select the build on which new workflows start."""
    _roll(session, queue, "promote", _cohort(build_id, unversioned))


_DONE = {"drain": "Draining", "resume": "Resumed", "promote": "Promoted"}


def _roll(session: CliSession, queue: str, step: str, build_id: str | None) -> None:
    answer = session.connect().post("task-queues", queue, "build-ids", step, body={"build_id": build_id})
    echo_err(f"{_DONE[step]} {build_id or 'the unversioned workers'} on {queue}.")
    session.show(answer, _draw_rollout)


def _cohort(build_id: str | None, unversioned: bool) -> str | None:
    if unversioned == bool(build_id):
        raise click.UsageError("Name the cohort with either --build-id BUILD or --unversioned.")
    return build_id


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body.get("task_queues") or [],
        "task queue=name:name, ready=stats.approximate_backlog_count, oldest, leased, pollers, "
        "workflow tasks=admission.workflow_tasks.status:status, "
        "activity tasks=admission.activity_tasks.status:status, queries=admission.query_tasks.status:status",
        empty="No task queues yet. A queue appears with its first worker or its first workflow.",
        oldest=lambda row: _age(row.get("stats") or {}),
        leased=lambda row: sum(
            lookup(row, f"stats.{kind}_tasks.leased_count") or 0 for kind in ("workflow", "activity")
        ),
        pollers=lambda row: _poller_count(row.get("stats") or {}),
    )


def _age(stats: dict[str, Any]) -> ScreenCell:
    seconds = stats.get("approximate_backlog_age_seconds")
    return ScreenCell(span(seconds)) if isinstance(seconds, int | float) and seconds > 0 else plain(None)


def _poller_count(stats: dict[str, Any]) -> ScreenCell:
    pollers = stats.get("pollers") or {}
    active, stale = pollers.get("active_count") or 0, pollers.get("stale_count") or 0
    return ScreenCell(
        f"{active} active, {stale} stale" if stale else f"{active} active", "" if active else "red"
    )


def _draw_one(screen: Screen, body: dict[str, Any]) -> None:
    stats = body.get("stats") or {}
    screen.fields(
        body,
        "task queue=name:name, namespace, ready=stats.approximate_backlog_count, oldest ready, last minute, pollers",
        oldest_ready=lambda _: _oldest(stats),
        last_minute=lambda _: _last_minute(stats),
        pollers=lambda _: _poller_count(stats),
    )
    draw_admission(screen, body.get("admission") or {})
    _draw_counts(screen, stats)
    _draw_pollers(screen, body.get("pollers") or [])
    _draw_leases(screen, body.get("current_leases") or [])


def _oldest(stats: dict[str, Any]) -> ScreenCell:
    oldest = stats.get("oldest_ready_task")
    if not isinstance(oldest, dict):
        return plain(None)
    age = oldest.get("age_seconds")
    waited = f", waiting for {span(age)}" if isinstance(age, int | float) else ""
    return ScreenCell(f"{oldest.get('task_type')} task of {oldest.get('workflow_id')}{waited}")


def _last_minute(stats: dict[str, Any]) -> str:
    added, sent = stats.get("tasks_added_last_minute"), stats.get("tasks_dispatched_last_minute")
    return f"{added or 0} added, {sent or 0} dispatched"


def _draw_counts(screen: Screen, stats: dict[str, Any]) -> None:
    kinds = [(kind, stats.get(f"{kind}_tasks")) for kind in ("workflow", "activity")]
    rows = [(kind, counts) for kind, counts in kinds if isinstance(counts, dict)]
    screen.rows(
        [{"kind": kind, **counts} for kind, counts in rows],
        "kind:name, ready=ready_count, leased=leased_count, expired leases=expired_lease_count, "
        "added/min=added_last_minute, dispatched/min=dispatched_last_minute",
        "Tasks",
    )
    for kind, counts in rows:
        draw_backlog(screen, kind, counts)


def _draw_pollers(screen: Screen, pollers: list[dict[str, Any]]) -> None:
    screen.rows(
        pollers,
        "worker=worker_id:name, status:status, runtime, build=build_id, workflow slots, activity slots, "
        "last seen=last_heartbeat_at:when",
        "Pollers",
        empty="No worker polls this queue. Start a worker with task_queue set to its name.",
        status=lambda row: "stale" if row.get("is_stale") else row.get("status"),
        workflow_slots=lambda row: slots(row, "workflow"),
        activity_slots=lambda row: slots(row, "activity"),
    )


def _draw_leases(screen: Screen, leases: list[dict[str, Any]]) -> None:
    screen.rows(
        leases,
        "task=task_id:name, kind=task_type, workflow=workflow_id, held by=lease_owner, attempt, expires",
        "Current leases",
        attempt=lambda row: row.get("workflow_task_attempt") or row.get("attempt_number"),
        expires=lambda row: ScreenCell(
            screen.when(row.get("lease_expires_at")).text, "red" if row.get("is_expired") else ""
        ),
    )


def _draw_builds(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body.get("build_ids") or [],
        "build:name, rollout=rollout_status:status, new starts=new_start_selected:bool, "
        "active=active_worker_count, draining=draining_worker_count, stale=stale_worker_count, "
        "runtimes, last seen=last_heartbeat_at:when",
        empty="No builds yet. They appear with the first worker that registers on this queue.",
        build=lambda row: row.get("build_id") or "(unversioned)",
    )


def _draw_rollout(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "task queue:name, build, intent=drain_intent:status, new starts=new_start_selected:bool, "
        "drained=drained_at:exact, promoted=promoted_at:exact, rolled back=rolled_back_at:exact",
        build=lambda body: body.get("build_id") or "(unversioned)",
    )
