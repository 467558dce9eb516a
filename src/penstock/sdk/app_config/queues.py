"""The queues of an app: one for everything, or several with an order and caps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from penstock.schema.kinds import Kind, Text, Whole
from penstock.sdk.app_config.checks import ValidatedConfig

PRIORITY_MOST = 100
NAME_MAX = 64
CAP_MOST = 1_000_000
"""The largest cap that a server accepts."""
_NAME = Text(
    f"1 to {NAME_MAX} letters, digits and _ . : -", re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.:-]+"), NAME_MAX
)


class QueueMode(StrEnum):
    """Whether an app has one queue, `default`, or custom queues."""

    DEFAULT = "default"
    CUSTOM = "custom"


@dataclass(frozen=True, kw_only=True)
class CustomQueueConfig(ValidatedConfig):
    """A queue of an app in CUSTOM mode. Queues with a lower priority number are served first."""

    name: str = ""
    """1 to 64 letters, digits and _ . : -"""
    priority: int = 1
    """1 is served first."""
    max_concurrency: int | None = 5
    """Maximum number of its running tasks on all workers; None is no cap, 0 runs none."""

    checked: ClassVar[Mapping[str, tuple[str, Kind]]] = {
        "name": ("bad_queue", _NAME),
        "priority": ("bad_queue", Whole(1, PRIORITY_MOST)),
        "max_concurrency": ("bad_cap", Whole(0, CAP_MOST)),
    }

    def shown_field(self, name: str) -> str:
        return "The name of a queue" if name == "name" else f"queue {self.name!r}: {name}"
