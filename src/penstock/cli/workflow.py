"""Commands for workflows: start them, find them, read them, ask them, end them."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import click

from penstock.cli.connection import Answer, Connection
from penstock.cli.contents import opened
from penstock.cli.exits import Ended, say
from penstock.cli.grammar import noun
from penstock.cli.hints import to_type
from penstock.cli.inputs import Json, JsonObject, KeyValue, Seconds, arguments, given, pairs
from penstock.cli.paging import read_pages
from penstock.cli.screen import Screen, data, name, nothing_yet, plain, status
from penstock.cli.session import Session
from penstock.cli.standing import standing_options
from penstock.cli.timeline import draw_timeline

_UNHAPPY_ENDS = ("WorkflowFailed", "WorkflowTimedOut", "WorkflowCancelled", "WorkflowTerminated")
QUERY_SECONDS = 630.0
"""A little longer than any server lets a query wait for its worker."""
LIST_PAGE_MAX = 200
HISTORY_PAGE_MAX = 1000
LOOK_AGAIN_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""How long to wait between looks at a workflow that is not closed; the last one repeats."""

_RUN_ID = click.option("--run-id", "--run", metavar="RUN", help="This run instead of the newest.")
_REASON = click.option("--reason", metavar="TEXT", help="Why; kept in the history.")


@noun("workflow", example="penstock workflow start --type orders.fulfillment --task-queue orders")
def workflow() -> None:
    """Start workflows, find them, read their histories, ask them and end them."""


@workflow.verb(
    "start",
    example="penstock workflow start --type orders.fulfillment --id order-1001 \\\n"
    "    --task-queue orders --input '[\"order-1001\"]' --wait",
)
@click.option("--type", "workflow_type", required=True, metavar="TYPE", help="Workflow type to run.")
@click.option(
    "--id",
    "--workflow-id",
    "workflow_id",
    metavar="ID",
    help="Workflow id; the server makes one if left out.",
)
@click.option("--task-queue", "-t", metavar="NAME", help="Queue whose workers run it.")
@click.option(
    "--input",
    "values",
    type=Json(),
    multiple=True,
    metavar="JSON",
    help="One argument; repeat for more. A single JSON list is the whole argument list.",
)
@click.option("--business-key", metavar="TEXT", help="Your own name for it, found by `list --query`.")
@click.option("--memo", type=JsonObject(), metavar="JSON", help="A JSON object kept beside the workflow.")
@click.option(
    "--search-attribute",
    "attributes",
    type=KeyValue(),
    multiple=True,
    metavar="KEY=VALUE",
    help="What to find it by; repeat for more.",
)
@click.option(
    "--duplicate-policy",
    type=click.Choice(["fail", "use-existing"]),
    help="What to do when the id is in use.",
)
@click.option(
    "--execution-timeout", type=Seconds(), metavar="TIME", help="For all runs together: 90s, 15m, 2h."
)
@click.option("--run-timeout", type=Seconds(), metavar="TIME", help="For a single run.")
@standing_options
@click.option("--build-id", metavar="BUILD", help="Run only on workers of this build.")
@click.option("--wait", is_flag=True, help="Wait until it is closed, then print its result.")
@click.pass_obj
def start_workflow(
    session: Session,
    workflow_type: str,
    workflow_id: str | None,
    task_queue: str | None,
    values: tuple[Any, ...],
    business_key: str | None,
    memo: dict[str, Any] | None,
    attributes: tuple[tuple[str, Any], ...],
    duplicate_policy: str | None,
    execution_timeout: int | None,
    run_timeout: int | None,
    standing: dict[str, Any],
    build_id: str | None,
    wait: bool,
) -> None:
    """Start a workflow, and with --wait see it through."""
    body = given(
        workflow_type=workflow_type,
        workflow_id=workflow_id,
        task_queue=task_queue,
        input=arguments(values),
        business_key=business_key,
        memo=memo,
        search_attributes=pairs(attributes, "--search-attribute"),
        duplicate_policy=duplicate_policy,
        execution_timeout_seconds=execution_timeout,
        run_timeout_seconds=run_timeout,
        **standing,
        build_id=build_id,
    )
    connection = session.connect()
    answer = connection.post("workflows", body=body)
    if not wait:
        session.show(answer, _draw_started)
        return
    started = str(answer.body.get("workflow_id"))
    say(f"Started {started}; waiting until it is closed. Ctrl-C stops the waiting, not the workflow.")
    closed = wait_until_closed(connection, "workflows", started)
    session.show(closed, _draw_result)
    if closed.body.get("status") != "completed":
        raise _not_completed(connection, closed.body)


