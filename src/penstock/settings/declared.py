"""The limits that a configuration declares, each with where it was said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.core.admission import Declaration, Field, ScopeDeclared, Section, override_keys
from penstock.core.rates import MICRO
from penstock.core.windows import Window


class Part(StrEnum):
    """What can be declared for a scope as a whole, under its public name."""

    LEASES = "max_active_leases"
    DISPATCHES = "max_dispatches_per_minute"
    COST = "max_cost_per_minute"
    WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Said:
    """One value: what, under which path, and in which source."""

    value: int | str | None
    """None, in an override: as the default of the kind, whatever wider keys say."""
    path: str
    source: str


LineSaid = tuple[str | None, str, Field]
"""An override key (None: the default of the kind), a kind of task, and what is said of it."""


@dataclass(frozen=True, slots=True)
class DeclaredLimits:
    """Everything that a configuration says of admission."""

    lines: Mapping[LineSaid, Said] = field(default_factory=dict)
    scopes: Mapping[tuple[str, Part], Said] = field(default_factory=dict)

    def override_keys(self) -> list[str]:
        """The override keys that say something."""
        return list(dict.fromkeys(key for key, _, _ in self.lines if key is not None))

    def of_line(self, what: Field, namespace: str, queue: str, kind: str) -> Said | None:
        """What holds for a line: the same order as in `core.admission.declared`."""
        said = self.decider(what, namespace, queue, kind)
        return said if said is None or said.value is not None else self.lines.get((None, kind, what))

    def decider(self, what: Field, namespace: str, queue: str, kind: str) -> Said | None:
        """What is heard of a line, be it the wish to go by the default."""
        for key in (*override_keys(namespace, queue), None):
            if (said := self.lines.get((key, kind, what))) is not None:
                return said
        return None

    def all(self) -> Iterator[Said]:
        yield from self.lines.values()
        yield from self.scopes.values()

    def declaration(self, window: Window, rate_max: int | None = None, version: int = 0) -> Declaration:
        """The same without sources, as the core and the store know it."""
        rate_max_micro = None if rate_max is None else rate_max * MICRO
        defaults: dict[str, Section] = {}
        overrides: dict[str, dict[str, Section]] = {}
        for (key, kind, what), said in self.lines.items():
            sections = defaults if key is None else overrides.setdefault(key, {})
            sections[kind] = {**sections.get(kind, {}), what: said.value}
        return Declaration(defaults, overrides, self._scopes(), window, rate_max_micro, version)

    def _scopes(self) -> dict[str, ScopeDeclared]:
        names = dict.fromkeys(name for name, _ in self.scopes)
        return {
            name: ScopeDeclared(
                leases=self._number(name, Part.LEASES),
                dispatches=self._number(name, Part.DISPATCHES),
                cost=self._number(name, Part.COST),
                window=self._window(name),
            )
            for name in names
        }

    def _number(self, scope: str, part: Part) -> int | None:
        said = self.scopes.get((scope, part))
        return said.value if said is not None and isinstance(said.value, int) else None

    def _window(self, scope: str) -> Window | None:
        said = self.scopes.get((scope, Part.WINDOW))
        return None if said is None else Window(str(said.value))


NOTHING_SAID = DeclaredLimits()
