"""What is wrong with a dispatch configuration, said in a way that leads to the right word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import ConfigurationError
from penstock.schema.nearest import nearest

Suggest = Callable[[str, Iterable[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: the full path of the value, what is the matter, and what would be right."""

    path: str
    message: str
    hint: str = ""
    origin: str = ""
    """Where the value was given: `penstock.toml:12`, an environment variable, a flag."""

    def __str__(self) -> str:
        where = f"{self.path} ({self.origin})" if self.path and self.origin else self.path or self.origin
        text = f"{where}: {self.message}" if where else self.message
        return f"{text}; {self.hint}" if self.hint else text


class DispatchConfigError(ConfigurationError, ValueError):
    """The dispatch configuration cannot be used. `problems` names all of its faults at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)), problems=[str(each) for each in self.problems])

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[DispatchConfigError], tuple[list[Problem]]]:
        return type(self), (self.problems,)


class WorkerTaskQueueUnknownError(DispatchConfigError):
    """A worker was told to serve a task queue that the configuration does not know."""


class WorkerProfileUnknownError(DispatchConfigError):
    """A worker was told to use a profile that the configuration does not know."""


class WorkerScopeUnknownError(DispatchConfigError):
    """A worker was told to register a scope that neither the configuration nor the program knows."""


class WorkerScopeEmptyError(DispatchConfigError):
    """The scope leaves nothing to register."""


class WorkerNothingToDoError(DispatchConfigError):
    """Profile and scope together leave a worker without any task that it could take."""


def unknown(noun: str, name: str, known: Iterable[str], plural: str) -> Problem:
    """The three lines: what is not declared, what is, and what was probably meant."""
    names = sorted(known)
    first = f"{noun} {name!r} is not declared in config." if name.strip() else f"{noun} is empty."
    lines = [first, f"  Known {plural}: {names!r}"]
    if meant := nearest(name, names):
        lines.append(f"  {did_you_mean(meant)}")
    return Problem("", "\n".join(lines))


def did_you_mean(names: Sequence[str]) -> str:
    """`Did you mean: 'a' or 'b'?`"""
    return f"Did you mean: {' or '.join(map(repr, names))}?"


def hint_towards(word: str, known: Iterable[str], suggest: Suggest = nearest) -> str:
    """The same as the end of a sentence; empty if nothing is near."""
    near = suggest(word, known)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
