"""Commands for workers, the registered processes that do the work."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, ScreenCell, plain
from penstock.cli.transport.session import CliSession
from penstock.cli.workers.run_command import WorkerNoun, run_app

NO_WORKERS = (
    "No workers yet. Start one that connects to this server, with `penstock worker MODULE:APP` or with"
    " `Worker(client, task_queue=…)` from the SDK, then try again."
)


@click.group("worker", cls=WorkerNoun, example="penstock worker myapp.instance:app")
def worker() -> None:
    """Run the workers of an app, list registered workers, and remove lost ones."""


worker.add_command(run_app)


@worker.verb("list", example="penstock worker list --status active")
@click.option("--task-queue", metavar="NAME", help="Only workers of this queue.")
@click.option("--status", "state", type=click.Choice(["active", "draining", "stale"]), help="Only these.")
@click.pass_obj
def list_workers(session: CliSession, task_queue: str | None, state: str | None) -> None:
    """List the workers of the namespace, most recently seen first."""
    session.show(
        session.connect().get("workers", query={"task_queue": task_queue, "status": state}), _draw_list
    )


@worker.verb("describe", example="penstock worker describe payments-python-1")
@click.argument("worker_id")
@click.pass_obj
def describe_worker(session: CliSession, worker_id: str) -> None:
    """Show one worker: its queue, build, types and free slots."""
    session.show(session.connect().get("workers", worker_id), _draw_one)


@worker.verb("deregister", example="penstock worker deregister payments-python-1")
@click.argument("worker_id")
@click.pass_obj
def deregister_worker(session: CliSession, worker_id: str) -> None:
    """Remove a worker's registration (needs the admin role)."""
    answer = session.connect().delete("workers", worker_id)
    echo_err(f"Deregistered the worker {worker_id}.")
    session.show(answer, _draw_outcome)


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body.get("workers") or [],
        "worker=worker_id:name, task queue, status:status, runtime, build=build_id, workflows, "
        "activities, last seen=last_heartbeat_at:when",
        empty=NO_WORKERS,
        workflows=lambda row: slots(row, "workflow"),
        activities=lambda row: slots(row, "activity"),
    )


def slots(row: dict[str, Any], kind: str) -> ScreenCell:
    """Free slots of the declared ones, such as `3 of 8 free`."""
    total = row.get(f"max_concurrent_{kind}_tasks")
    free = (row.get("task_slots") or {}).get(f"{kind}_available", row.get(f"available_{kind}_slots"))
    return plain(total) if free is None else ScreenCell(f"{free} of {total} free")


def _draw_one(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(
        body,
        "worker=worker_id:name, status:status, namespace, task queue, runtime, SDK=sdk_version, "
        "build=build_id, workflow slots, activity slots, workflow types, activity types, "
        "registered=registered_at:exact, last seen=last_heartbeat_at:exact",
        workflow_slots=lambda body: slots(body, "workflow"),
        activity_slots=lambda body: slots(body, "activity"),
        workflow_types=lambda body: _types(body.get("supported_workflow_types")),
        activity_types=lambda body: _types(body.get("supported_activity_types")),
    )
    metrics = body.get("process_metrics")
    if isinstance(metrics, dict) and metrics:
        screen.heading("Process")
        screen.facts([(str(key), plain(value)) for key, value in metrics.items()])


def _types(types: object) -> ScreenCell:
    return plain(types) if types else ScreenCell("any", "dim")


def _draw_outcome(screen: Screen, body: dict[str, Any]) -> None:
    screen.fields(body, "worker=worker_id:name, outcome")
