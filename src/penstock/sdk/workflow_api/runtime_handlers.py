"""Signal, query and update handlers set while a workflow runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from penstock.sdk.workflow_port.port import current
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


def get_signal_handler(name: str) -> Callable[..., Any] | None:
    """Return the handler of a signal: a bound method, or the function that was set; None if there is none.

    Args:
        name: name of the signal.
    """
    return current().get_handler("signal", name)


def get_query_handler(name: str) -> Callable[..., Any] | None:
    """Return the handler of a query; None if there is none.

    Args:
        name: name of the query.
    """
    return current().get_handler("query", name)


def get_update_handler(name: str) -> Callable[..., Any] | None:
    """Return the handler of an update; None if there is none.

    Args:
        name: name of the update.
    """
    return current().get_handler("update", name)


def get_dynamic_signal_handler() -> Callable[..., Any] | None:
    """Return the handler of signals without a handler of their own; None if there is none."""
    return current().get_handler("signal", None)


def get_dynamic_query_handler() -> Callable[..., Any] | None:
    """Return the handler of queries without a handler of their own; None if there is none."""
    return current().get_handler("query", None)


def get_dynamic_update_handler() -> Callable[..., Any] | None:
    """Return the handler of updates without a handler of their own; None if there is none."""
    return current().get_handler("update", None)


def set_dynamic_signal_handler(handler: Callable[..., Any] | None) -> None:
    """Set or remove the handler of signals without a handler of their own.

    Args:
        handler: the function, `(name, args: Sequence[RawValue])` or `(name, *args)`; None removes it.
    """
    _set("signal", None, handler)


def set_dynamic_query_handler(handler: Callable[..., Any] | None) -> None:
    """Set or remove the handler of queries without a handler of their own.

    Args:
        handler: the function, `(name, args: Sequence[RawValue])` or `(name, *args)`; None removes it.
    """
    _set("query", None, handler)


def set_dynamic_update_handler(
    handler: Callable[..., Any] | None, *, validator: Callable[..., Any] | None = None
) -> None:
    """Set or remove the handler of updates without a handler of their own.

    Args:
        handler: the function, `(name, args: Sequence[RawValue])` or `(name, *args)`; None removes it.
        validator: may reject an update before it is recorded.
    """
    _set("update", None, handler, validator)


def _set(
    kind: str,
    name: str | None,
    handler: Callable[..., Any] | None,
    validator: Callable[..., Any] | None = None,
) -> None:
    port = current()
    port.check_writable(f"workflow.set_{kind}_handler()")
    if kind == "query" and inspect.iscoroutinefunction(handler):
        raise TypeError("A query handler is async here: queries answer at once, so write `def`")
    made: Handler | None = None
    if handler is not None:
        made = handler_from(kind, name, handler, validator)
    port.set_handler(kind, name, made)
