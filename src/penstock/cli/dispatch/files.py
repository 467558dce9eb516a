"""Reads dispatch configurations for commands: the flags they share, and how a bad file ends a command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from penstock.cli.grammar import with_options
from penstock.cli.output.escapes import shown
from penstock.cli.output.exits import Exit, warn
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.dispatch import DispatchConfig, DispatchConfigError, Problem
    from penstock.dispatch.watcher import WatchedDispatch

FILES_BY_DEFAULT = ("penstock.toml", "pyproject.toml")
"""Default files; the first that has the table is used."""


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


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a dispatch configuration comes from: the flags of a command."""

    files: Sequence[Path] = ()
    root: str | None = None
    overrides: Sequence[str] = ()
    strict: bool = False

    @property
    def found(self) -> list[Path]:
        """The files that are named, or the one that is found."""
        return list(self.files or found_files(self.root))

    def load(self) -> DispatchConfig:
        """Load the configuration; an invalid one ends the command with exit code 2."""
        from penstock.dispatch import DispatchConfigError, load_dispatch

        try:
            return load_dispatch(self.found, self.root, overrides=self.overrides, strict=self.strict)
        except DispatchConfigError as error:
            raise DispatchMisconfigured(error) from error

    def load_or_exit(self, session: CliSession) -> DispatchConfig:
        """Load the configuration; with --json, problems are printed as data."""
        try:
            return self.load()
        except DispatchMisconfigured as refused:
            if session.json:
                problems = [problem_body(problem) for problem in refused.error.problems]
                show_json(json.dumps({"valid": False, "problems": problems}, ensure_ascii=False))
            raise

    def watched(self, config: DispatchConfig) -> WatchedDispatch | None:
        """A watcher for the loaded configuration; None if it has no file."""
        from penstock.dispatch.watcher import WatchedDispatch

        if not (files := self.found):
            return None
        return WatchedDispatch(files, self.root, overrides=self.overrides, strict=self.strict, current=config)


FILES_OPTION = click.option(
    "--config",
    "files",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="TOML file with the dispatch configuration; may be repeated, the later wins.",
)
ROOT_OPTION = click.option(
    "--root", metavar="TABLE", help="The table that holds it: penstock, temporal or tool.penstock."
)
SET_OPTION = click.option(
    "--set", "overrides", metavar="PATH=VALUE", multiple=True, help="Override one value."
)
STRICT_OPTION = click.option(
    "--strict", is_flag=True, help="Refuse queues without options and options without routes."
)


def dispatch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that select a configuration; the command receives them as `sources`."""

    @wraps(function)
    def command(
        *args: Any,
        files: Sequence[Path],
        root: str | None,
        overrides: Sequence[str],
        strict: bool,
        **rest: Any,
    ) -> Any:
        return function(*args, sources=Sources(files, root, overrides, strict), **rest)

    return with_options(FILES_OPTION, ROOT_OPTION, SET_OPTION, STRICT_OPTION)(command)


def print_warnings(config: DispatchConfig) -> None:
    """Print the warnings of a configuration."""
    for warning in config.warnings:
        warn(str(warning))


def found_files(root: str | None = None) -> list[Path]:
    """The default file, if it exists and has the table. Without one, every option has its default."""
    from penstock.dispatch.file.sources import has_root

    there = [Path(name) for name in FILES_BY_DEFAULT if Path(name).is_file()]
    return [path for path in there if root is not None or has_root(path)][:1]


def problem_body(problem: Problem) -> dict[str, str]:
    """A finding as data."""
    return {"path": problem.path, "message": problem.message, "hint": problem.hint, "origin": problem.origin}


def _shown(text: str) -> str:
    return "\n".join(shown(line) for line in text.split("\n"))
