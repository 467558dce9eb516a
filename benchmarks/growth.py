"""How fast something grows, read off samples."""

from __future__ import annotations

from collections.abc import Sequence


def slope_per_hour(points: Sequence[tuple[float, float]]) -> float:
    """The line of least squares through (seconds, value); 0 where there are fewer than two moments."""
    if len(points) < 2:
        return 0.0
    middle = sum(at for at, _ in points) / len(points)
    level = sum(value for _, value in points) / len(points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    if spread == 0:
        return 0.0
    return sum((at - middle) * (value - level) for at, value in points) / spread * 3600
