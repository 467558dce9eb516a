"""The command `penstock demo`."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from penstock.cli.grammar import CommandReach, VerbCommand
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.server.dev import DATABASE_FILE, TOKEN_FILE
from penstock.cli.transport.session import SERVER_VARIABLE, TOKEN_VARIABLE, CliSession, show_json

if TYPE_CHECKING:
    from penstock.cli.demo.script import DemoRun


@click.command("demo", cls=VerbCommand, reach=CommandReach.HERE, example="penstock demo")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Keep the data there, to inspect it with `penstock dev` [default: a temporary directory, removed].",
)
@click.option(
    "--stay",
    is_flag=True,
    help="Afterwards keep the shop open, with orders and kills, to look at until Ctrl-C.",
)
@click.pass_obj
def demo(session: CliSession, data_dir: Path | None, stay: bool) -> None:
    """Run a small shop on its own server, kill its worker and its server, and show that no order is lost."""
    from penstock.cli.demo.display import demo_display
    from penstock.cli.demo.script import demo_run
    from penstock.cli.demo.summary import draw, summary_of

    kept_in = None if data_dir is None else str(data_dir)
    with _directory(data_dir) as directory, demo_run(directory) as run:
        with demo_display() as display:
            result = run.play(display)
        if not stay:
            run.stop()
        summary = summary_of(result, kept_in)
        if session.json:
            show_json(json.dumps(summary, ensure_ascii=False))
        else:
            from penstock.cli.output.screen import Screen

            draw(Screen(), summary)
        if stay:
            _stay(run)
    if data_dir is None and not session.json:
        echo_err("")
        echo_err("Everything that ran is stopped, and its data removed.")
        if not stay:
            echo_err("To look at such a shop in the browser: penstock demo --stay, which prints a link.")


def _stay(run: DemoRun) -> None:
    """Say where to look, and keep the shop open."""
    from penstock.cli.demo.shop import BANK
    from penstock.cli.demo.stay import stay

    token = shlex.quote(str(run.server.directory / TOKEN_FILE))
    page = f"/ui/queues/{BANK}"
    signing_in = f"/sign-in?next={quote(page, safe='')}#"
    run.server.stop()
    link = run.server.start_with_link() or f"{run.server.url}{page}"
    for line in (
        "",
        "The shop stays open: three customers order, the bank bears two charges at once, and each minute the worker",
        "is killed. Ctrl-C here ends it. In the browser, signed in:",
        f"  {link.replace('/sign-in#', signing_in)}",
        f"  The link works once, within a minute. Later: {run.server.url}{page}",
        f"  with the token of `cat {token}`.",
        "In another terminal:",
        f"  export {SERVER_VARIABLE}={run.server.url}",
        f'  export {TOKEN_VARIABLE}="$(cat {token})"',
        "  penstock top",
    ):
        echo_err(line)
    stay(run)


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
