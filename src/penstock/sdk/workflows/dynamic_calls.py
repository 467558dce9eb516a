"""Arguments of dynamic workflows and handlers, which take calls of any name and so any arguments.

Their signature says what they get: `Sequence[RawValue]` gets all arguments as received, to be converted once the name
is known; other parameters get the arguments one by one, converted to their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.sdk.converters.raw_value import RawValue, is_sequence_of_raw_values
from penstock.sdk.workflows.definitions import Handler, WorkflowDefinition


def handler_arguments(handler: Handler, name: str, received: Sequence[RawValue]) -> list[Any]:
    """Return the arguments of a dynamic handler of signals, queries or updates.

    Args:
        handler: the handler.
        name: the name that was called.
        received: the arguments.
    """
    hints = handler.parameters.types[1:]
    if hints and is_sequence_of_raw_values(hints[0]):
        return [name, list(received)]
    return [name, *(each.to(hints[at] if at < len(hints) else None) for at, each in enumerate(received))]


def run_arguments(definition: WorkflowDefinition, received: Sequence[RawValue]) -> list[Any]:
    """Return the arguments of a dynamic workflow: a list of all.

    Args:
        definition: the workflow.
        received: the arguments of the start.
    """
    hints = definition.parameters.types
    if hints and is_sequence_of_raw_values(hints[0]):
        return [list(received)]
    return [[each.to(None) for each in received]]
