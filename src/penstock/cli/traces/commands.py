"""Commands that write a recorded load to a file, show it, and fit a model to it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.grammar import CommandReach, noun
from penstock.cli.output.exits import CommandError, Exit
from penstock.cli.output.screen import Screen, ScreenCell, plain
from penstock.cli.output.screen import name as named
from penstock.cli.transport.session import CliSession
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.cli.transport.connection import ServerConnection
    from penstock.core.verify.journal import JournalLine
    from penstock.simulator.traces.recorder import ServerState
    from penstock.simulator.traces.replay import RecordedTask
    from penstock.simulator.traces.trace_file import Trace, TraceHead, TraceTail

_PAGE = 5_000
_KEYS_SHOWN_MAX = 20
_TRACE = click.argument("trace", type=click.Path(path_type=Path, dir_okay=False))
_TO = click.option(
    "--output",
    "-o",
    "output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file.",
)


@noun("trace", example="penstock trace export --since 24h -o tuesday.trace")
def trace() -> None:
    """Record a load from the server's journal, to rehearse changes on it."""


@trace.verb("export", example="penstock trace export --since 24h --anonymise -o tuesday.trace")
@_TO
@click.option(
    "--since", default="24h", show_default=True, metavar="TIME", help="How long ago the window begins."
)
@click.option(
    "--until", default="0s", show_default=True, metavar="TIME", help="How long ago the window ends; 0s: now."
)
@click.option(
    "--anonymise", is_flag=True, help="Replace all names by random words, the same for the same name."
)
@click.pass_obj
def export(session: CliSession, /, output: Path, since: str, until: str, *, anonymise: bool) -> None:
    """Write the load of a namespace as a trace (needs the admin role, and the journal)."""
    from penstock.simulator.model_file import milliseconds
    from penstock.simulator.traces.anonymiser import Anonymiser
    from penstock.simulator.traces.trace_file import TraceHead, write_trace

    with _refusals():
        since_ms, ago_ms = milliseconds(since), milliseconds(until)
    if since_ms <= ago_ms:
        raise TraceRefused("validation_failed", f"--since {since} is not before --until {until}.")
    connection = session.connect()
    now_ms = round(time.time() * 1000)
    namespace = connection.namespace or "default"
    head = TraceHead(
        product=_version(), namespace=namespace, from_ms=now_ms - since_ms, until_ms=now_ms - ago_ms
    )
    events, tail = _recorded(connection, head)
    if anonymise:
        words = Anonymiser(secrets.token_bytes(32))
        words.name_keys(each["key"] for each in events if "key" in each)
        events, tail = [words.event(event) for event in events], words.tail(tail)
        head = TraceHead(
            product=head.product,
            namespace=words.word("namespace", namespace),
            from_ms=head.from_ms,
            until_ms=head.until_ms,
            anonymised=True,
        )
    try:
        write_trace(output, head, events, tail)
    except OSError as error:
        raise _unwritable(output, error) from None
    facts = {"file": str(output), "events": tail.lines, "missing": list(tail.missing)}
    session.show_data(facts, lambda screen: _draw_export(screen, output, tail))


@trace.verb("show", reach=CommandReach.HERE, example="penstock trace show tuesday.trace")
@_TRACE
@click.pass_obj
def show(session: CliSession, /, trace: Path) -> None:
    """Show what a trace holds, and what it lacks."""
    with _refusals():
        found = _read(trace)
        facts = _facts(found)
    session.show_data(facts, lambda screen: _draw(screen, facts))


@trace.verb("fit", reach=CommandReach.HERE, example="penstock trace fit tuesday.trace -o tuesday.toml")
@_TRACE
@_TO
@click.pass_obj
def fit_model(session: CliSession, /, trace: Path, output: Path) -> None:
    """Write a model of the recorded load that can be changed by hand, for `penstock simulate`."""
    from penstock.simulator.model_file import read_model
    from penstock.simulator.traces.fitted_model import fit

    with _refusals():
        text = fit(_read(trace))
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _unwritable(output, error) from None
        model = read_model(output)
    streams, pools = len(model.arrivals), len(model.workers)
    facts = {"file": str(output), "streams": streams, "pools": pools}
    text = f"Wrote {output}: {streams:,} streams and {pools:,} pools of workers."
    session.show_data(facts, lambda screen: screen.line(ScreenCell(text)))


def _recorded(connection: ServerConnection, head: TraceHead) -> tuple[list[dict[str, Any]], TraceTail]:
    from penstock.simulator.traces.recorder import record

    lines = _journal(connection, head.until_ms)
    events, recorder = record(lines, head.namespace, head.from_ms, head.until_ms)
    return events, recorder.tail(_state(connection, list(recorder.queues)))


