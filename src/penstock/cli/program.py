"""The program: a table of commands, each imported on first use."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

import click

from penstock.cli.grammar import NounGroup
from penstock.cli.output.exits import UnknownCommand
from penstock.cli.transport.session import CliSession, connection_options

COMMANDS = {
    "dev": "penstock.cli.server.dev:dev",
    "demo": "penstock.cli.demo.command:demo",
    "workflow": "penstock.cli.workflows.commands:workflow",
    "activity": "penstock.cli.activities.activity:activity",
    "schedule": "penstock.cli.schedules.commands:schedule",
    "bridge": "penstock.cli.bridges.commands:bridge",
    "search-attribute": "penstock.cli.visibility.search_attribute:search_attribute",
    "task-queue": "penstock.cli.matching.task_queue:task_queue",
    "budget-group": "penstock.cli.limits.budget_group:budget_group",
    "why": "penstock.cli.visibility.why:why",
    "top": "penstock.cli.top.command:top",
    "worker": "penstock.cli.workers.commands:worker",
    "dispatch": "penstock.cli.dispatch.commands:dispatch",
    "namespace": "penstock.cli.operations.namespace:namespace",
    "cluster": "penstock.cli.limits.cluster:cluster",
    "change": "penstock.cli.limits.change_sets:change",
    "system": "penstock.cli.operations.system:system",
    "server": "penstock.cli.server.commands:server",
    "db": "penstock.cli.server.db:db",
    "config": "penstock.cli.server.config:config",
    "journal": "penstock.cli.operations.journal:journal",
    "verify": "penstock.cli.operations.verify:verify",
    "trace": "penstock.cli.traces.commands:trace",
    "simulate": "penstock.cli.simulation.commands:simulate",
    "migrate": "penstock.cli.migration.commands:migrate",
    "completion": "penstock.cli.reference.completion:completion",
    "docs": "penstock.cli.reference.commands:docs",
}


class Program(NounGroup):
    """Finds a command by its noun and verb, written `noun verb` or `noun:verb`."""

    table: Mapping[str, str] = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        words = args[0].split(":")
        if len(words) > 1 and all(words) and words[0] in self.table:
            args = [*words, *args[1:]]
        elif len(words) > 1:
            raise UnknownCommand(args[0], self._colon_forms(ctx), ctx)
        return super().resolve_command(ctx, args)

    def _colon_forms(self, ctx: click.Context) -> list[str]:
        """Every `noun:verb`, for suggestions."""
        forms: list[str] = []
        for name in self.table:
            command = self.get_command(ctx, name)
            if isinstance(command, click.Group):
                forms.extend(f"{name}:{verb}" for verb in command.list_commands(ctx))
        return forms


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"penstock {version('penstock')}")
        ctx.exit()


@click.command(
    cls=Program,
    example="penstock workflow list --status running",
    params=[
        *connection_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_version,
            help="Show the version and exit.",
        ),
    ],
)
@click.pass_context
def program(ctx: click.Context) -> None:
    """Run and inspect durable workflows and task queues."""
    ctx.ensure_object(CliSession)


def run() -> NoReturn:
    """Run the command line as `penstock`; never returns."""
    run_as(program, "penstock")


def run_as(root: Program, name: str) -> NoReturn:
    """Run a command line under the given program name; never returns."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    color = False if os.environ.get("NO_COLOR") else None
    root.main(prog_name=name, color=color)
    raise AssertionError("click leaves the process by itself")
