"""Follows a history as it grows, across server restarts and continue-as-new."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen
from penstock.cli.output.times import parsed
from penstock.cli.timeline import PayloadDisplay, Timeline, draw_footer
from penstock.cli.timeline.footer import closing_of
from penstock.cli.transport.connection import ANSWER_SECONDS, ServerConnection, ServerResponse
from penstock.cli.transport.retrying_connection import RetryingConnection
from penstock.cli.transport.session import CliSession, show_json_line
from penstock.cli.transport.wait import interruptible, is_closed
from penstock.cli.workflows.run_options import path_of

POLL_SECONDS = 90.0
"""Longer than a server holds a request for the next event."""
PAGE_MAX = 1000
_ASK_AGAIN_SECONDS = 0.2
"""A pause for servers that answer at once, such as one that is shutting down."""

Events = Sequence[Mapping[str, Any]]


class HistoryView(Protocol):
    """Output of a followed history."""

    def begin(self, described: dict[str, Any]) -> None:
        """A run begins, or continues from its current position."""

    def show(self, events: Events) -> None:
        """The next events."""

    def end(self, described: dict[str, Any], events: Events, count: int) -> None:
        """The run is closed after so many events, these are the last, and no other run continues it."""


def follow(
    session: CliSession,
    connection: ServerConnection,
    workflow_id: str,
    run_id: str | None,
    limit: int | None,
    payloads: PayloadDisplay,
) -> None:
    """Show a history as it grows, until the last run of the workflow is closed."""
    reader: HistoryView = _JsonHistoryView() if session.json else _TextHistoryView(payloads)
    server = RetryingConnection(replace(connection, answer_seconds=POLL_SECONDS + ANSWER_SECONDS))
    with interruptible(
        "Stopped following; the workflow continues.",
        lambda: f"Follow again with {command_hint('workflow', 'history', workflow_id, '--follow')}.",
    ):
        following: str | None = run_id
        while True:
            described = server.ask(lambda link, run=following: link.get(*path_of(workflow_id, run)))  # type: ignore[misc]
            following = _follow_run(server, described.body, limit, reader)
            if following is None:
                return
            echo_err(f"The run continued as new: now following run {following}.")
            limit = None


def _follow_run(
    server: RetryingConnection, described: dict[str, Any], limit: int | None, reader: HistoryView
) -> str | None:
    """Show one run to its end, and return the run that continues it."""
    path = (*path_of(str(described.get("workflow_id")), str(described.get("run_id"))), "history")
    reader.begin(described)
    after = 0 if limit is None else _before_last(server, path, limit)
    is_over = is_closed(described)
    while True:
        asked_at = time.monotonic()
        page = _page(server, path, after, wait=not is_over).body
        events = page["events"]
        if events:
            reader.show(events)
            after = _sequence(events[-1])
        closing = next((event for event in reversed(events) if closing_of(event) is not None), None)
        if closing is not None and (successor := _successor(closing)) is not None:
            return successor
        if closing is not None or (is_over and not page.get("next_page_token")):
            reader.end(described, events, after)
            return None
        if not events and time.monotonic() - asked_at < _ASK_AGAIN_SECONDS:
            time.sleep(_ASK_AGAIN_SECONDS)


def _before_last(server: RetryingConnection, path: tuple[str, ...], count: int) -> int:
    """The number of the event before the last `count` ones."""
    query = {"order": "desc", "page_size": 1, "derived": "false"}
    events = _checked(server.ask(lambda link: link.get(*path, query=query))).body["events"]
    return max(0, _sequence(events[0]) - count) if events else 0


def _page(server: RetryingConnection, path: tuple[str, ...], after: int, *, wait: bool) -> ServerResponse:
    """The events after this one, as soon as there are any; none if the server has held the request too long."""
    token = base64.b64encode(str(after).encode()).decode() if after else None
    held = "true" if wait else None
    query = {"page_size": PAGE_MAX, "wait_new_event": held, "next_page_token": token, "derived": "false"}
    return _checked(server.ask(lambda link: link.get(*path, query=query)))


def _checked(answer: ServerResponse) -> ServerResponse:
    if not isinstance(answer.body.get("events"), list):
        raise CommandError("unexpected_answer", "The server's answer has no list of events.")
    return answer


def _sequence(event: Mapping[str, Any]) -> int:
    number = event.get("sequence")
    if not isinstance(number, int):
        raise CommandError("unexpected_answer", "The server sent an event without a number.")
    return number


def _successor(event: Mapping[str, Any]) -> str | None:
    run_id = (event.get("payload") or {}).get("continued_to_run_id")
    return str(run_id) if run_id else None


class _JsonHistoryView:
    """Prints each event as a line of JSON, for another program."""

    def begin(self, described: dict[str, Any]) -> None:
        pass

    def show(self, events: Events) -> None:
        for event in events:
            show_json_line(event)

    def end(self, described: dict[str, Any], events: Events, count: int) -> None:
        pass


class _TextHistoryView:
    """Draws a timeline, for a person."""

    def __init__(self, payloads: PayloadDisplay) -> None:
        self._screen = Screen()
        self._timeline = Timeline(self._screen, payloads=payloads)

    def begin(self, described: dict[str, Any]) -> None:
        self._timeline.begin_again(parsed(described.get("started_at")))

    def show(self, events: Events) -> None:
        self._timeline.draw(events)

    def end(self, described: dict[str, Any], events: Events, count: int) -> None:
        draw_footer(self._screen, described, events, count)
