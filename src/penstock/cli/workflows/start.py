"""The command that starts a workflow, optionally with a signal."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.id_policy_options import id_policy_options, with_default
from penstock.cli.inputs import (
    JsonObjectParam,
    JsonParam,
    KeyValueParam,
    SecondsParam,
    arguments,
    given,
    pairs,
)
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen
from penstock.cli.priority_options import with_priority_options
from penstock.cli.transport.session import CliSession
from penstock.cli.workflows.results import await_and_show_result
from penstock.cli.workflows.run_options import input_option, new_request_id


@verb(
    "start",
    example="penstock workflow start --type orders.fulfillment --id order-1001 \\\n"
    "    --task-queue orders --input '[\"order-1001\"]' --wait",
)
@click.option("--type", "workflow_type", required=True, metavar="TYPE", help="Workflow type to run.")
@click.option("--id", "--workflow-id", "workflow_id", metavar="ID", help="Workflow id; generated if omitted.")
@click.option("--task-queue", "-t", metavar="NAME", help="Queue whose workers run it.")
@input_option
@click.option("--business-key", metavar="TEXT", help="Your own name for it, searchable with `list --query`.")
@click.option(
    "--memo", type=JsonObjectParam(), metavar="JSON", help="A JSON object stored with the workflow."
)
@click.option(
    "--search-attribute",
    "attributes",
    type=KeyValueParam(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A search attribute; repeat for more.",
)
@click.option(
    "--duplicate-policy",
    type=click.Choice(["fail", "use-existing"]),
    help="What to do if the id is in use, as in the protocol: ids of closed runs are refused.",
)
@id_policy_options
@click.option(
    "--execution-timeout",
    "execution_timeout_seconds",
    type=SecondsParam(),
    metavar="TIME",
    help="Timeout of all runs together: 90s, 15m, 2h.",
)
@click.option(
    "--run-timeout",
    "run_timeout_seconds",
    type=SecondsParam(),
    metavar="TIME",
    help="Timeout of a single run.",
)
@with_priority_options
@click.option("--concurrency-key", metavar="KEY", help="The key whose cap on runs counts it.")
@click.option("--build-id", metavar="BUILD", help="Run only on workers of this build.")
@click.option(
    "--signal",
    "signal_name",
    metavar="NAME",
    help="Also send this signal, to the new run or to the open run with this id.",
)
@click.option(
    "--signal-input",
    "signal_values",
    type=JsonParam(),
    multiple=True,
    metavar="JSON",
    help="One argument of the signal; repeat for more. A single JSON list is the whole argument list.",
)
@click.option("--wait", is_flag=True, help="Wait until it is closed, then print its result.")
@click.pass_obj
def start_workflow(
    session: CliSession,
    /,
    values: tuple[Any, ...],
    attributes: tuple[tuple[str, Any], ...],
    id_policies: dict[str, Any],
    priority_options: dict[str, Any],
    signal_name: str | None,
    signal_values: tuple[Any, ...],
    wait: bool,
    **fields: Any,
) -> None:
    """Start a workflow; with --signal signal it too, with --wait print its result."""
    workflow_id, duplicate_policy = fields["workflow_id"], fields["duplicate_policy"]
    body = given(
        input=arguments(values),
        search_attributes=pairs(attributes, "--search-attribute"),
        **with_default(id_policies, workflow_id, duplicate_policy),
        **priority_options,
        **fields,
        deliver_cancel=session.asks_code_to_cancel or None,
    )
    conflict = id_policies.get("id_conflict_policy")
    signal = _signal(workflow_id, duplicate_policy or conflict, signal_name, signal_values)
    path = ("workflows", "signal-with-start") if signal else ("workflows",)
    answer = session.connect().post(*path, body=body | signal)
    if not wait:
        session.show(answer, _draw_started)
        return
    started = str(answer.body.get("workflow_id"))
    echo_err(f"Started {started}; waiting until it is closed. Ctrl-C stops the waiting, not the workflow.")
    await_and_show_result(session, started, None, None, first_run_id=answer.body.get("run_id"))


def _signal(
    workflow_id: str | None, policy: str | None, signal_name: str | None, values: tuple[Any, ...]
) -> dict[str, Any]:
    """The fields of a start for its signal."""
    if signal_name is None:
        if values:
            raise click.UsageError("--signal-input is for a signal; name it with --signal.")
        return {}
    if workflow_id is None:
        raise click.UsageError("--signal needs --id: it is sent to the run with that id, new or existing.")
    if policy == "fail":
        raise click.UsageError("--signal uses an open run; leave out the policy fail.")
    return {
        "signal_name": signal_name,
        "signal_input": arguments(values),
        "signal_request_id": new_request_id("signal"),
    }


def _draw_started(screen: Screen, body: dict[str, Any]) -> None:
    if body.get("outcome") == "returned_existing_active":
        echo_err("It was already running; nothing was started.")
    if body.get("waits_to_start"):
        hint = command_hint("why", str(body.get("workflow_id")))
        echo_err(f"It waits to start, because a cap on runs is full: see {hint}.")
    screen.fields(
        body,
        "workflow=workflow_id:name, run=run_id, type=workflow_type, status:status, outcome, "
        "signal=signal_name",
    )
    echo_err(
        f"Follow it with {command_hint('workflow', 'history', str(body.get('workflow_id')), '--follow')}."
    )
