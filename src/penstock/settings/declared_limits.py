"""The limits that a configuration declares, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.core.limits.admission import Declaration, DeclaredScope, LimitField, Section, override_keys
from penstock.core.limits.rates import MICRO
from penstock.core.limits.windows import Window


class ScopeField(StrEnum):
    """What can be declared for a scope as a whole, under its public name."""

    LEASES = "max_active_leases"
    DISPATCHES = "max_dispatches_per_minute"
    COST = "max_cost_per_minute"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class LimitEntry:
    """One value: what, under which path, and in which source."""

    value: int | str | None
    """None, in an override: use the default of the kind, regardless of wider keys."""
    path: str
    source: str


LineField = tuple[str | None, str, LimitField]
"""An override key (None: the default of the kind), a kind of task, and the limit."""


@dataclass(frozen=True, slots=True)
class DeclaredLimits:
    """All admission limits of a configuration."""

    lines: Mapping[LineField, LimitEntry] = field(default_factory=dict)
    scopes: Mapping[tuple[str, ScopeField], LimitEntry] = field(default_factory=dict)

    def override_keys(self) -> list[str]:
        """The override keys with at least one limit."""
        return list(dict.fromkeys(key for key, _, _ in self.lines if key is not None))

    def of_line(self, what: LimitField, namespace: str, queue: str, kind: str) -> LimitEntry | None:
        """The limit in force for a queue, in the precedence of `core.limits.admission.declared`."""
        entry = self.decider(what, namespace, queue, kind)
        return entry if entry is None or entry.value is not None else self.lines.get((None, kind, what))

    def decider(self, what: LimitField, namespace: str, queue: str, kind: str) -> LimitEntry | None:
        """The most specific entry for a queue, which may ask for the default."""
        for key in (*override_keys(namespace, queue), None):
            if (entry := self.lines.get((key, kind, what))) is not None:
                return entry
        return None

    def all(self) -> Iterator[LimitEntry]:
        yield from self.lines.values()
        yield from self.scopes.values()

    def declaration(self, window: Window, rate_max: int | None = None, version: int = 0) -> Declaration:
        """The limits without their sources, as the core and the store represent them."""
        rate_max_micro = None if rate_max is None else rate_max * MICRO
        defaults: dict[str, Section] = {}
        overrides: dict[str, dict[str, Section]] = {}
        for (key, kind, what), entry in self.lines.items():
            sections = defaults if key is None else overrides.setdefault(key, {})
            sections[kind] = {**sections.get(kind, {}), what: entry.value}
        return Declaration(defaults, overrides, self._scopes(), window, rate_max_micro, version)

    def _scopes(self) -> dict[str, DeclaredScope]:
        names = dict.fromkeys(name for name, _ in self.scopes)
        return {
            name: DeclaredScope(
                leases=self._number(name, ScopeField.LEASES),
                dispatches=self._number(name, ScopeField.DISPATCHES),
                cost=self._number(name, ScopeField.COST),
                window=self._window(name),
            )
            for name in names
        }

    def _number(self, scope: str, part: ScopeField) -> int | None:
        entry = self.scopes.get((scope, part))
        return entry.value if entry is not None and isinstance(entry.value, int) else None

    def _window(self, scope: str) -> Window | None:
        entry = self.scopes.get((scope, ScopeField.WINDOW))
        return None if entry is None else Window(str(entry.value))


NO_LIMITS = DeclaredLimits()
