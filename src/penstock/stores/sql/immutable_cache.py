"""Cache of facts that never change once they are committed, shared by the operations of a store."""

from __future__ import annotations

from msgspec import Struct, field

from penstock.core.limits.admission import Admission
from penstock.core.model import Queue

QueueName = tuple[str, str, str]
ADMISSIONS_MAX = 64


class ImmutableCache(Struct, frozen=True):
    queues: dict[QueueName, Queue] = field(default_factory=dict)
    """By namespace, name and kind; only their identity is immutable, not their settings."""
    scopes: dict[str, int] = field(default_factory=dict)
    """The ids of scopes by name."""
    admissions: dict[str, Admission] = field(default_factory=dict)
    """The limits in force, by the stamp of the queues that use them."""

    def remember(self, other: ImmutableCache) -> None:
        """Add what an operation found or created, now that it is committed."""
        self.queues.update(other.queues)
        self.scopes.update(other.scopes)
        self.admissions.update(other.admissions)
        while len(self.admissions) > ADMISSIONS_MAX:
            del self.admissions[next(iter(self.admissions))]
