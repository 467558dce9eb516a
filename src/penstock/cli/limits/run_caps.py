"""Commands for caps on runs."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.grammar import noun, with_options
from penstock.cli.inputs import WholeLimitParam, given
from penstock.cli.limits.options import for_option, limit_option, reason_option, show_history
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, ScreenCell, plain
from penstock.cli.transport.session import CliSession

_SURPLUS = ("queue", "refuse", "cancel_running", "keep_newest")
_scope_options = with_options(
    click.option("--type", "workflow_type", metavar="TYPE", help="The runs of a workflow type."),
    click.option("--task-queue", "-t", metavar="NAME", help="The runs of a task queue."),
    click.option("--key", "concurrency_key", metavar="KEY", help="The runs with a concurrency key."),
    click.option("--each-key", is_flag=True, help="Each concurrency key that has no cap of its own."),
)


@noun("limits", example="penstock workflow limits set --type orders.fulfillment --max-open-runs 5")
def limits() -> None:
    """Show and change caps on runs: of a workflow type, a task queue, a concurrency key or the namespace."""


@limits.verb("list", example="penstock workflow limits list")
@click.pass_obj
def list_limits(session: CliSession) -> None:
    """List all caps on runs of the namespace, with their usage."""
    session.show(session.connect().get("run-limits"), _draw_all)


@limits.verb("get", example="penstock workflow limits get --type orders.fulfillment")
@_scope_options
@click.pass_obj
def get_limits(session: CliSession, /, **scope: Any) -> None:
    """Show a cap on runs, its usage and holders; of the namespace unless an option names another scope."""
    kind, name = _scope(**scope)
    session.show(session.connect().get("run-limits", kind, query=given(name=name)), _draw)


@limits.verb(
    "set",
    example="penstock workflow limits set --type orders.fulfillment --max-open-runs 5 --surplus refuse \\\n"
    '    --for 2h --reason "slow warehouse"',
)
@_scope_options
@click.option("--max-open-runs", type=WholeLimitParam(), help="Most open runs at a time; 0 closes.")
@click.option(
    "--surplus",
    type=click.Choice(_SURPLUS),
    help="What becomes of a start beyond the cap; it waits by default.",
)
@click.option(
    "--unset",
    type=click.Choice(["max-open-runs", "surplus"]),
    multiple=True,
    metavar="NAME",
    help="Remove a setting; repeatable. Without max-open-runs there is no cap.",
)
@for_option
@reason_option
@click.option("--if-version", type=click.IntRange(0), metavar="N", help="Only if the cap is at this version.")
@click.pass_obj
def set_limits(
    session: CliSession,
    /,
    max_open_runs: int | None,
    surplus: str | None,
    unset: tuple[str, ...],
    seconds: int | None,
    reason: str | None,
    if_version: int | None,
    **scope: Any,
) -> None:
    """Change a cap on runs, permanently or with --for. It applies from the next start."""
    kind, name = _scope(**scope)
    settings = given(max_open_runs=max_open_runs, surplus=surplus)
    for each in unset:
        if each.replace("-", "_") in settings:
            raise click.UsageError(f"--{each} and --unset {each} cannot both be meant.")
    settings |= {each.replace("-", "_"): "default" for each in unset}
    if not settings:
        raise click.UsageError("Name what to change, such as --max-open-runs 5 or --unset max-open-runs.")
    about = given(name=name, expires_in_seconds=seconds, reason=reason, if_version=if_version)
    answer = session.connect().patch("run-limits", kind, body=settings | about)
    echo_err("Changed the cap on runs.")
    session.show(answer, _draw)


@limits.verb("history", example="penstock workflow limits history --type orders.fulfillment")
@_scope_options
@limit_option
@click.pass_obj
def limits_history(session: CliSession, /, limit: int, **scope: Any) -> None:
    """Show who changed a cap on runs, newest first."""
    kind, name = _scope(**scope)
    show_history(session, "run-limits", kind, "history", limit=limit, **given(name=name))


def _scope(
    workflow_type: str | None, task_queue: str | None, concurrency_key: str | None, each_key: bool
) -> tuple[str, str | None]:
    """The scope that the options name, and the name in it."""
    named = given(workflow_type=workflow_type, task_queue=task_queue, concurrency_key=concurrency_key)
    if len(named) + each_key > 1:
        raise click.UsageError("Name one of --type, --task-queue, --key and --each-key; none: the namespace.")
    if each_key:
        return "each_concurrency_key", None
    return next(iter(named.items()), ("namespace", None))


def _draw_all(screen: Screen, body: dict[str, Any]) -> None:
    screen.rows(
        body.get("run_limits") or [],
        "scope:name, name, most, surplus, open=counts.open_runs, "
        "waiting=counts.waiting_runs, by=limits.max_open_runs.updated_by, "
        "until=limits.max_open_runs.ends_at:when, reason=limits.max_open_runs.reason",
        empty="There is no cap on runs in this namespace.",
        most=_most,
        surplus=_surplus,
    )


def _draw(screen: Screen, body: dict[str, Any]) -> None:
    setting = (body.get("limits") or {}).get("max_open_runs") or {}
    counts = body.get("counts") or {}
    screen.facts(
        [
            ("Scope", plain(" ".join(filter(None, (body.get("scope"), body.get("name")))))),
            ("Version", plain(body.get("version"))),
            ("Most open runs", _most(body)),
            ("Beyond that", _surplus(body)),
            ("Open", plain(counts.get("open_runs"))),
            ("Waiting to start", plain(counts.get("waiting_runs"))),
            ("Set by", plain(setting.get("updated_by"))),
            ("Until", screen.when_exactly(setting.get("ends_at"))),
            ("Reason", plain(setting.get("reason"))),
        ]
    )
    screen.rows(
        body.get("holders") or [],
        "workflow=workflow_id:name, type=workflow_type, task queue, started=started_at:when",
        "Oldest open runs",
    )


def _surplus(body: dict[str, Any]) -> ScreenCell:
    return plain(((body.get("limits") or {}).get("surplus") or {}).get("value") or "queue")


def _most(body: dict[str, Any]) -> ScreenCell:
    most = ((body.get("limits") or {}).get("max_open_runs") or {}).get("value")
    return ScreenCell("closed", "red") if most == 0 else plain("no limit" if most is None else most)
