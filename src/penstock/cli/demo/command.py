"""The command `penstock demo`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from penstock.cli.grammar import CommandReach, VerbCommand
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.server.dev import DATABASE_FILE
from penstock.cli.transport.session import CliSession, show_json


@click.command("demo", cls=VerbCommand, reach=CommandReach.HERE, example="penstock demo")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Keep the data there, to inspect it with `penstock dev` [default: a temporary directory, removed].",
)
@click.pass_obj
def demo(session: CliSession, data_dir: Path | None) -> None:
    """Run a small shop on its own server, kill its worker and its server, and show that no order is lost."""
    from penstock.cli.demo.display import demo_display
    from penstock.cli.demo.script import play
    from penstock.cli.demo.summary import draw, summary_of

    with _directory(data_dir) as directory, demo_display() as display:
        result = play(directory, display)
    summary = summary_of(result, None if data_dir is None else str(data_dir))
    if session.json:
        show_json(json.dumps(summary, ensure_ascii=False))
        return
    from penstock.cli.output.screen import Screen

    draw(Screen(), summary)
    if data_dir is None:
        echo_err("")
        echo_err("Everything that ran is stopped, and its data removed.")


@contextmanager
def _directory(data_dir: Path | None) -> Iterator[Path]:
    """A directory without a database: the one that was named, or one that is removed at the end."""
    if data_dir is None:
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
            yield Path(directory)
        return
    if (data_dir / DATABASE_FILE).exists():
        raise CommandError(
            "data_dir_unusable",
            f"{data_dir} holds a database already.",
            "Name a directory that is empty or new.",
        )
    yield data_dir.absolute()
