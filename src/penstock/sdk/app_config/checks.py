"""Validation of configurations: all problems are found and reported together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Self

from penstock.errors import ConfigurationError, MultipleValidationErrors
from penstock.schema.nearest import nearest

Problems = Iterator[ConfigurationError]
NUMBER_MAX = 2**31 - 1


class ValidatedConfig:
    """A frozen, keyword-only dataclass that refuses unknown fields and suggests the nearest name."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        found = list(_unknown(cls, named))
        if given:
            message = f"{cls.__name__} takes keywords only: write {cls.__name__}(name=value, …)"
            found.append(ConfigurationError(message, kind="bad_keyword"))
        raise_all(cls.__name__, found)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        raise_all(type(self).__name__, self.problems())

    def problems(self) -> Problems:
        """Return all problems."""
        yield from ()


def raise_all(what: str, problems: Iterable[ConfigurationError]) -> None:
    """Raise one problem as it is, several as one error that lists them."""
    found = list(problems)
    if len(found) == 1:
        raise found[0]
    if found:
        raise MultipleValidationErrors(what, found)


def problem(kind: str, field: str, message: str, advice: str = "") -> ConfigurationError:
    text = f"{message}. {advice}" if advice else message
    return ConfigurationError(text, kind=kind, field=field)


def is_a(value: object, kind: type) -> bool:
    """Whether a value has the type of its annotation, which has not been checked before. True is not a number."""
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def whole(kind: str, field: str, value: object, least: int, most: int = NUMBER_MAX) -> Problems:
    """Check for an integer within bounds; True is none."""
    if not isinstance(value, int) or not is_a(value, int):
        yield problem(kind, field, f"{field} is a whole number, not {value!r}")
    elif not least <= value <= most:
        wanted = f"{least} or more" if most == NUMBER_MAX and value < least else f"{least} to {most}"
        yield problem(kind, field, f"{field} is {wanted}, not {value}")


def _unknown(cls: type[Any], named: Iterable[str]) -> Problems:
    known = [each.name for each in fields(cls)]
    for name in named:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            yield problem("unknown_keyword", name, f"{cls.__name__} has no {name!r}; {hint}")
