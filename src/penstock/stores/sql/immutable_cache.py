"""What a store may remember between operations, because it never changes once it is committed."""

from __future__ import annotations

from msgspec import Struct, field

from penstock.core.limits.admission import Admission
from penstock.core.model import Queue

QueueName = tuple[str, str, str]
ADMISSIONS_MAX = 64


class ImmutableCache(Struct, frozen=True):
    queues: dict[QueueName, Queue] = field(default_factory=dict)
    """By namespace, name and kind; only who they are can be relied on."""
    scopes: dict[str, int] = field(default_factory=dict)
    """The ids of scopes by name."""
    admissions: dict[str, Admission] = field(default_factory=dict)
    """All limits by the stamp of a queue that goes by them."""

    def remember(self, other: ImmutableCache) -> None:
        """Take over what an operation learned; it is committed now."""
        self.queues.update(other.queues)
        self.scopes.update(other.scopes)
        self.admissions.update(other.admissions)
        while len(self.admissions) > ADMISSIONS_MAX:
            del self.admissions[next(iter(self.admissions))]
