"""The program `dw`: the contract's commands first, then all of ours, with the contract's options and exit codes."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from penstock.cli.contract.alias import CommandAlias, ContractCommand, spelled
from penstock.cli.contract.request import REQUESTS
from penstock.cli.contract.session import ContractSession, exit_code_of
from penstock.cli.contract.table import ALIASES, PLURALS, REFUSED
from penstock.cli.grammar import VerbCommand
from penstock.cli.output.exits import CommandError
from penstock.cli.program import COMMANDS, Program, program, run_as


class NotHere(CommandError):
    """A command of the contract that we do not have (exit code 2)."""

    exit_code = 2

    def __init__(self, name: str) -> None:
        super().__init__("command_not_here", f"dw {name} is not there.", REFUSED[name])


class ContractProgram(Program):
    """Finds a command by the contract's name, else by ours; an unknown one is answered with the nearest."""

    table = COMMANDS | {"env": "penstock.cli.contract.environment_commands:env"}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        extra.setdefault("obj", ContractSession())
        return super().make_context(info_name, args, parent, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        first, *rest = args
        noun, colon, verb = first.partition(":")
        first = f"{PLURALS.get(noun, noun)}{colon}{verb}"
        name, command, rest = self._of_contract(ctx, [first, *rest]) or self._of_ours(ctx, [first, *rest])
        ctx.ensure_object(ContractSession).command = name
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as problem:
            code = exit_code_of(problem)
            ctx.ensure_object(ContractSession).show_problem(problem, code)
            problem.show()
            ctx.exit(code)

    def _of_contract(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str, click.Command, list[str]] | None:
        """The command of the contract, written `noun:verb` or `noun verb`."""
        for count in (1, 2):
            name = ":".join(args[:count])
            if name in REFUSED:
                raise NotHere(name)
            if name in REQUESTS:
                made = REQUESTS[name].command(name)
                return name, ContractCommand(name, made, CommandAlias(ours=name)), args[count:]
            if name in ALIASES:
                rest = args[count:]
                return name, self._alias(ctx, name, ALIASES[name].meant_by(rest)), rest
        return None

    def _of_ours(self, ctx: click.Context, args: list[str]) -> tuple[str, click.Command, list[str]]:
        """Any command of ours, down to its verb."""
        found, command, rest = super().resolve_command(ctx, args)
        name = str(found)
        while isinstance(command, click.Group) and rest and rest[0] in command.list_commands(ctx):
            name, command, rest = f"{name}:{rest[0]}", command.get_command(ctx, rest[0]), rest[1:]
        assert command is not None, "an unknown name is an error before this"
        if isinstance(command, VerbCommand):
            command = ContractCommand(name, command, CommandAlias(ours=name))
        return name, command, rest

    def _alias(self, ctx: click.Context, name: str, alias: CommandAlias) -> ContractCommand:
        noun, *verbs = alias.ours.split()
        command = self.get_command(ctx, noun)
        for each in verbs:
            assert isinstance(command, click.Group), alias.ours
            command = command.get_command(ctx, each)
        assert isinstance(command, VerbCommand), alias.ours
        return ContractCommand(name, command, alias)


dw = ContractProgram(
    "dw",
    example="dw workflow:list --status running --output json",
    help=program.help,
    callback=lambda: None,
    params=spelled(program.params, CommandAlias(ours=""), connects=True),
)


def run() -> NoReturn:
    """Run the command line as `dw`; never returns."""
    run_as(dw, "dw")