@workflow.verb("list", example="penstock workflow list --status failed --type orders.fulfillment")
@click.option("--type", "workflow_type", metavar="TYPE", help="Only this workflow type.")
@click.option("--status", "bucket", type=click.Choice(["running", "completed", "failed"]), help="Only these.")
@click.option("--query", metavar="TEXT", help="Only ids and business keys that contain this text.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=50, show_default=True, help="Most rows to show."
)
@click.pass_obj
def list_workflows(
    session: Session, workflow_type: str | None, bucket: str | None, query: str | None, limit: int
) -> None:
    """List workflows, newest first."""
    answer = read_pages(
        session.connect(),
        "workflows",
        rows="workflows",
        limit=limit,
        page_max=LIST_PAGE_MAX,
        query={"workflow_type": workflow_type, "status": bucket, "query": query},
    )
    session.show(answer, _draw_list)


@workflow.verb("describe", example="penstock workflow describe order-1001")
@click.argument("workflow_id")
@_RUN_ID
@click.pass_obj
def describe_workflow(session: Session, workflow_id: str, run_id: str | None) -> None:
    """Show where a workflow stands: state, input, output, what it waits for."""
    session.show(session.connect().get(*_path(workflow_id, run_id)), _draw_one)


@workflow.verb("history", example="penstock workflow history order-1001")
@click.argument("workflow_id")
@_RUN_ID
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Most events to show; all if left out.")
@click.pass_obj
def show_history(session: Session, workflow_id: str, run_id: str | None, limit: int | None) -> None:
    """Show what happened in a workflow, event by event."""
    connection = session.connect()
    if run_id is None:
        run_id = str(connection.get("workflows", workflow_id).body.get("run_id"))
    session.show(read_history(connection, workflow_id, run_id, limit), draw_history)


@workflow.verb("runs", example="penstock workflow runs order-1001")
@click.argument("workflow_id")
@click.pass_obj
def list_runs(session: Session, workflow_id: str) -> None:
    """List the runs of a workflow."""
    session.show(session.connect().get("workflows", workflow_id, "runs"), _draw_runs)


@workflow.verb("query", example="penstock workflow query order-1001 status --input '\"lines\"'")
@click.argument("workflow_id")
@click.argument("query_name", metavar="NAME")
@click.option(
    "--input",
    "values",
    type=Json(),
    multiple=True,
    metavar="JSON",
    help="One argument; repeat for more. A single JSON list is the whole argument list.",
)
@_RUN_ID
@click.pass_obj
def query_workflow(
    session: Session, workflow_id: str, query_name: str, values: tuple[Any, ...], run_id: str | None
) -> None:
    """Ask a workflow a question that its code answers, and print the answer."""
    path = (*_path(workflow_id, run_id), "query", query_name)
    patient = replace(session.connect(), answer_seconds=QUERY_SECONDS)
    answer = patient.post(*path, body={"input": arguments(values)})
    session.show(answer, _draw_answer)


