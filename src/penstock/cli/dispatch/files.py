"""Reads dispatch configurations for commands: the flags they share, and how a bad file ends a command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.output.escapes import shown
from penstock.cli.output.exits import Exit, warn
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.dispatch import DispatchConfig, DispatchConfigError, Problem

FILES_BY_DEFAULT = ("penstock.toml", "pyproject.toml")
"""Where a configuration is looked for when no file is named: the first that has the table."""
Command = TypeVar("Command", bound=Callable[..., Any])


class DispatchMisconfigured(click.ClickException):
    """The dispatch configuration cannot be used (exit code 2); every problem is named."""

    exit_code = int(Exit.USAGE)

    def __init__(self, error: DispatchConfigError) -> None:
        super().__init__(error.message)
        self.error = error

    def show(self, file: IO[Any] | None = None) -> None:
        echo_err = partial(click.echo, file=file, err=file is None)
        kind = type(self.error).__name__
        if len(self.error.problems) == 1:
            echo_err(f"{kind}: {_shown(str(self.error.problems[0]))}")
            return
        echo_err(f"{kind}: {len(self.error.problems)} problems in the dispatch configuration.")
        for problem in self.error.problems:
            echo_err(f"  - {_shown(str(problem))}")


def dispatch_options(command: Command) -> Command:
    """The flags that select a configuration."""
    for option in reversed(
        (
            click.option(
                "--config",
                "files",
                type=click.Path(path_type=Path),
                metavar="FILE",
                multiple=True,
                help="TOML file with the dispatch configuration; may be repeated, the later wins.",
            ),
            *source_options(),
        )
    ):
        command = option(command)
    return command


def source_options() -> tuple[Callable[[Command], Command], ...]:
    """The flags beside the files."""
    return (
        click.option(
            "--root", metavar="TABLE", help="The table that holds it: penstock, temporal or tool.penstock."
        ),
        click.option("--set", "overrides", metavar="PATH=VALUE", multiple=True, help="Override one value."),
        click.option(
            "--strict", is_flag=True, help="Refuse queues without options and options without routes."
        ),
    )


def load_for_command(
    files: Sequence[Path], root: str | None = None, overrides: Sequence[str] = (), *, strict: bool = False
) -> DispatchConfig:
    """The configuration that the flags mean; a bad one ends the command with exit code 2."""
    from penstock.dispatch import DispatchConfigError, load_dispatch

    try:
        return load_dispatch(list(files or found_files(root)), root, overrides=overrides, strict=strict)
    except DispatchConfigError as error:
        raise DispatchMisconfigured(error) from error


def load_or_exit(
    session: CliSession,
    files: Sequence[Path],
    root: str | None = None,
    overrides: Sequence[str] = (),
    *,
    strict: bool = False,
) -> DispatchConfig:
    """Load the configuration; with --json, problems are printed as data."""
    try:
        return load_for_command(files, root, overrides, strict=strict)
    except DispatchMisconfigured as refused:
        if session.json:
            problems = [problem_body(problem) for problem in refused.error.problems]
            show_json(json.dumps({"valid": False, "problems": problems}, ensure_ascii=False))
        raise


def print_warnings(config: DispatchConfig) -> None:
    """Print the warnings of a configuration."""
    for warning in config.warnings:
        warn(str(warning))


def found_files(root: str | None = None) -> list[Path]:
    """The file that is meant when none is named; none is fine too: there are defaults for everything."""
    from penstock.dispatch.file.sources import has_root

    there = [Path(name) for name in FILES_BY_DEFAULT if Path(name).is_file()]
    return [path for path in there if root is not None or has_root(path)][:1]


def problem_body(problem: Problem) -> dict[str, str]:
    """A finding as data."""
    return {"path": problem.path, "message": problem.message, "hint": problem.hint, "origin": problem.origin}


def _shown(text: str) -> str:
    return "\n".join(shown(line) for line in text.split("\n"))
