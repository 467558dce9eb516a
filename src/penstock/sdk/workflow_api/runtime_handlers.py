"""Signal, query and update handlers set while a workflow runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.sdk.replay.runtime import current
from penstock.sdk.workflows.definitions import Handler, handler_from


def set_signal_handler(name: str | None, handler: Callable[..., Any] | None) -> None:
    """Set or remove a signal handler at run time. Buffered signals are delivered to it.

    Args:
        name: name of the signal; None handles all signals without a handler.
        handler: the function; None removes the handler.
    """
    _set("signal", name, handler)


def set_query_handler(name: str | None, handler: Callable[..., Any] | None) -> None:
    """Set or remove a query handler at run time.

    Args:
        name: name of the query; None handles all queries without a handler.
        handler: the function; None removes the handler.
    """
    _set("query", name, handler)


def set_update_handler(
    name: str | None, handler: Callable[..., Any] | None, *, validator: Callable[..., Any] | None = None
) -> None:
    """Set or remove an update handler at run time. Buffered updates are delivered to it.

    Args:
        name: name of the update; None handles all updates without a handler.
        handler: the function; None removes the handler.
        validator: may reject an update before it is recorded.
    """
    _set("update", name, handler, validator)


def _set(
    kind: str,
    name: str | None,
    handler: Callable[..., Any] | None,
    validator: Callable[..., Any] | None = None,
) -> None:
    runtime = current()
    runtime.check_writable(f"workflow.set_{kind}_handler()")
    made: Handler | None = None
    if handler is not None:
        made = handler_from(kind, name, handler, validator)
    runtime.handlers.set_handler(kind, name, made)