@workflow.verb("cancel", example='penstock workflow cancel order-1001 --reason "ordered twice"')
@click.argument("workflow_id")
@_RUN_ID
@_REASON
@click.pass_obj
def cancel_workflow(session: Session, workflow_id: str, run_id: str | None, reason: str | None) -> None:
    """Cancel a workflow that has not ended."""
    path = (*_path(workflow_id, run_id), "cancel")
    answer = session.connect().post(*path, body=given(reason=reason))
    say(f"Cancelled {workflow_id}.")
    session.show(answer, _draw_ended)


@workflow.verb("terminate", example='penstock workflow terminate order-1001 --reason "runs wild"')
@click.argument("workflow_id")
@_RUN_ID
@_REASON
@click.pass_obj
def terminate_workflow(session: Session, workflow_id: str, run_id: str | None, reason: str | None) -> None:
    """Terminate a workflow that has not ended."""
    path = (*_path(workflow_id, run_id), "terminate")
    answer = session.connect().post(*path, body=given(reason=reason))
    say(f"Terminated {workflow_id}.")
    session.show(answer, _draw_ended)


def _path(workflow_id: str, run_id: str | None) -> tuple[str, ...]:
    """Where a workflow's newest run, or the one that was named, stands."""
    return ("workflows", workflow_id, "runs", run_id) if run_id else ("workflows", workflow_id)


def wait_until_closed(connection: Connection, *path: str) -> Answer:
    """Look at a workflow or activity until it has ended, however it ended."""
    pauses = itertools.chain(LOOK_AGAIN_SECONDS, itertools.repeat(LOOK_AGAIN_SECONDS[-1]))
    for pause in pauses:
        answer = connection.get(*path)
        if is_closed(answer.body):
            return answer
        time.sleep(pause)
    raise AssertionError("the pauses never end")


def is_closed(body: dict[str, Any]) -> bool:
    """Whether the described thing has ended."""
    return bool(body.get("is_terminal")) or body.get("status") in {
        "completed", "failed", "cancelled", "canceled", "terminated", "timed_out",
    }  # fmt: skip


def read_history(connection: Connection, workflow_id: str, run_id: str, limit: int | None) -> Answer:
    """Read the events of a run, oldest first."""
    return read_pages(
        connection, "workflows", workflow_id, "runs", run_id, "history",
        rows="events", limit=limit, page_max=HISTORY_PAGE_MAX,
    )  # fmt: skip


def _not_completed(connection: Connection, body: dict[str, Any]) -> Ended:
    """The refusal that tells why a workflow did not complete, from the last word of its history."""
    state = str(body.get("closed_reason") or body.get("status"))
    workflow_id, run_id = str(body.get("workflow_id")), str(body.get("run_id"))
    for event in reversed(read_history(connection, workflow_id, run_id, None).body["events"]):
        if event.get("event_type") in _UNHAPPY_ENDS:
            payload = event.get("payload") or {}
            said = payload.get("message") or payload.get("reason") or event["event_type"]
            kind = payload.get("exception_class")
            return Ended(f"workflow_{state}", f"{kind}: {said}" if kind else str(said), _look_at(workflow_id))
    return Ended(f"workflow_{state}", f"{workflow_id} ended as {state}.", _look_at(workflow_id))


def _look_at(workflow_id: str) -> str:
    return f"See {to_type('workflow', 'history', workflow_id)}."


def _draw_started(screen: Screen, body: dict[str, Any]) -> None:
    if body.get("outcome") == "returned_existing_active":
        say("It was already running; nothing was started.")
    screen.facts(
        [
            ("Workflow", name(body.get("workflow_id"))),
            ("Run", plain(body.get("run_id"))),
            ("Type", plain(body.get("workflow_type"))),
            ("Status", status(body.get("status"))),
            ("Outcome", plain(body.get("outcome"))),
        ]
    )
    say(f"Follow it with {to_type('workflow', 'history', str(body.get('workflow_id')))}.")


def output_of(body: dict[str, Any]) -> Any:
    """The result of a closed workflow, opened."""
    envelope = body.get("output_envelope")
    return opened(envelope) if envelope else opened(body.get("output"))


