"""The command that shows a history, as a whole or as it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen
from penstock.cli.output.times import parsed
from penstock.cli.timeline import PayloadDisplay, Timeline, draw_footer
from penstock.cli.timeline.renderer import Children
from penstock.cli.transport.connection import ServerConnection, ServerResponse
from penstock.cli.transport.pages import read_pages
from penstock.cli.transport.session import CliSession
from penstock.cli.transport.wait import is_closed
from penstock.cli.workflows.history.follow import follow
from penstock.cli.workflows.run_options import path_of, run_option, same_run

PAGE_MAX = 1000
CHILDREN_MAX = 50


@verb("history", example="penstock workflow history order-1001 --follow")
@click.argument("workflow_id")
@run_option
@click.option(
    "--follow", "-f", "follow_it", is_flag=True, help="Follow new events until the workflow is closed."
)
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--children", is_flag=True, help="Include the events of child workflows below their start.")
@click.option(
    "--audit",
    is_flag=True,
    help="Include events that follow from the recorded ones: starts of attempts, applied signals, handled "
    "failures, repairs. --json always has them.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Most events to show: the first, or with --reverse or --follow the last; all if omitted.",
)
@click.option(
    "--payloads",
    type=click.Choice([each.value for each in PayloadDisplay]),
    default=PayloadDisplay.SHORT.value,
    show_default=True,
    help="How much to show of arguments and results.",
)
@click.pass_obj
def show_history(
    session: CliSession,
    workflow_id: str,
    run_id: str | None,
    follow_it: bool,
    reverse: bool,
    children: bool,
    audit: bool,
    limit: int | None,
    payloads: str,
) -> None:
    """Show the history of a workflow as a timeline; --follow --json prints one event per line."""
    connection = session.connect()
    if follow_it and (reverse or children or audit):
        raise click.UsageError(
            "--follow goes forwards through one history; leave out --reverse, --children and --audit."
        )
    if follow_it:
        follow(session, connection, workflow_id, run_id, limit, PayloadDisplay(payloads))
        return
    described = {} if session.json and run_id else connection.get(*path_of(workflow_id, run_id)).body
    named = run_id or str(described.get("run_id"))
    answer = read_history(connection, workflow_id, named, limit, reverse, derived=session.json or audit)
    if session.json:
        session.show(answer, _draw_nothing)
        return
    draw_history(
        Screen(),
        answer.body,
        described,
        payloads=PayloadDisplay(payloads),
        newest_first=reverse,
        children=_Children(connection).read if children else None,
    )


def read_history(
    connection: ServerConnection,
    workflow_id: str,
    run_id: str,
    limit: int | None,
    newest_first: bool = False,
    *,
    derived: bool = True,
) -> ServerResponse:
    """Read the events of a run, oldest first by default; with `derived` also the events that follow from them."""
    query = {"order": "desc" if newest_first else None, "derived": None if derived else "false"}
    return read_pages(
        connection, "workflows", workflow_id, "runs", run_id, "history",
        rows="events", limit=limit, page_max=PAGE_MAX, query=query,
    )  # fmt: skip


def draw_history(
    screen: Screen,
    body: dict[str, Any],
    described: dict[str, Any],
    *,
    payloads: PayloadDisplay = PayloadDisplay.SHORT,
    newest_first: bool = False,
    children: Children | None = None,
) -> None:
    """Draw a history as a timeline, followed by the status of the run."""
    events = list(reversed(body["events"])) if newest_first else body["events"]
    if not events:
        echo_err("This run has no events yet. Try again in a moment.")
        return
    started_at = parsed(described.get("started_at"))
    timeline = Timeline(screen, payloads=payloads, started_at=started_at, children=children)
    timeline.draw(events, newest_first=newest_first)
    more = bool(body.get("next_page_token"))
    recorded = sum(not each.get("derived") for each in events)
    if described:
        draw_footer(screen, described, events, None if more else recorded)
    _suggest_next(described, recorded, more, "last" if newest_first else "first")


class _Children:
    """Reads the histories of children, up to `CHILDREN_MAX`."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._left = CHILDREN_MAX

    def read(self, event: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        payload = event.get("payload") or {}
        child, run_id = payload.get("child_workflow_instance_id"), payload.get("child_workflow_run_id")
        if not child or not run_id:
            return ()
        self._left -= 1
        if self._left < 0:
            if self._left == -1:
                echo_err(f"The first {CHILDREN_MAX} children are shown.")
            return ()
        path = (*path_of(str(child), str(run_id)), "history")
        answer = self._connection.get(*path, query={"page_size": PAGE_MAX, "derived": "false"}, accept=(404,))
        events = answer.body.get("events")
        return events if isinstance(events, list) else ()


def _suggest_next(described: dict[str, Any], count: int, more: bool, which: str) -> None:
    if more:
        echo_err(f"The {which} {count} events are shown. See more with --limit.")
    if described and not is_closed(described):
        named = same_run(str(described.get("workflow_id")), None)
        echo_err(f"Follow it with {command_hint('workflow', 'history', *named, '--follow')}.")


def _draw_nothing(_screen: Screen, _body: dict[str, Any]) -> None:
    raise AssertionError("only JSON comes here")
