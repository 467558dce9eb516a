"""Priority, fairness key and weight of workflows, activities, children and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

LEVELS = range(1, 6)
LEVEL_DEFAULT, WEIGHT_DEFAULT = 3, 1.0
KEY_BYTES_MAX = 64
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0


@dataclass(frozen=True, slots=True)
class Priority:
    """Priority level, fairness key and weight. Fields that are None are inherited from the caller.

    Within a level, work is shared between fairness keys in proportion to their weights.

    Args:
        priority_key: 1 to 5; lower keys are dispatched first, and 3 is the default. They are the levels 1, 3, 5, 7
            and 9 of the contract's `priority`.
        fairness_key: whose work it is.
        fairness_weight: share of the fairness key relative to the others of its level.
    """

    priority_key: int | None = None
    fairness_key: str | None = None
    fairness_weight: float | None = None

    def __post_init__(self) -> None:
        if self.priority_key is not None:
            _check_level(self.priority_key)
        if self.fairness_key is not None:
            _check_key(self.fairness_key)
        if self.fairness_weight is not None:
            _check_weight(self.fairness_weight)

    def on_the_wire(self) -> dict[str, Any]:
        """The fields of a request that are set."""
        fields = {
            "priority_key": self.priority_key,
            "fairness_key": self.fairness_key,
            "fairness_weight": self.fairness_weight,
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        return {"priority": fields} if fields else {}


def priority_fields(priority: Priority | None) -> dict[str, Any]:
    """Return the fields of a request for a priority, or none.

    Raises:
        TypeError: the value is not a `Priority`, for example a number.
    """
    if priority is None:
        return {}
    if not isinstance(priority, Priority):
        raise TypeError(f"priority takes a Priority, such as Priority(priority_key=1), not {priority!r}")
    return priority.on_the_wire()


def priority_in(body: Mapping[str, Any]) -> Priority:
    """Read the priority from a task, event or description. Invalid values are left out.

    Events and tasks of servers before the scale of ten levels have the priority key under `priority`, and no other.
    """
    level = body.get("priority_key" if "priority_key" in body else "priority")
    key, weight = body.get("fairness_key"), body.get("fairness_weight")
    is_weight = isinstance(weight, int | float) and WEIGHT_MIN <= weight <= WEIGHT_MAX
    return Priority(
        priority_key=level if isinstance(level, int) and level in LEVELS else None,
        fairness_key=key if isinstance(key, str) else None,
        fairness_weight=weight if is_weight else None,
    )


def _check_level(level: object) -> None:
    if isinstance(level, bool) or not isinstance(level, int) or level not in LEVELS:
        raise ValueError(f"priority_key must be a whole number from 1 (first) to 5 (last), not {level!r}")


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"fairness_key must be text, not {type(key).__name__}")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise ValueError(f"fairness_key must be at most {KEY_BYTES_MAX} bytes, not {len(key.encode())}")


def _check_weight(weight: object) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise TypeError(f"fairness_weight must be a number, not {type(weight).__name__}")
    if not isfinite(weight) or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise ValueError(f"fairness_weight must lie between {WEIGHT_MIN} and {WEIGHT_MAX:g}, not {weight}")