def _draw_result(screen: Screen, body: dict[str, Any]) -> None:
    if body.get("status") == "completed":
        screen.value(output_of(body))


def _draw_list(screen: Screen, body: dict[str, Any]) -> None:
    rows = body["workflows"]
    if not rows:
        start = to_type("workflow", "start", "--type", "TYPE", "--task-queue", "QUEUE")
        nothing_yet(f"No workflows here. Start one with {start}.")
        return
    screen.table(
        ["workflow", "type", "status", "task queue", "business key", "started", "closed"],
        [
            [
                name(row.get("workflow_id")),
                plain(row.get("workflow_type")),
                status(row.get("status")),
                plain(row.get("task_queue")),
                plain(row.get("business_key")),
                screen.when(row.get("started_at")),
                screen.when(row.get("closed_at")),
            ]
            for row in rows
        ],
    )
    if body.get("next_page_token"):
        say(f"The first {len(rows)} are shown. See more with --limit.")


def _draw_one(screen: Screen, body: dict[str, Any]) -> None:
    envelope = body.get("input_envelope")
    screen.facts(
        [
            ("Workflow", name(body.get("workflow_id"))),
            ("Run", plain(_run(body))),
            ("Type", plain(body.get("workflow_type"))),
            ("Status", status(body.get("status"))),
            ("Closed as", status(body.get("closed_reason"))),
            ("Waits for", plain(body.get("wait_reason") or body.get("wait_kind"))),
            ("Namespace", plain(body.get("namespace"))),
            ("Task queue", plain(body.get("task_queue"))),
            ("Build", plain(body.get("compatibility"))),
            ("Business key", plain(body.get("business_key"))),
            ("Input", data(opened(envelope) if envelope else opened(body.get("input")))),
            ("Output", data(output_of(body))),
            ("Memo", plain(body.get("memo"))),
            ("Search attributes", plain(body.get("search_attributes"))),
            ("Started", screen.when_exactly(body.get("started_at"))),
            ("Last progress", screen.when_exactly(body.get("last_progress_at"))),
            ("Closed", screen.when_exactly(body.get("closed_at"))),
            ("Run deadline", screen.when_exactly(body.get("run_deadline_at"))),
            ("Execution deadline", screen.when_exactly(body.get("execution_deadline_at"))),
        ]
    )


def _run(body: dict[str, Any]) -> str | None:
    run_id, number, count = body.get("run_id"), body.get("run_number"), body.get("run_count")
    return f"{run_id} ({number} of {count})" if run_id and number and count else run_id


def _draw_runs(screen: Screen, body: dict[str, Any]) -> None:
    screen.table(
        ["#", "run", "status", "closed as", "started", "closed"],
        [
            [
                plain(row.get("run_number")),
                name(row.get("run_id")),
                status(row.get("status")),
                status(row.get("closed_reason")),
                screen.when(row.get("started_at")),
                screen.when(row.get("closed_at")),
            ]
            for row in body.get("runs") or []
        ],
    )


def _draw_answer(screen: Screen, body: dict[str, Any]) -> None:
    envelope = body.get("result_envelope")
    screen.value(opened(envelope) if envelope else opened(body.get("result")))


def _draw_ended(screen: Screen, body: dict[str, Any]) -> None:
    screen.facts(
        [
            ("Workflow", name(body.get("workflow_id"))),
            ("Run", plain(body.get("run_id"))),
            ("Type", plain(body.get("workflow_type"))),
            ("Status", status(body.get("status"))),
            ("Outcome", plain(body.get("outcome"))),
        ]
    )


def draw_history(screen: Screen, body: dict[str, Any]) -> None:
    """Draw a history as a timeline."""
    if not body["events"]:
        nothing_yet("This run has no events yet. Look again in a moment.")
        return
    draw_timeline(screen, body["events"])
    if body.get("next_page_token"):
        say(f"The first {len(body['events'])} events are shown. See more with --limit.")
