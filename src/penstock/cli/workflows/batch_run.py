"""Runs a batch in portions with a progress bar, and suggests how to resume after an interruption."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import click

from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.output.hints import command_hint
from penstock.cli.output.screen import Screen, plain
from penstock.cli.transport.connection import ServerConnection, ServerResponse
from penstock.cli.transport.retrying_connection import RetryingConnection
from penstock.cli.transport.session import CliSession
from penstock.cli.transport.wait import interruptible
from penstock.cli.workflows.run_options import new_request_id

_PATH = ("workflows", "batch-operations")
_PORTION_SECONDS = 120.0
_COUNTS = ("acted", "skipped", "failed")
_ASKED = "cancel_requested"
"""The count of runs whose code was asked to end."""
_FAILURES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """An operation and its query. The request id makes repeated portions idempotent."""

    operation: str
    title: str
    query: str
    details: dict[str, Any]
    request_id: str | None = None

    def body(self, **more: Any) -> dict[str, Any]:
        """The request for it."""
        return {"operation": self.operation, "query": self.query, **self.details, **more}


@dataclass(slots=True)
class _Total:
    """Totals so far, and the token to resume with."""

    token: str | None
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    asked: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, body: dict[str, Any]) -> int:
        """Take in the answer for a portion, and return how many runs it was about."""
        portion = {count: int(body.get(count) or 0) for count in _COUNTS}
        for count, number in portion.items():
            self.counts[count] += number
        self.asked += int(body.get(_ASKED) or 0)
        room = _FAILURES_SHOWN - len(self.failures)
        self.failures.extend((body.get("failures") or [])[: max(0, room)])
        self.token = body.get("next_token")
        return sum(portion.values())


def preview(connection: ServerConnection, planned: BatchRequest) -> ServerResponse:
    """Count the runs that the batch would act on, with a sample."""
    return connection.post(*_PATH, body=planned.body(dry_run=True))


def draw_preview(screen: Screen, body: dict[str, Any]) -> None:
    """Draw the sample of a preview."""
    sample = body.get("sample") or []
    if sample:
        screen.rows(
            sample,
            "workflow=workflow_id:name, run=run_id, type=workflow_type, status:status, "
            "started=started_at:when",
        )
    of = f"; {len(sample)} of them are shown" if len(sample) < (body.get("matched") or 0) else ""
    echo_err(f"Found {counted(body)}{of}. Nothing was done.")


def counted(body: dict[str, Any]) -> str:
    """The count of a preview, in words."""
    matched = body.get("matched") or 0
    at_least = "at least " if body.get("complete") is False else ""
    return f"{at_least}{matched} open {'workflow' if matched == 1 else 'workflows'}"


def run_batch(
    session: CliSession, connection: ServerConnection, planned: BatchRequest, count: int, token: str | None
) -> None:
    """Act on all matches, and print the totals; exit code 1 if any run failed."""
    total = _Total(token)
    request_id = planned.request_id or new_request_id("batch")
    server = RetryingConnection(_patient(connection))
    stopped = "Stopped; completed actions are kept."
    with interruptible(stopped, lambda: _resume(planned, request_id, total.token)), _progress(count) as bar:
        while True:
            at = {"token": total.token} if total.token else {}
            body = planned.body(request_id=request_id, **at)
            answer = server.ask(lambda link, body=body: link.post(*_PATH, body=body))  # type: ignore[misc]
            bar.update(total.add(answer.body))
            if not total.token:
                break
    _show(session, planned, total)


def _patient(connection: ServerConnection) -> ServerConnection:
    return replace(connection, answer_seconds=_PORTION_SECONDS)


@contextmanager
def _progress(count: int) -> Iterator[Any]:
    """A bar on stderr where a person watches, and nothing elsewhere."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=count, file=sys.stderr, hidden=hidden, show_pos=True) as bar:
        yield bar


def _resume(planned: BatchRequest, request_id: str, token: str | None) -> str:
    words = ["workflow", "batch", planned.operation]
    if planned.operation == "signal":
        words += [str(planned.details["signal_name"]), "--request-id", request_id]
        words += ["--input", json.dumps(planned.details["input"])]
    words += ["--query", planned.query]
    if planned.details.get("reason"):
        words += ["--reason", planned.details["reason"]]
    if token:
        words += ["--resume", token]
    return f"Go on with {command_hint(*words)}."


def _show(session: CliSession, planned: BatchRequest, total: _Total) -> None:
    if session.json:
        asked = {_ASKED: total.asked} if planned.operation == "cancel" else {}
        body = {"operation": planned.operation, **total.counts, **asked, "failures": total.failures}
        click.echo(json.dumps(body, ensure_ascii=True))
    else:
        _draw(Screen(), total)
    if total.counts["failed"]:
        raise CommandError(
            "batch_incomplete",
            f"{total.counts['failed']} workflows could not be reached.",
            "Read why above; the same command again acts only on what is still open.",
        )


def _draw(screen: Screen, total: _Total) -> None:
    screen.facts(
        [
            ("Done", plain(total.counts["acted"] - total.asked)),
            ("Asked to end", plain(total.asked or None)),
            ("Skipped", plain(total.counts["skipped"] or None)),
            ("Failed", plain(total.counts["failed"] or None)),
        ]
    )
    if total.failures:
        screen.rows(total.failures, "workflow=workflow_id:name, run=run_id, reason, message", "Failures")
