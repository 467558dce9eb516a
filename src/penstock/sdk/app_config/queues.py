"""The queues of an app: one for everything, or several with an order and caps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from penstock.sdk.app_config.checks import Problems, ValidatedConfig, is_a, problem, whole

PRIORITY_MOST = 100
NAME_MAX = 64
CAP_MOST = 1_000_000
"""The largest cap that a server accepts."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")


class QueueMode(StrEnum):
    """Whether an app has one queue, `default`, or custom queues."""

    DEFAULT = "default"
    CUSTOM = "custom"


@dataclass(frozen=True, kw_only=True)
class CustomQueueConfig(ValidatedConfig):
    """A queue of an app in CUSTOM mode. Queues with a lower priority number are served first."""

    name: str = ""
    priority: int = 1
    max_concurrency: int | None = 5
    """Maximum number of its running tasks on all workers; None is no cap, 0 runs none."""

    def problems(self) -> Problems:
        if not is_a(self.name, str) or not self.name:
            yield problem("bad_queue", "name", f"A queue has a name, not {self.name!r}")
        elif len(self.name) > NAME_MAX or not _NAME.fullmatch(self.name) or self.name in (".", ".."):
            yield problem(
                "bad_queue",
                "name",
                f"The name of a queue is 1 to {NAME_MAX} letters, digits and _ . : -, not {self.name!r}",
            )
        whose = f"queue {self.name!r}: "
        yield from whole("bad_queue", f"{whose}priority", self.priority, 1, PRIORITY_MOST)
        if self.max_concurrency is not None:
            yield from whole("bad_cap", f"{whose}max_concurrency", self.max_concurrency, 0, CAP_MOST)
