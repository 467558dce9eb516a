"""Phrases a command for the person to type next, so that it means the same place as the one just typed."""

from __future__ import annotations

import shlex

import click


def command_hint(*words: str) -> str:
    """The command in backticks, quoted for the shell, with the --namespace that the current one was given."""
    ctx = click.get_current_context(silent=True)
    namespace = ctx.obj.namespace if ctx and ctx.obj else None
    within = ("--namespace", namespace) if namespace else ()
    return f"`{shlex.join(['penstock', *words, *within])}`"