def _journal(connection: ServerConnection, until_ms: int) -> Iterator[JournalLine]:
    """The lines of the journal, page by page, up to the first page that begins after the window."""
    import msgspec

    from penstock.wire.operations.journal import read_journal

    following: int | None = 0
    while following is not None:
        body = connection.get("system", "journal", query={"after": following, "limit": _PAGE}).body
        lines = body["lines"]
        yield from read_journal((msgspec.json.encode(line) for line in lines), "the journal")
        following = body.get("next_after")
        if lines and lines[0]["at_ms"] > until_ms:
            return


def _state(connection: ServerConnection, queues: list[tuple[str, str]]) -> ServerState:
    """The workers and the settings of queues as they are now."""
    from penstock.simulator.traces.recorder import ServerState

    workers = connection.get("workers").body["workers"]
    settings = {
        (queue, kind): connection.get("task-queues", queue, "config", query={"task_queue_type": kind}).body
        for queue, kind in queues
    }
    return ServerState(tuple(workers), settings)


def _read(path: Path) -> Trace:
    from penstock.simulator.traces.trace_file import read_trace

    return read_trace(path)


def _version() -> str:
    from importlib.metadata import version

    return version("penstock")


def _facts(trace: Trace) -> dict[str, Any]:
    """What a trace holds, for a program."""
    from penstock.simulator.traces.replay import replay_of

    replay = replay_of(trace, max(1, len(trace.events)))
    queues: dict[tuple[str, str], list[RecordedTask]] = {}
    for task in replay.tasks:
        queues.setdefault((task.queue, task.kind), []).append(task)
    head, tail = trace.head, trace.tail
    return {
        "namespace": head.namespace,
        "product": head.product,
        "format": head.version,
        "from_ms": head.from_ms,
        "until_ms": head.until_ms,
        "anonymised": head.anonymised,
        "events": tail.lines,
        "tasks": len(replay.tasks),
        "closed_share": replay.closed / len(replay.tasks),
        "missing": list(tail.missing),
        "clock_steps": list(tail.clock_steps),
        "notes": list(replay.notes),
        "workers": len({each.worker_id for each in tail.workers}),
        "limits": len(tail.limits),
        "queues": [
            {
                "queue": queue,
                "kind": kind,
                "tasks": len(tasks),
                "grants": sum(len(each.granted_at_ms) for each in tasks),
                "keys": len({each.key for each in tasks}),
                "types": len({each.type for each in tasks}),
                "slots": sum(each.slots for each in tail.workers if (each.queue, each.kind) == (queue, kind)),
            }
            for (queue, kind), tasks in sorted(queues.items())
        ],
    }


def _draw(screen: Screen, facts: dict[str, Any]) -> None:
    from datetime import UTC, datetime

    begins, ends = (
        datetime.fromtimestamp(facts[name] / 1000, UTC).isoformat(timespec="seconds")
        for name in ("from_ms", "until_ms")
    )
    anonymised = ", anonymised" if facts["anonymised"] else ""
    screen.line(ScreenCell(f"{begins} to {ends} in namespace {facts['namespace']}{anonymised}", "bold"))
    screen.line(ScreenCell(f"written by penstock {facts['product']}, format {facts['format']}", "dim"))
    rows = [
        [
            named(each["queue"]),
            *(plain(each[part]) for part in ("kind", "tasks", "grants", "keys", "types", "slots")),
        ]
        for each in facts["queues"]
    ]
    screen.table(["queue", "kind", "tasks", "grants", "keys", "types", "slots"], rows)
    closed = facts["closed_share"] * 100
    screen.line(ScreenCell(f"{closed:.0f} % of the tasks were caused by the end of another one"))
    for note in facts["notes"]:
        screen.line(ScreenCell(note, "dim"))
    _draw_missing(screen, facts["missing"], len(facts["clock_steps"]))


def _draw_missing(screen: Screen, missing: list[str], steps: int) -> None:
    for each in missing:
        screen.line(ScreenCell(f"missing: {each}", "yellow"))
    if steps:
        screen.line(ScreenCell(f"the server's clock was set back {steps} times in the window", "yellow"))
    if not missing and not steps:
        screen.line(ScreenCell("complete", "green"))


def _draw_export(screen: Screen, output: Path, tail: TraceTail) -> None:
    screen.line(ScreenCell(f"Wrote {output}: {tail.lines:,} events."))
    _draw_missing(screen, list(tail.missing), len(tail.clock_steps))


def _unwritable(path: Path, error: OSError) -> CommandError:
    return CommandError("unwritable_file", f"{path} cannot be written: {error.strerror}.")


class TraceRefused(CommandError):
    """A trace that cannot be read or recorded (exit code 2)."""

    exit_code = int(Exit.USAGE)

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message, "The guide Rehearsal describes traces.")


@contextmanager
def _refusals() -> Iterator[None]:
    """What is wrong with a file or an option is a usage error."""
    try:
        yield
    except InvalidInput as refused:
        raise TraceRefused(refused.reason.value, refused.message) from None
