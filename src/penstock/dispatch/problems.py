"""Problems of a dispatch configuration, and the errors that carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import ConfigurationError
from penstock.schema.nearest import nearest

Suggest = Callable[[str, Iterable[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the full path of the value, what is wrong, and how to fix it."""

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
    """The worker's task queue is not declared in the configuration."""


class WorkerProfileUnknownError(DispatchConfigError):
    """The worker's profile is not declared in the configuration."""


class WorkerScopeUnknownError(DispatchConfigError):
    """The worker's scope is known neither to the configuration nor to the program."""


class WorkerScopeEmptyError(DispatchConfigError):
    """The scope leaves nothing to register."""


class WorkerNothingToDoError(DispatchConfigError):
    """Profile and scope together leave a worker without any task that it could take."""


def unknown(noun: str, name: str, known: Iterable[str], plural: str) -> Problem:
    """Three lines: the undeclared name, the declared ones, and a suggestion."""
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
    """A suggestion as the end of a sentence; empty if no name is near."""
    near = suggest(word, known)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
