"""The parsed value of every setting, before policies are made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

DEFAULT = "default"


@dataclass(slots=True)
class SettingValues:
    """Values by setting name, each with its source. A setting that could not be read has neither."""

    _values: dict[str, object] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: object, source: str) -> None:
        self._values[name] = value
        self._sources[name] = source

    def forget(self, name: str) -> None:
        """Treat the setting as one that could not be read."""
        self._values.pop(name, None)
        self._sources.pop(name, None)

    def has(self, *names: str) -> bool:
        """Whether all of these were read without a problem (a setting that is not set counts as read)."""
        return all(name in self._values for name in names)

    def is_set(self, name: str) -> bool:
        return self._values.get(name) is not None

    def of(self, name: str, kind: type[T]) -> T:
        """The value, which must have been read and be of that type."""
        value = self._values[name]
        if not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def maybe(self, name: str, kind: type[T]) -> T | None:
        """The value, or None where it is not set or could not be read."""
        return self.of(name, kind) if self.is_set(name) else None

    def raw(self, name: str) -> object:
        return self._values[name]

    def source(self, name: str) -> str:
        return self._sources.get(name, DEFAULT)
