"""Names and parameters of a workflow's signal, query and update handlers, as registered with the server."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
_WORDS: Mapping[object, str] = {str: "string", int: "int", float: "float", bool: "bool", type(None): "null"}


def contract(handlers: Mapping[str, Callable[..., Any]]) -> list[Json]:
    """Return the contracts of handlers by name."""
    return [{"name": name, "parameters": parameters(handlers[name])} for name in sorted(handlers)]


def parameters(handler: Callable[..., Any]) -> list[Json]:
    """Return the parameters of a handler in wire format, without `self`."""
    given = list(inspect.signature(handler).parameters.values())
    if given and given[0].name == "self":
        given = given[1:]
    hints = _hints(handler)
    return [_parameter(each, place, hints.get(each.name)) for place, each in enumerate(given)]


def _parameter(each: inspect.Parameter, place: int, hint: Any) -> Json:
    variadic = each.kind is inspect.Parameter.VAR_POSITIONAL
    optional = each.default is not inspect.Parameter.empty
    word, allows_null = _word(hint)
    return {
        "name": each.name,
        "position": place,
        "required": not optional and not variadic,
        "variadic": variadic,
        "default_available": optional,
        "default": None,
        "type": word,
        "allows_null": allows_null or hint is None,
    }


def _word(hint: Any) -> tuple[str | None, bool]:
    """Return the wire name of a type, or None if any value may arrive, and whether null is allowed.

    Only types that arrive unchanged have a name. A date or a dataclass is encoded as something else.
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        words = [_WORDS.get(each) for each in typing.get_args(hint)]
        if None in words:
            return None, True
        return "|".join(sorted({word for word in words if word})), "null" in words
    word = _WORDS.get(hint)
    return word, word is None or word == "null"


def _hints(handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(handler)
    except (NameError, TypeError):
        return {}
