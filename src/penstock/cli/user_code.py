"""Imports user code by name: `module`, `module:name`, or `path/to/file.py:name`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import click

from penstock.cli.output.escapes import shown
from penstock.cli.output.exits import CommandError, Exit
from penstock.errors import ConfigurationError, MultipleValidationErrors
from penstock.schema.nearest import nearest

_IMPORT_FRAMES = (f"{os.sep}importlib{os.sep}", "<frozen importlib")


class NameNotFound(click.UsageError):
    """The name does not exist in user code (exit code 2); nothing was sent."""


def load_module(name: str) -> ModuleType:
    """Import a module as a program in the current directory would. Its exceptions are shown with their traceback."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise NameNotFound(f"{shown(name)!r} is no name of a module. {_hint_for_path(name)}")
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NameNotFound(
                f"There is no module {error.name!r}. It is looked for in this directory and among the installed"
                " packages: go to the directory above your package, or set PYTHONPATH."
            ) from None
        raise _import_error(name, error) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _import_error(name, error) from error


def load_one(path: str, is_wanted: Callable[[Any], bool], wanted: str) -> Any:
    """Load the object that `module:name` names, or the only matching one of a module. The module may be a file."""
    place, colon, name = path.partition(":")
    if place.endswith(".py"):
        place = module_of_file(place)
    if colon:
        return load_named(f"{place}:{name}", is_wanted, wanted)
    module = load_module(place)
    there = {id(value): each for each, value in vars(module).items() if is_wanted(value)}
    if len(there) == 1:
        return getattr(module, next(iter(there.values())))
    if not there:
        raise NameNotFound(f"Nothing in {place} is {wanted}.")
    named = " or ".join(f"{place}:{each}" for each in there.values())
    raise NameNotFound(f"{place} has {len(there)} of them: choose one of {named}.")


def module_of_file(text: str) -> str:
    """The name by which a file is imported, here and in processes that are started from here."""
    file = Path(text)
    if not file.is_file():
        dotted = text.removesuffix(".py")
        if "/" not in text and all(part.isidentifier() for part in dotted.split(".")):
            raise NameNotFound(f"There is no file {text!r}. A module is named without .py: {dotted}.")
        raise NameNotFound(f"There is no file {shown(text)!r} in this directory.")
    file = file.resolve()
    root = Path.cwd()
    if not file.is_relative_to(root) or not _is_dotted(file.relative_to(root)):
        root = file.parent
        while (root / "__init__.py").exists():
            root = root.parent
    inside = file.relative_to(root)
    if not _is_dotted(inside):
        raise NameNotFound(f"{shown(text)!r} cannot be imported: {inside.stem!r} is no name in Python.")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    parts = inside.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _is_dotted(file: Path) -> bool:
    return all(part.isidentifier() for part in file.with_suffix("").parts)


def load_named(path: str, is_wanted: Callable[[Any], bool], wanted: str) -> Any:
    """The object that `module:name` refers to, if it is of the wanted kind."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise NameNotFound(
            f"{shown(path)!r} does not name {wanted}: write module:name, such as myapp.instance:app."
        )
    module = load_module(module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise NameNotFound(f"{module_name} has no {name!r}.{_nearest(module, name, is_wanted, wanted)}")
        found = getattr(found, part)
    if not is_wanted(found):
        kind = type(found).__name__
        raise NameNotFound(
            f"{path} is not {wanted}, but {_article(kind)} {kind}.{_nearest(module, name, is_wanted, wanted)}"
        )
    return found


def _nearest(module: ModuleType, name: str, is_wanted: Callable[[Any], bool], wanted: str) -> str:
    there = [each for each, value in vars(module).items() if is_wanted(value)]
    if not there:
        return f" Nothing in {module.__name__} is {wanted}."
    near = nearest(name, there) or there[:3]
    return f" Did you mean {' or '.join(f'{module.__name__}:{each}' for each in near)}?"


def _hint_for_path(name: str) -> str:
    dotted = name.removesuffix(".py").strip("./").replace("/", ".")
    if ("/" in name or name.endswith(".py")) and all(part.isidentifier() for part in dotted.split(".")):
        return f"Write it with dots: {dotted}."
    return "Write it as in an import: myapp.instance."


def _article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" else "a"


class AppMisconfigured(CommandError):
    """The configuration of an app is invalid (exit code 2); every problem is listed."""

    exit_code = int(Exit.USAGE)

    def __init__(self, error: ConfigurationError, place: str) -> None:
        several = error.errors if isinstance(error, MultipleValidationErrors) else []
        message = error.message.partition("\n")[0].rstrip(":") if several else error.message
        super().__init__("configuration_invalid", message, f"It is made at {place}.")
        self.notes = tuple(f"- {each.message}" for each in several)


def _import_error(name: str, error: BaseException) -> CommandError:
    """The user's module raised: show its traceback without our frames."""
    theirs = _user_traceback(error.__traceback__)
    if isinstance(error, ConfigurationError):
        return AppMisconfigured(error, _last_user_line(theirs))
    lines = traceback.format_exception(type(error), error, theirs)
    click.echo(shown_lines("".join(lines)), err=True, nl=False)
    return CommandError(
        "import_failed", f"{name} cannot be imported: {type(error).__name__}.", "See its traceback above."
    )


def _last_user_line(trace: TracebackType | None) -> str:
    """The innermost line that is not the library's."""
    ours = str(Path(__file__).parents[1])
    found = "an unknown place"
    for frame in traceback.extract_tb(trace):
        if not frame.filename.startswith((ours, "<")):
            found = f"{frame.filename}:{frame.lineno}"
    return found


def shown_lines(text: str) -> str:
    """Text of several lines that a terminal may be given."""
    return "".join(f"{shown(line)}\n" for line in text.splitlines())


def _user_traceback(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and not any(each in file for each in _IMPORT_FRAMES):
            return trace
        trace = trace.tb_next
    return None
