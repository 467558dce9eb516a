"""Errors of commands: one line on stderr, and an exit code."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import click

from penstock.cli.output.advice import ADVICE
from penstock.cli.output.escapes import shown
from penstock.cli.output.hints import command_hint


class Exit(enum.IntEnum):
    """Exit codes."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    CONFIGURATION = 78
    STILL_OPEN = 124
    INTERRUPTED = 130


_MESSAGE_FIELDS = ("message", "failure_message", "error")

_LISTED_BY = {
    "instance_not_found": "workflow",
    "activity_not_found": "activity",
    "worker_not_found": "worker",
    "schedule_not_found": "schedule",
}
"""The command whose list shows the existing names after a not-found error."""


_SIGN = (
    "Sign the requests: set DW_OPERATOR_SIGNATURE_KEY (or DW_ADMIN_SIGNATURE_KEY) to the key, or pass --signature-key"
    " operator:KEY. A token cannot help here."
)


class CommandError(click.ClickException):
    """A command that stops early, with the reason, the message and what to do next on one line."""

    exit_code = int(Exit.REFUSED)

    def __init__(self, reason: str, message: str, advice: str = "", notes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.advice = advice
        self.notes = tuple(notes)

    def show(self, file: IO[Any] | None = None) -> None:
        line = f"{shown(self.reason)}: {shown(self.message)}"
        if self.advice:
            line = f"{line} {_arrow(file)} {shown(self.advice)}"
        _write_line(f"{click.style('error:', fg='red', bold=True)} {line}", file)
        for note in self.notes:
            _write_line(f"  {shown(note)}", file)


class RequestRefused(CommandError):
    """The server refused the request (exit code 1)."""

    def __init__(self, status: int, body: Mapping[str, Any], text: str = "") -> None:
        reason = str(body.get("reason") or body.get("outcome") or f"http_{status}")
        reported = next((body[field] for field in _MESSAGE_FIELDS if body.get(field)), None)
        message = str(reported or f"The server answered with status {status}.")
        notes = [note for note in _field_notes(body) if note.partition(": ")[2] not in message]
        super().__init__(reason, message, _advice(reason, body), notes)
        self.status = status
        self.body = body
        self.text = text


class ServerUnreachable(CommandError):
    """No usable response was received (exit code 3)."""

    exit_code = int(Exit.UNREACHABLE)

    def __init__(self, message: str, advice: str) -> None:
        super().__init__("server_unreachable", message, advice)


class StillOpen(CommandError):
    """The wait timed out (exit code 124, as of `timeout`)."""

    exit_code = int(Exit.STILL_OPEN)


class CommandInterrupted(CommandError):
    """The person stopped the command (exit code 130, as of any program that Ctrl-C ends)."""

    exit_code = int(Exit.INTERRUPTED)

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__("interrupted", message, advice)

    def show(self, file: IO[Any] | None = None) -> None:
        """One plain line: the user asked for it, so it is no error."""
        _write_line("", file)
        _write_line(shown(f"{self.message} {self.advice}".rstrip()), file)


class ServerMisconfigured(CommandError):
    """The configuration refuses to start (exit code 78); every problem is listed."""

    exit_code = int(Exit.CONFIGURATION)

    def __init__(self, problems: Sequence[str]) -> None:
        counted = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(
            "configuration_invalid", f"{counted} in the configuration.", notes=[f"- {p}" for p in problems]
        )


class UnknownCommand(click.UsageError):
    """No command has this name (exit code 2); names the nearest ones."""

    def __init__(self, name: str, known: Iterable[str], ctx: click.Context) -> None:
        from penstock.schema.nearest import nearest

        near = nearest(name, known)
        hint = f" Did you mean {' or '.join(repr(match) for match in near)}?" if near else ""
        super().__init__(f"No such command {shown(name)!r}.{hint}", ctx)


def echo_err(message: str) -> None:
    """Print a message on stderr; stdout is for data."""
    _write_line(shown(message), None)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    _write_line(f"{click.style('warning:', fg='yellow', bold=True)} {shown(message)}", None)


def _write_line(line: str, file: IO[Any] | None) -> None:
    """Write a line for people. Data that was printed before it is flushed first: where both streams go to one pipe, the
    lines are in the order in which they were printed, as on a terminal."""
    if file is None and sys.stdout is not None:
        sys.stdout.flush()
    click.echo(line, file=file, err=file is None, color=False if os.environ.get("NO_COLOR") else None)


def _arrow(file: IO[Any] | None) -> str:
    encoding = str(getattr(file or sys.stderr, "encoding", None) or "ascii")
    return "→" if "utf" in encoding.lower() else "->"


def _advice(reason: str, body: Mapping[str, Any]) -> str:
    if isinstance(given := body.get("remediation"), str) and given:
        return given
    if reason == "unauthorized" and body.get("authentication") == "signature":
        return _SIGN
    if reason == "forbidden" and isinstance(allowed := body.get("allowed_roles"), list) and allowed:
        return f"Use a token with the role {' or '.join(map(str, allowed))}; this one is {body.get('role')}."
    if reason in _LISTED_BY:
        return f"List what exists with {command_hint(_LISTED_BY[reason], 'list')}."
    return ADVICE.get(reason, "")


def _field_notes(body: Mapping[str, Any]) -> list[str]:
    errors = body.get("errors") or body.get("validation_errors")
    if not isinstance(errors, Mapping):
        return []
    notes: list[str] = []
    for field, messages in errors.items():
        listed = messages if isinstance(messages, list) else [messages]
        notes.extend(f"{field}: {message}" for message in listed)
    return notes
