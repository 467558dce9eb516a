"""Builds the next command to suggest, with the program name and options of the current one."""

from __future__ import annotations

import shlex

import click


def command_hint(*words: str) -> str:
    """The command in backticks, quoted for the shell, with the --namespace that the current one was given."""
    ctx = click.get_current_context(silent=True)
    namespace = ctx.obj.namespace if ctx and ctx.obj else None
    within = ("--namespace", namespace) if namespace else ()
    return f"`{shlex.join(['penstock', *words, *within])}`"
