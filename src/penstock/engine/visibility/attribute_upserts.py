"""Checking search attributes set by workflow code against their registered types."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.history.commands import Command, ContinueAsNew, StartChild, UpsertSearchAttributes
from penstock.engine.visibility.search_attributes import check_values
from penstock.ports.store import Tx


async def check_upserts(tx: Tx, namespace: str, commands: Sequence[Command]) -> None:
    """Raise `ValidationFailed`, naming the command, for values that do not match their registered type."""
    for index, command in enumerate(commands):
        if isinstance(command, UpsertSearchAttributes):
            await check_values(tx, namespace, command.attributes, f"commands.{index}.attributes")
        elif isinstance(command, StartChild | ContinueAsNew) and command.search_attributes:
            await check_values(
                tx, namespace, command.search_attributes, f"commands.{index}.search_attributes"
            )
