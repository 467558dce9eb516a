"""The command `penstock top`."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from penstock.cli.grammar import VerbCommand
from penstock.cli.inputs import SpanParam
from penstock.cli.output.exits import CommandError
from penstock.cli.output.hints import command_hint
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.cli.top.page import TopPage
    from penstock.cli.top.rates import QueueRates
    from penstock.cli.top.snapshot import QueueRow
    from penstock.cli.top.state import TopState
    from penstock.cli.top.watcher import TopAnswer, TopWatcher
    from penstock.cli.transport.connection import ServerConnection

INTERVAL_SECONDS_MAX = 3600
_REDRAW_SECONDS = 1.0
_PIPE_COLUMNS = 120


@click.command("top", cls=VerbCommand, example="penstock top payments --once")
@click.argument("queue", required=False)
@click.option("--once", is_flag=True, help="Print one picture and exit, as in a pipe.")
@click.option(
    "--interval",
    "interval_seconds",
    type=SpanParam(INTERVAL_SECONDS_MAX),
    default=1,
    show_default="1s",
    help="Time between two looks.",
)
@click.pass_obj
def top(session: CliSession, queue: str | None, once: bool, interval_seconds: float) -> None:
    """Show the task queues as they are now: waiting, running, rates, limits that bind, shares of keys."""
    from penstock.cli.top.rates import QueueRates
    from penstock.cli.top.watcher import ask

    connection, rates = session.connect(), QueueRates()
    answer = ask(connection, None, rates)
    if queue is not None:
        answer = ask(connection, _kind_of(answer, queue), rates)
    if session.json:
        show_json(json.dumps(_as_json(connection, answer), ensure_ascii=False))
    elif once or not sys.stdout.isatty():
        _print(_page(connection, answer), queue is not None)
    else:
        _live(connection, answer, rates, interval_seconds)


def _kind_of(answer: TopAnswer, queue: str) -> tuple[str, str]:
    """The tasks of a queue that were named; of both kinds those of which more wait."""
    rows = [row for row in answer.rows if row.queue == queue]
    if not rows:
        raise CommandError(
            "task_queue_not_found",
            f"There is no task queue {queue!r}.",
            f"See what there is with {command_hint('task-queue', 'list')}.",
        )
    return max(rows, key=lambda row: (row.waiting, row.running, row.slots)).name


def _as_json(connection: ServerConnection, answer: TopAnswer) -> dict[str, object]:
    queues = [row.as_json() for row in answer.rows]
    if answer.detail is not None:
        queues = [answer.detail.as_json()]
    return {
        "namespace": connection.namespace or "default",
        "as_of": answer.as_of.isoformat(timespec="milliseconds"),
        "queues": queues,
    }


def _page(connection: ServerConnection, answer: TopAnswer, interval_seconds: float = 1.0) -> TopPage:
    from penstock.cli.top.page import TopPage

    return TopPage(
        server=connection.target.authority,
        namespace=connection.namespace or "default",
        rows=answer.rows,
        detail=answer.detail,
        as_of=answer.as_of,
        now=datetime.now(UTC),
        interval_seconds=interval_seconds,
        trouble=answer.trouble,
    )


def _print(page: TopPage, is_open: bool) -> None:
    """One picture, as long as it needs to be."""
    from rich.console import Console

    from penstock.cli.top.page import detail_lines, table_lines
    from penstock.cli.top.state import TopOrder, ordered

    width = shutil.get_terminal_size((_PIPE_COLUMNS, 24)).columns
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    if is_open and page.detail is not None:
        lines = detail_lines(page.detail, width, 10_000)
    elif page.rows:
        lines = table_lines(ordered(page.rows, TopOrder.OLDEST), width)
    else:
        lines = []
        click.echo(
            "No task queue yet. A queue appears with its first worker or its first workflow.", err=True
        )
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True)


def _live(
    connection: ServerConnection, answer: TopAnswer, rates: QueueRates, interval_seconds: float
) -> None:
    """Show the picture until the user quits."""
    from rich.console import Console, Group
    from rich.live import Live

    from penstock.cli.top.page import page_lines
    from penstock.cli.top.state import TopState, pressed
    from penstock.cli.top.terminal import raw_input, read_keys
    from penstock.cli.top.watcher import TopWatcher

    state = TopState()
    if answer.detail is not None:
        state = replace(state, chosen=answer.detail.row.name, is_open=True)
    console = Console(highlight=False, markup=False, emoji=False)
    with (
        raw_input() as keys,
        TopWatcher(connection, answer, rates, interval_seconds) as watcher,
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        try:
            while not state.is_over:
                _follow(watcher, state)
                page = _page(connection, watcher.answer, interval_seconds)
                live.update(Group(*page_lines(page, state, *console.size)), refresh=True)
                for key in read_keys(keys) if _is_typed(keys, watcher.ready) and keys is not None else ():
                    state = pressed(state, key, _shown_rows(watcher, state))
        except KeyboardInterrupt:
            return


def _follow(watcher: TopWatcher, state: TopState) -> None:
    """Ask for the queue that is chosen now."""
    from penstock.cli.top.state import chosen_row

    row = chosen_row(state, _shown_rows(watcher, state))
    watcher.look(None if row is None else row.name, is_paused=state.is_paused)


def _shown_rows(watcher: TopWatcher, state: TopState) -> list[QueueRow]:
    from penstock.cli.top.state import ordered

    return ordered(watcher.answer.rows, state.order)


def _is_typed(keys: int | None, ready: int) -> bool:
    """Wait for a key, an answer, or the time to draw the age of the last one; say whether there are keys."""
    awaited = [ready] if keys is None else [ready, keys]
    found, _, _ = select.select(awaited, [], [], _REDRAW_SECONDS)
    if ready in found:
        os.read(ready, 4096)
    return keys is not None and keys in found
