"""Flags and paths that select a run, and flags for its input."""

from __future__ import annotations

import secrets

import click

from penstock.cli.inputs import JsonParam
from penstock.cli.output.hints import command_hint
from penstock.cli.transport.connection import PathIdentifier

run_option = click.option(
    "--run", "--run-id", "run_id", metavar="RUN", help="This run instead of the newest."
)
reason_option = click.option("--reason", metavar="TEXT", help="Why; kept in the history.")
input_option = click.option(
    "--input",
    "values",
    type=JsonParam(),
    multiple=True,
    metavar="JSON",
    help="One argument; repeat for more. A single JSON list is the whole argument list.",
)
request_id_option = click.option(
    "--request-id", metavar="ID", help="Makes the request idempotent; generated if omitted."
)


def path_of(workflow_id: str, run_id: str | None) -> tuple[str, ...]:
    """The path of a workflow's newest run, or of the given one."""
    found = ("workflows", PathIdentifier(workflow_id))
    return (*found, "runs", run_id) if run_id else found


def same_run(workflow_id: str, run_id: str | None) -> tuple[str, ...]:
    """The arguments that select the same run in another command."""
    return (workflow_id, "--run", run_id) if run_id else (workflow_id,)


def new_request_id(kind: str) -> str:
    """A fresh request id, so that a request can be repeated if its response is lost."""
    return f"cli-{kind}-{secrets.token_hex(16)}"


def look_at(workflow_id: str, run_id: str | None = None) -> str:
    """The advice to read a history."""
    return f"See {command_hint('workflow', 'history', *same_run(workflow_id, run_id))}."
