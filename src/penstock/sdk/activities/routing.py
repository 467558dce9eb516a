"""Routing keys: values computed from an activity's arguments that choose its task queue.

The rule is given in `@activity.defn(routing_key=...)` and evaluated by workflow code for every call. It must
therefore be deterministic: it depends on the arguments and on nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock.schema.nearest import nearest

KEY_MAX: Final = 1_000


class RoutingKeyError(ValueError):
    """The arguments of a call give no routing key: a bug in the caller, which a retry does not fix."""


@dataclass(frozen=True, slots=True)
class Argument:
    """Refers to the argument for the parameter of this name."""

    name: str


RoutingKey = str | Argument | Callable[..., str | Enum | None]
"""A path on the first argument (`"job.model"`), `arg("model")`, or a pure function of the arguments."""


def arg(name: str) -> Argument:
    """Use the value of a named parameter as routing key: `@activity.defn(routing_key=arg("model"))`.

    Args:
        name: name of a parameter of the activity.
    """
    if not isinstance(name, str):
        raise TypeError(f"arg() takes the name of a parameter, not {type(name).__name__}")
    if not name.isidentifier():
        raise ValueError(f"arg() takes the name of a parameter, not {name!r}")
    return Argument(name)


def check_rule(rule: object, parameters: Sequence[str], what: str) -> None:
    """Raise if the rule can never give a key for a function with these parameters."""
    if rule is None:
        return
    if isinstance(rule, str):
        _check_path(rule, parameters, what)
    elif isinstance(rule, Argument):
        _check_argument(rule, parameters, what)
    elif callable(rule):
        _check_callable(rule, parameters, what)
    else:
        raise TypeError(
            f'{what}: routing_key is a path such as "job.model", arg("model") or a function of the arguments, '
            f"not {type(rule).__name__}"
        )


def key_of(
    rule: RoutingKey | None, parameters: Sequence[str], values: Sequence[Any], what: str
) -> str | None:
    """Return the routing key of a call. Raises `RoutingKeyError` if the arguments give none."""
    if rule is None:
        return None
    try:
        found = _found(rule, parameters, values)
    except RoutingKeyError as error:
        raise RoutingKeyError(f"{what}: {error}") from None
    except Exception as error:
        raise RoutingKeyError(
            f"{what}: its routing key cannot be computed: {type(error).__name__}: {error}"
        ) from error
    return checked_key(found, what)


def checked_key(key: object, what: str) -> str | None:
    """Validate an explicit key; None is no key. Raises `RoutingKeyError`."""
    value = key.value if isinstance(key, Enum) else key
    if value is None and key is None:
        return None
    if not isinstance(value, str):
        shown = f"{type(key).__name__} with the value {value!r}" if isinstance(key, Enum) else repr(key)[:100]
        raise RoutingKeyError(f"{what}: a routing key is text, an Enum of texts or None, not {shown}")
    if len(value) > KEY_MAX:
        raise RoutingKeyError(f"{what}: a routing key has at most {KEY_MAX} characters, not {len(value)}")
    if not is_plain(value):
        raise RoutingKeyError(
            f"{what}: a routing key is text without NUL and halves of pairs, not {value[:100]!a}"
        )
    return str(value)


def is_plain(key: str) -> bool:
    """Whether servers and databases can store the key unchanged."""
    if key.isascii():
        return "\0" not in key
    return "\0" not in key and not any("\ud800" <= letter <= "\udfff" for letter in key)


def _found(rule: RoutingKey, parameters: Sequence[str], values: Sequence[Any]) -> object:
    if isinstance(rule, str):
        return _along(rule, values)
    if isinstance(rule, Argument):
        place = parameters.index(rule.name)
        if place >= len(values):
            raise RoutingKeyError(f"no argument was given for {rule.name!r}, its routing key")
        return values[place]
    return rule(*values)


def _along(path: str, values: Sequence[Any]) -> object:
    if not values:
        raise RoutingKeyError(f"its routing key is {path!r} of the first argument, and none was given")
    found = values[0]
    for part in path.split("."):
        found = _step(found, part, path)
    return found


def _step(value: Any, part: str, path: str) -> Any:
    if isinstance(value, Mapping):
        if part in value:
            return value[part]
        known = [each for each in value if isinstance(each, str)]
    elif hasattr(value, part):
        return getattr(value, part)
    else:
        known = [each for each in dir(value) if not each.startswith("_")]
    raise RoutingKeyError(
        f"its routing key is {path!r}, and {type(value).__name__} has no {part!r}{_hint(part, known)}"
    )


def _check_path(path: str, parameters: Sequence[str], what: str) -> None:
    if not path or not all(part.isidentifier() for part in path.split(".")):
        raise ValueError(f'{what}: routing_key is a path of names such as "job.model", not {path!r}')
    if not parameters:
        raise ValueError(
            f"{what}: routing_key={path!r} looks at the first argument, and the function takes none"
        )


def _check_argument(rule: Argument, parameters: Sequence[str], what: str) -> None:
    if rule.name not in parameters:
        takes = ", ".join(parameters) or "nothing"
        hint = _hint(rule.name, parameters)
        raise ValueError(f"{what} has no parameter {rule.name!r} for its routing key; it takes {takes}{hint}")


def _check_callable(rule: Callable[..., Any], parameters: Sequence[str], what: str) -> None:
    if inspect.iscoroutinefunction(rule):
        raise TypeError(f"{what}: the function of a routing key is a plain one: write def, not async def")
    try:
        inspect.signature(rule).bind(*parameters)
    except ValueError:
        return  # a builtin without a signature
    except TypeError as error:
        takes = ", ".join(parameters) or "nothing"
        raise TypeError(
            f"{what}: the function of its routing key is called with the arguments ({takes}): {error}"
        ) from None


def _hint(word: str, known: Sequence[str]) -> str:
    near = nearest(word, known)
    return f". Did you mean {near[0]!r}?" if near else ""
