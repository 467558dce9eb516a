"""Renders the help of every command as one Markdown page, so that the reference cannot disagree with it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click

from penstock.cli.grammar import CommandReach, NounGroup, VerbCommand, noun
from penstock.cli.transport.session import ConnectionOption

_OPENING = """\
# Command line

<!-- Written by `penstock docs cli`. Change the help texts, then run it again. -->

Every command is a noun and a verb, and `noun:verb` means the same as `noun verb`. [`dw`](dw.md) has the same commands
in the spelling of the Durable Workflow contract: `dw task-queue:describe payments --json`.

Data goes to stdout, messages to stderr. `--json` prints the server's response unchanged. Colour is off where
`NO_COLOR` is set or the output is not a terminal.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused by the server, or failed |
| 2 | usage: the command line was not understood; nothing was sent |
| 3 | no usable answer from the server |
| 78 | the configuration is not valid |
| 124 | timed out: the workflow, activity or update is still open |
| 130 | stopped with Ctrl-C |

These flags are accepted before the noun and after the verb. A token is sent over plain http only to this machine,
unless `--insecure` is given.

"""


@noun("docs", example="penstock docs cli > docs/reference/cli.md", hidden=True)
def docs() -> None:
    """Print pages of the documentation that are generated from the program."""


@docs.verb("cli", example="penstock docs cli > docs/reference/cli.md", reach=CommandReach.TEXT)
@click.pass_context
def print_reference(ctx: click.Context) -> None:
    """Print the command line reference as Markdown."""
    root = ctx.find_root().command
    assert isinstance(root, NounGroup)
    click.echo(render(root), nl=False)


def _add_page(page: str, help_text: str, module: str, function: str) -> None:
    """Add a command that prints what a function of a module returns; the module is imported on use."""

    def print_page() -> None:
        click.echo(getattr(importlib.import_module(module), function)(), nl=False)

    print_page.__doc__ = f"Print the reference of {help_text} as Markdown."
    example = f"penstock docs {page} > docs/reference/{page}.md"
    docs.verb(page, example=example, reach=CommandReach.TEXT)(print_page)


_add_page("settings", "all settings", "penstock.settings", "reference_markdown")
_add_page("reasons", "all reasons for refusals", "penstock.server.reference.markdown", "reasons_markdown")
_add_page("errors", "the SDK's errors", "penstock.cli.reference.errors", "errors_markdown")
_add_page("dw", "the contract's commands", "penstock.cli.contract.page", "contract_markdown")
_add_page("temporalio", "Temporal's names", "penstock.cli.migration.temporal_page", "temporal_markdown")
_add_page("http", "all HTTP operations", "penstock.server.reference.markdown", "operations_markdown")


def render(root: NounGroup) -> str:
    """Return the reference page for a program and all that is in it."""
    ctx = click.Context(root, info_name="penstock")
    parts = [_OPENING + _option_table(root, ctx, shared=True)]
    parts.extend(_section(command, ctx, level=2) for command in _visible(root, ctx))
    return "\n".join(parts)


def _section(command: click.Command, parent: click.Context, level: int) -> str:
    ctx = click.Context(command, info_name=command.name, parent=parent)
    lines = [f"{'#' * level} {ctx.command_path}", "", command.help or "", ""]
    if isinstance(command, NounGroup):
        return "\n".join(lines) + "".join(
            "\n" + _section(child, ctx, level + 1) for child in _visible(command, ctx)
        )
    assert isinstance(command, VerbCommand)
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines += ["```", f"{ctx.command_path} {usage}", "```", ""]
    if table := _option_table(command, ctx, shared=False):
        lines += [table]
    lines += ["```console", f"$ {command.example}", "```", ""]
    return "\n".join(lines)


def _option_table(command: click.Command, ctx: click.Context, shared: bool) -> str:
    rows = [
        f"| `{_cell(names)}` | {_cell(text)} |"
        for names, text in _records(command, ctx, shared)
        if not names.startswith("--help")
    ]
    return "\n".join(["| option | meaning |", "|---|---|", *rows, ""]) if rows else ""


def _records(command: click.Command, ctx: click.Context, shared: bool) -> Iterator[tuple[str, str]]:
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None and isinstance(param, ConnectionOption) == shared:
            yield record


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("  ", " ")


def _visible(group: NounGroup, ctx: click.Context) -> Iterator[click.Command]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None and not command.hidden:
            yield command
