"""Shows the whole life of a workflow in a few seconds, on a server of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from penstock.cli.connection import Connection, Target
from penstock.cli.contents import opened
from penstock.cli.dev import TOKEN_FILE, address, dev_overrides, prepare
from penstock.cli.exits import Ended, Unreachable, say
from penstock.cli.grammar import Reach, Verb
from penstock.cli.session import Session
from penstock.cli.workflow.history import draw_history, read_history

QUEUE = "demo"
WORKFLOW_TYPE = "demo.greeting"
ACTIVITY_TYPE = "demo.compose"
WORKER = "demo-worker"
_START_SECONDS = 30.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 5


@click.command("demo", cls=Verb, reach=Reach.HERE, example="penstock demo --name Ada")
@click.option("--name", "greeted", default="Ada", show_default=True, metavar="TEXT", help="Whom to greet.")
@click.pass_obj
def demo(session: Session, greeted: str) -> None:
    """Run a small workflow from start to end on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        say("Starting a server with an empty database …")
        with running_server(Path(directory)) as connection:
            greet(session, connection, greeted)
    say("The server is stopped and its data removed. Keep one running with `penstock dev`.")


def greet(session: Session, connection: Connection, greeted: str) -> None:
    """Play client and worker against a server, and show the history of what happened."""
    say("A client starts a workflow …")
    body = {"workflow_type": WORKFLOW_TYPE, "task_queue": QUEUE, "input": [greeted]}
    started = connection.post("workflows", body=body).body
    say(f"A worker registers on the queue and runs {started['workflow_id']} …")
    work(connection)
    described = connection.get("workflows", started["workflow_id"]).body
    if described.get("status") != "completed":
        raise Ended("demo_failed", f"The workflow is {described.get('status')} and should be completed.")
    say("Done. This is its history:")
    history = read_history(connection, started["workflow_id"], started["run_id"], None)
    session.show(history, lambda screen, body: draw_history(screen, body, described))


def work(connection: Connection) -> None:
    """Do what a worker does, once: plan, run the activity, finish with its result."""
    registration = {"worker_id": WORKER, "task_queue": QUEUE, "runtime": "python"}
    connection.post("worker", "register", body=registration)
    plan = _poll(connection, "workflow-tasks")
    activity = {
        "type": "schedule_activity",
        "activity_type": ACTIVITY_TYPE,
        "queue": QUEUE,
        "arguments": plan["arguments"],
    }
    _finish_workflow_task(connection, plan, activity)
    task = _poll(connection, "activity-tasks")
    greeting = f"Hello, {opened(task['arguments'])[0]}!"
    outcome = {
        "activity_attempt_id": task["activity_attempt_id"],
        "lease_owner": task.get("lease_owner") or WORKER,
        "result": _envelope(greeting),
    }
    connection.post("worker", "activity-tasks", task["task_id"], "complete", body=outcome)
    end = _poll(connection, "workflow-tasks")
    done = next(event for event in end["history_events"] if event["event_type"] == "ActivityCompleted")
    _finish_workflow_task(connection, end, {"type": "complete_workflow", "result": done["payload"]["result"]})
    connection.delete("worker", "registrations", WORKER)


def _poll(connection: Connection, kind: str) -> dict[str, Any]:
    body = {"worker_id": WORKER, "task_queue": QUEUE, "timeout_seconds": _POLL_SECONDS}
    answer = connection.post("worker", kind, "poll", body=body).body
    task = answer.get("task")
    if not isinstance(task, dict):
        raise Ended(
            "demo_failed", f"No task came although one should: the poll says {answer.get('poll_status')}."
        )
    return task


def _finish_workflow_task(connection: Connection, task: dict[str, Any], command: dict[str, Any]) -> None:
    body = {
        "lease_owner": task.get("lease_owner") or WORKER,
        "workflow_task_attempt": task["workflow_task_attempt"],
        "commands": [command],
    }
    connection.post("worker", "workflow-tasks", task["task_id"], "complete", body=body)


def _envelope(value: str) -> dict[str, str]:
    from penstock.wire.payloads import encode

    return encode(value).envelope()


@contextmanager
def running_server(directory: Path) -> Iterator[Connection]:
    """A server of our own on a free port, stopped at the end; it takes no settings from the environment."""
    prepare(directory)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("DW_")}
    environ |= dev_overrides(directory, environ) | {"DW_PORT": str(_free_port())}
    log = directory / "server.log"
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "server", "start"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory
        )
    try:
        token = (directory / TOKEN_FILE).read_text().strip()
        connection = Connection(Target.parse(address("127.0.0.1", int(environ["DW_PORT"]))), token=token)
        _wait_until_serving(connection, process, log)
        yield connection
    finally:
        _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_serving(connection: Connection, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if connection.get("health", accept=(503,)).body.get("status") == "serving":
                return
        except Unreachable:
            pass
        time.sleep(0.05)
    said = log.read_text(errors="replace").strip().splitlines()[-10:]
    raise Ended("demo_failed", "The server did not start. Its last words:", notes=said)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
