"""Noun then verb: the shape that every command of the program has."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.output.exits import UnknownCommand
from penstock.cli.transport.session import ConnectionOption, connection_options, json_option

F = TypeVar("F", bound=Callable[..., Any])


class CommandReach(enum.Enum):
    """What a command works on, which determines its shared flags."""

    SERVER = "asks a running server"
    HERE = "works on this machine"
    TEXT = "prints a text for another program, which has no JSON form"


class VerbCommand(click.Command):
    """One command: an imperative line of help, its options, and an example."""

    def __init__(
        self, *args: Any, example: str, reach: CommandReach = CommandReach.SERVER, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.example = example
        self.params.extend(_shared_options(reach))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_example(self.example, formatter)


class NounGroup(click.Group):
    """A thing, and what can be done with it; an unknown verb is answered with the nearest one."""

    def __init__(self, *args: Any, example: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.example = example

    def verb(
        self, name: str, *, example: str, reach: CommandReach = CommandReach.SERVER
    ) -> Callable[[Callable[..., Any]], click.Command]:
        """Register a function as the command `name` of this noun."""

        def register(function: Callable[..., Any]) -> click.Command:
            command = verb(name, example=example, reach=reach)(function)
            self.add_command(command)
            return command

        return register

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UnknownCommand(args[0], known, ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_example(self.example, formatter)


def noun(name: str, *, example: str, hidden: bool = False) -> Callable[[Callable[..., Any]], NounGroup]:
    """Turn a function, whose docstring is the help, into a noun."""
    return click.group(name, cls=NounGroup, example=example, hidden=hidden)


def verb(
    name: str, *, example: str, reach: CommandReach = CommandReach.SERVER
) -> Callable[[Callable[..., Any]], click.Command]:
    """Turn a function, whose docstring is the help, into a command that a noun can take in."""
    return click.command(name, cls=VerbCommand, example=example, reach=reach)


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Declare several options at once, in the order of the help."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _shared_options(reach: CommandReach) -> list[click.Parameter]:
    match reach:
        case CommandReach.SERVER:
            return connection_options()
        case CommandReach.HERE:
            return [json_option()]
        case CommandReach.TEXT:
            return []


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    own: list[tuple[str, str]] = []
    connection: list[tuple[str, str]] = []
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            (connection if isinstance(param, ConnectionOption) else own).append(record)
    for title, records in (("Options", own), ("Connection", connection)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def _write_example(example: str, formatter: click.HelpFormatter) -> None:
    with formatter.section("Example"):
        for line in example.splitlines():
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
