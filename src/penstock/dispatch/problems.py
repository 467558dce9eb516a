"""Errors of a dispatch configuration, which carry all its problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.errors import ConfigurationError
from penstock.schema.nearest import nearest
from penstock.schema.problems import Problem, either


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
        lines.append(f"  Did you mean: {either(meant)}?")
    return Problem("", "\n".join(lines))
