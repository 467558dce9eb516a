"""Options of the contract that our commands do not have, and what they mean for ours."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.contract.alias import Translation, Values
from penstock.cli.inputs import JsonParam

ENCODINGS = ("json", "raw", "base64")


def read_inputs(inline: Sequence[str], file: str | None, encoding: str) -> tuple[Any, ...]:
    """The payloads that were given inline, or the one in a file (`-`: stdin)."""
    if file is None:
        return tuple(_decoded(text, encoding) for text in inline)
    if inline:
        raise click.UsageError("--input and --input-file contradict each other; give one of them.")
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--input-file cannot be read: {error}.") from error
    return (_decoded(text, encoding),)


def _decoded(text: str, encoding: str) -> Any:
    if encoding == "raw":
        return text
    if encoding == "json":
        return JsonParam().convert(text, None, None)
    try:
        return base64.b64decode(text.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise click.UsageError("The input is not base64 of a text.") from error


def _apply_input(values: Values) -> None:
    values["values"] = read_inputs(values["values"], values.pop("input_file"), values.pop("input_encoding"))


def _do_not_ask(values: Values) -> None:
    """Scripts are not asked, as in the contract; people at a terminal are."""
    values["yes"] = values["yes"] or not sys.stdin.isatty()


def _narrow(values: Values) -> None:
    """Put the filters of the contract's batch into the query; a batch of ours acts on all open runs that match."""
    if values.pop("status") != "running":
        raise click.UsageError("--status is not there: a batch acts on running workflows only.")
    if values.pop("limit") is not None:
        raise click.UsageError("--limit is not there: a batch acts on all that match; narrow the query.")
    kind = values.pop("type")
    if kind is not None:
        quoted = kind.replace("'", "''")
        values["query"] = f"({values['query']}) AND WorkflowType = '{quoted}'"


def _name_schedule(values: Values) -> None:
    """Take the id from `--schedule-id`; the contract has no argument for it."""
    option = values.pop("schedule_id_option")
    if option and values["schedule_id"]:
        raise click.UsageError("ID and --schedule-id contradict each other; give one of them.")
    values["schedule_id"] = option or values["schedule_id"]


def _add_interval(values: Values) -> None:
    """Add an interval that is written as an ISO 8601 duration; the server checks it."""
    text = values.pop("interval")
    if text is not None:
        values["intervals"] = (*values["intervals"], {"every": text})


SCHEDULE_ID = Translation(
    (click.Option(["--schedule-id", "schedule_id_option"], metavar="ID", help="Id; generated if omitted."),),
    _name_schedule,
)
INTERVAL = Translation(
    (click.Option(["--interval"], metavar="DURATION", help="ISO 8601 duration, such as PT30M."),),
    _add_interval,
)
BATCH = Translation(
    (
        click.Option(["--type", "-t"], metavar="TYPE", help="Only workflows of this type."),
        click.Option(["--status"], default="running", hidden=True),
        click.Option(["--limit", "-l"], hidden=True),
    ),
    _narrow,
)
INPUT = Translation(
    (
        click.Option(["--input-file"], metavar="FILE", help="File with the input; - reads stdin."),
        click.Option(
            ["--input-encoding"], type=click.Choice(ENCODINGS), default="json", help="How it is written."
        ),
    ),
    _apply_input,
    as_text=("values",),
)
UNATTENDED = Translation((), _do_not_ask)
