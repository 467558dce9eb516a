"""Validation of configurations: all problems are found and reported together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from penstock.errors import ConfigurationError, MultipleValidationErrors
from penstock.schema.kinds import Kind
from penstock.schema.nearest import nearest
from penstock.schema.problems import InvalidValue

Problems = Iterator[ConfigurationError]


class ValidatedConfig:
    """A frozen, keyword-only dataclass that refuses unknown fields and suggests the nearest name."""

    checked: ClassVar[Mapping[str, tuple[str, Kind]]] = {}
    """By field: the kind of its problem, and its kind of value. None is a value where the annotation has it."""

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
        """Return all problems: those of single fields here."""
        yield from self.problems_of(*self.checked)

    def problems_of(self, *names: str) -> Problems:
        """The problems of these fields, each by itself."""
        annotations = {each.name: str(each.type) for each in fields(self)}  # type: ignore[arg-type]
        for name in names:
            problem_kind, kind = self.checked[name]
            value = getattr(self, name)
            may_be_none = annotations[name].endswith("None")
            if value is None and may_be_none:
                continue
            try:
                kind.read(value)
            except InvalidValue as error:
                or_none = "; None is allowed too" if may_be_none else ""
                yield problem(problem_kind, name, f"{self.shown_field(name)} {error.message}{or_none}")

    def shown_field(self, name: str) -> str:
        """The field as messages name it."""
        return name


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


def _unknown(cls: type[Any], named: Iterable[str]) -> Problems:
    known = [each.name for each in fields(cls)]
    for name in named:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            yield problem("unknown_keyword", name, f"{cls.__name__} has no {name!r}; {hint}")
