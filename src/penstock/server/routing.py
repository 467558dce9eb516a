"""Finds the operations of a raw request path.

Paths are matched segment by segment before they are decoded, so that a name may contain any character: `%2F` inside
a segment is part of the name, not a separator. A literal segment takes precedence over a parameter, unless no route
below it fits the request: `GET /api/workflows/batch` finds the workflow `batch`, as the literal path only has POST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")


@dataclass(slots=True)
class _Node(Generic[T]):
    literals: dict[str, _Node[T]] = field(default_factory=dict)
    named: dict[str, _Node[T]] = field(default_factory=dict)
    value: T | None = None


class Routes(Generic[T]):
    """A tree of path templates; `{name}` matches one segment."""

    def __init__(self, paths: Mapping[str, T]) -> None:
        self._root: _Node[T] = _Node()
        for path, value in paths.items():
            node = self._root
            for segment in path.strip("/").split("/"):
                if segment.startswith("{"):
                    node = node.named.setdefault(segment.strip("{}"), _Node())
                else:
                    node = node.literals.setdefault(segment, _Node())
            node.value = value

    def find(
        self, raw_path: str, fits: Callable[[T], bool] = lambda _: True
    ) -> tuple[T, dict[str, str]] | None:
        """The value of the first matching route that `fits`, and its path parameters; None if there is none."""
        if not raw_path.startswith("/"):
            return None
        return _find(self._root, raw_path[1:].split("/"), 0, fits)


def _find(
    node: _Node[T], segments: Sequence[str], place: int, fits: Callable[[T], bool]
) -> tuple[T, dict[str, str]] | None:
    if place == len(segments):
        return (node.value, {}) if node.value is not None and fits(node.value) else None
    segment = segments[place]
    literal = node.literals.get(segment)
    if literal is not None:
        found = _find(literal, segments, place + 1, fits)
        if found is not None:
            return found
    for name, child in node.named.items():
        found = _find(child, segments, place + 1, fits)
        if found is not None and segment:
            try:
                found[1][name] = unquote(segment, errors="strict")
            except UnicodeDecodeError:
                return None
            return found
    return None
