"""What the callables and classes of Temporal's SDK have that ours of the same name lack, found by inspection.

A gap is written as users would: `sleep(event_groups)` is a parameter, `Info.raw_memo` a member of a class, and
`WorkflowHandle.query(reject_condition)` a parameter of one. A parameter that is given by position may have another name
here. Constructors are compared of classes that users construct.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

from penstock.cli.migration.temporal_names import CONSTRUCTED, NameRow

_BY_POSITION = 2
"""So many leading parameters are given by position: their names do not matter."""
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def gaps(row: NameRow) -> Iterator[str]:
    """Yield what the thing of a row that says "same" lacks here."""
    module, _, name = str(row.place).partition(":")
    ours = getattr(importlib.import_module(module), name)
    theirs = getattr(importlib.import_module(f"temporalio.{row.module}"), row.name)
    if inspect.isclass(theirs) and inspect.isclass(ours):
        yield from _of_class(f"{row.module}.{row.name}", theirs, ours)
    elif callable(theirs):
        yield from _of_call(f"{row.module}.{row.name}", theirs, ours)


def _of_class(label: str, theirs: Any, ours: Any) -> Iterator[str]:
    if issubclass(theirs, enum.Enum):
        yield from (f"{label}.{each}" for each in theirs.__members__ if each not in ours.__members__)
        return
    if label in CONSTRUCTED.split():
        yield from _of_call(label, theirs, ours)
    common = members(BaseException) if issubclass(theirs, BaseException) else set()
    there, here = members(theirs) - common, members(ours)
    yield from (f"{label}.{each}" for each in sorted(there - here))
    for each in sorted(there & here):
        their_member, our_member = getattr(theirs, each, None), getattr(ours, each, None)
        if inspect.isroutine(their_member):
            if inspect.isroutine(our_member):
                yield from _of_call(f"{label}.{each}", their_member, our_member)
            else:
                yield f"{label}.{each}()"


def members(cls: type) -> set[str]:
    """The public members of a class: attributes, fields, slots and what its constructors set."""
    found = set(dir(cls))
    for each in cls.__mro__:
        found |= set(getattr(each, "__annotations__", {})) | set(getattr(each, "__slots__", ()))
        constructor = vars(each).get("__init__")
        if inspect.isfunction(constructor):
            found |= _set_by(constructor)
    if dataclasses.is_dataclass(cls):
        found |= {each.name for each in dataclasses.fields(cls)}
    return {name for name in found if not name.startswith("_")}


def _set_by(constructor: Any) -> set[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(constructor)))
    except (OSError, TypeError, SyntaxError):  # made by the interpreter
        return set()
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def _of_call(label: str, theirs: Any, ours: Any) -> Iterator[str]:
    try:
        there, here = _parameters(theirs), _parameters(ours)
    except ValueError:
        return
    accepted, takes_any = _accepted(ours, here)
    by_position = [each for each in here if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    for place, each in enumerate(there):
        if each.kind not in _NAMED or each.name in accepted or takes_any:
            continue
        is_positional = each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        if not (is_positional and place < _BY_POSITION and place < len(by_position)):
            yield f"{label}({each.name})"
    known = {each.name: each for each in there}
    for place, each in enumerate(here):
        is_required = each.default is inspect.Parameter.empty and each.kind in _NAMED
        required_there = each.name in known and known[each.name].default is inspect.Parameter.empty
        if is_required and not required_there and not (place < _BY_POSITION and place < len(there)):
            yield f"{label}(…, {each.name} required)"


def _parameters(call: Any) -> list[inspect.Parameter]:
    found = list(inspect.signature(call).parameters.values())
    return [each for each in found if each.name not in ("self", "cls")]


def _accepted(call: Any, parameters: list[inspect.Parameter]) -> tuple[set[str], bool]:
    """Return the names of all parameters, with those of unpacked options, and whether any name is accepted."""
    names = {each.name for each in parameters}
    rest = next((each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD), None)
    if rest is None:
        return names, False
    target = call.__init__ if inspect.isclass(call) else call
    hint = typing.get_type_hints(target, include_extras=True).get(rest.name)
    if typing.get_origin(hint) is not typing.Unpack:
        return names, True
    options = typing.get_args(hint)[0]
    return names | set(options.__annotations__), False
