"""The command that exports a history and verifies that it is complete."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.transport.session import CliSession, show_json
from penstock.cli.workflows.run_options import path_of, run_option

_MODE = 0o600
"""A history holds what its workflow was given; only its owner may read the file."""


@verb("export", example="penstock workflow export order-1001 -o order-1001.json")
@click.argument("workflow_id")
@run_option
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to this file instead of stdout.",
)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@click.pass_obj
def export_history(
    session: CliSession, workflow_id: str, run_id: str | None, output: Path | None, force: bool
) -> None:
    """Write the whole history of a run as a sealed bundle, after checking its checksum."""
    to_stdout = output is None or str(output) == "-"
    if output is not None and not to_stdout and output.exists() and not force:
        raise click.UsageError(f"{output} exists already; pass --force to replace it.")
    answer = session.connect().get(*path_of(workflow_id, run_id), "history", "export")
    checksum = verified(answer.body)
    if output is None or to_stdout:
        show_json(answer.text)
    else:
        _write(output, answer.text)
    count = len(answer.body.get("history_events") or [])
    complete = "" if answer.body.get("history_complete") else " The run is open, so more will follow."
    where = "" if output is None or to_stdout else f" Written to {output}."
    echo_err(f"{count} events, checksum verified (sha256 {checksum}).{where}{complete}")


def verified(bundle: dict[str, Any]) -> str:
    """The checksum of a bundle, if it is that of its content."""
    import hashlib

    from penstock.core.history.integrity import CANONICALIZATION, CHECKSUM, canonical

    seal = bundle.get("integrity")
    seal = seal if isinstance(seal, dict) else {}
    if seal.get("checksum_algorithm") != CHECKSUM or seal.get("canonicalization") != CANONICALIZATION:
        raise CommandError(
            "checksum_missing",
            "The bundle carries no checksum that can be checked; nothing was written.",
            "Use a server and a command line of the same release.",
        )
    content = {key: value for key, value in bundle.items() if key != "integrity"}
    checksum = hashlib.sha256(canonical(content)).hexdigest()
    if checksum != seal.get("checksum"):
        raise CommandError(
            "checksum_mismatch",
            f"The bundle was changed in transit: its checksum is {checksum}, its seal says"
            f" {seal.get('checksum')}. Nothing was written.",
            "Export it again; if it happens twice, check proxies between you and the server.",
        )
    return checksum


def _write(output: Path, text: str) -> None:
    """Put the text in place at once, so that a file is whole or not there."""
    import tempfile

    try:
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(_MODE)
            Path(name).replace(output)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandError(
            "not_written", f"{output} cannot be written: {error.strerror}.", "Choose another --output."
        ) from error
