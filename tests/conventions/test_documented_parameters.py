"""Every parameter of the SDK's front door is documented in the docstring of its function or class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from penstock import Client, Penstock, Worker, activity, workflow

PASSED_ON = ("self", "cls", "fn", "arg", "args")
"""The decorated function, and the arguments that are passed on to user code."""

UNDOCUMENTED: frozenset[str] = frozenset()
"""Debts: functions with parameters that are not documented yet. Entries are only removed."""


def test_every_parameter_of_the_front_door_is_documented() -> None:
    missing: list[str] = []
    for name, function, doc in front_door():
        lacking = [each for each in parameters(function) if not is_named(each, doc)]
        if lacking and name not in UNDOCUMENTED:
            missing.append(f"{name}: document {', '.join(lacking)}, in Args: or in its sentence")
    assert not missing, "\n" + "\n".join(missing)


def front_door() -> Iterator[tuple[str, Callable[..., Any], str]]:
    for owner in (Client, Worker, Penstock):
        for name, member in vars(owner).items():
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                docs = (function.__doc__, owner.__doc__) if name == "__init__" else (function.__doc__,)
                yield f"{owner.__name__}.{name}", function, "\n".join(each or "" for each in docs)
    for module in (workflow, activity):
        yield from public_functions(module)


def public_functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any], str]]:
    short = module.__name__.rpartition(".")[2]
    for name in module.__all__:
        function = getattr(module, name)
        if inspect.isfunction(function):
            yield f"{short}.{name}", function, function.__doc__ or ""


def parameters(function: Callable[..., Any]) -> list[str]:
    """Named ones; `**options` is documented by its TypedDict."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in PASSED_ON and not name.startswith("_") and parameter.kind is not parameter.VAR_KEYWORD
    ]


def is_named(parameter: str, doc: str) -> bool:
    return re.search(rf"\b{re.escape(parameter)}\b", doc) is not None
