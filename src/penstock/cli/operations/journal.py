"""Commands for the journal, which `penstock verify` reads."""

from __future__ import annotations

import json

import click

from penstock.cli.grammar import noun
from penstock.cli.output.escapes import shown_json
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.transport.session import CliSession

_PAGE = 5_000


@noun("journal", example="penstock journal export > journal.jsonl")
def journal() -> None:
    """Export the record of leases, arrivals, workers and settings."""


@journal.verb("export", example="penstock journal export > journal.jsonl")
@click.option(
    "--after",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="SEQ",
    help="Start after this line.",
)
@click.pass_obj
def export(session: CliSession, after: int) -> None:
    """Write the journal as JSON lines (needs the admin role); best while no work is in progress."""
    connection, count = session.connect(), 0
    following: int | None = after
    while following is not None:
        body = connection.get("system", "journal", query={"after": following, "limit": _PAGE}).body
        lines = body.get("lines")
        if not isinstance(lines, list):
            raise CommandError("unexpected_answer", "The server's answer has no list of lines.")
        for line in lines:
            click.echo(shown_json(json.dumps(line, ensure_ascii=False)))
        count += len(lines)
        following = _next(following, body.get("next_after"))
    echo_err(f"Wrote {count:,} lines.")


def _next(after: int, following: object) -> int | None:
    if following is None:
        return None
    if not isinstance(following, int) or following <= after:
        raise CommandError(
            "repeated_page_token", "The server repeats a page, so the journal cannot be finished."
        )
    return following
