"""Finds what a person names in their own code: `module`, or `module:name`."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

import click

from penstock.cli.escaping import shown
from penstock.cli.exits import Ended

_NOT_THEIRS = (f"{os.sep}importlib{os.sep}", "<frozen importlib")


class NotFound(click.UsageError):
    """What was named is not there (exit code 2); nothing was sent."""


def load_module(name: str) -> ModuleType:
    """Import a module as a program in the current directory would. What it raises is shown as it was raised."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise NotFound(f"{shown(name)!r} is no name of a module. {_hint_for_path(name)}")
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotFound(
                f"There is no module {error.name!r}. It is looked for in this directory and among the installed"
                " packages: go to the directory above your package, or set PYTHONPATH."
            ) from None
        raise _broken(name, error) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _broken(name, error) from error


def load_named(path: str, is_wanted: Callable[[Any], bool], wanted: str) -> Any:
    """What `module:name` names, if it is of the wanted kind."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise NotFound(
            f"{shown(path)!r} does not name {wanted}: write module:name, such as myapp.instance:app."
        )
    module = load_module(module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise NotFound(f"{module_name} has no {name!r}.{_nearest(module, name, is_wanted, wanted)}")
        found = getattr(found, part)
    if not is_wanted(found):
        kind = type(found).__name__
        raise NotFound(
            f"{path} is not {wanted}, but {_article(kind)} {kind}.{_nearest(module, name, is_wanted, wanted)}"
        )
    return found


def _nearest(module: ModuleType, name: str, is_wanted: Callable[[Any], bool], wanted: str) -> str:
    there = [each for each, value in vars(module).items() if is_wanted(value)]
    if not there:
        return f" Nothing in {module.__name__} is {wanted}."
    near = difflib.get_close_matches(name, there, 3, 0.5) or there[:3]
    return f" Did you mean {' or '.join(f'{module.__name__}:{each}' for each in near)}?"


def _hint_for_path(name: str) -> str:
    dotted = name.removesuffix(".py").strip("./").replace("/", ".")
    if ("/" in name or name.endswith(".py")) and all(part.isidentifier() for part in dotted.split(".")):
        return f"Write it with dots: {dotted}."
    return "Write it as in an import: myapp.instance."


def _article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" else "a"


def _broken(name: str, error: BaseException) -> Ended:
    """Their module raised. They see their own lines and none of ours."""
    theirs = _without_ours(error.__traceback__)
    lines = traceback.format_exception(type(error), error, theirs)
    click.echo(shown_lines("".join(lines)), err=True, nl=False)
    return Ended(
        "import_failed",
        f"{name} cannot be imported: {type(error).__name__}.",
        "Its traceback stands above.",
    )


def shown_lines(text: str) -> str:
    """Text of several lines that a terminal may be given."""
    return "".join(f"{shown(line)}\n" for line in text.splitlines())


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and not any(each in file for each in _NOT_THEIRS):
            return trace
        trace = trace.tb_next
    return None
