"""Problems and warnings about limits, one line each, and each line once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.schema.problems import Problem
from penstock.settings.declared_limits import LimitEntry


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Reasons not to start, and what an operator should know."""

    problems: dict[str, None] = field(default_factory=dict)
    cautions: dict[str, None] = field(default_factory=dict)

    def add(self, problems: Iterable[Problem]) -> None:
        self.problems.update((f"{each.origin}: {each.path}: {each.text}", None) for each in problems)

    def refuse(self, entry: LimitEntry, text: str) -> None:
        self.problems[f"{entry.source}: {entry.path}: {text}"] = None

    def caution(self, entry: LimitEntry, text: str) -> None:
        self.cautions[f"{entry.source}: {entry.path}: {text}"] = None
