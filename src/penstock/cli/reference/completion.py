"""The command that prints a shell's completion script."""

from __future__ import annotations

import click

from penstock.cli.grammar import CommandReach, VerbCommand


@click.command(
    "completion",
    cls=VerbCommand,
    reach=CommandReach.TEXT,
    example='eval "$(penstock completion bash)"   # in ~/.bashrc',
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    root = ctx.find_root()
    program = root.info_name or "penstock"
    script = get_completion_class(shell)
    assert script is not None
    completer = script(root.command, {}, program, f"_{program}_COMPLETE".upper().replace("-", "_"))
    click.echo(completer.source_template % completer.source_vars())
