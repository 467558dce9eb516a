"""Keeps one blocked or slow operation from delaying the operations that share its transaction.

Theory of operation
-------------------
Operations of unrelated queues share a transaction. If one of them needs a row that another session has locked (a
server that was suspended inside its transaction, for example), all would wait for that lock: head-of-line blocking.
A `DivertingCommitter` therefore waits only `DIVERSION_LOCK_MS` for a lock. Then it rolls back, retries the operations
one by one, and moves those that are blocked to a second connection, the `Diversion`. The main connection continues
with the others. A group that exceeds its time limit is moved as a whole.

On the diversion, blocked operations have a transaction each and wait `BLOCKED_LOCK_MS` at a time, round robin with each
other and with what was not tried yet, until their patience is exhausted. An operation that is too slow is retried with
the limits of long writes once the others have had their turn; if `SLOW_MAX` are too slow, the database is, and the rest
is retried together.

Invariants:
- Operations with one key keep their order: as long as one is diverted, those behind it are diverted too.
- A key that was diverted stays *contended* for `CONTENDED_S`: its operations get transactions of their own, so that
  this server, should it be suspended in one of them, does not hold rows of other queues along with it.

Rejected: SKIP LOCKED (an operation cannot go on without its row), and a transaction per queue (gives up group commit
for everybody to handle a rare case).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable

import asyncpg
import structlog
from msgspec.structs import replace

from penstock.stores.group_commit import (
    QueuedOperation,
)
from penstock.stores.postgres.commit_groups import TRIES, Blocked, CommitResources, GroupCommitter, TooSlow
from penstock.stores.postgres.errors import (
    too_slow,
    unavailable,
)
from penstock.stores.postgres.session_limits import SessionLimits

DIVERSION_LOCK_MS = 200
"""How long a group waits for a row lock before those who want it are diverted."""
BLOCKED_LOCK_MS = 400
"""How long a diverted operation waits for a lock at a time, before the next one has its turn."""
BLOCKED_MAX = 3
"""After this many operations of a group were blocked one by one, the rest of it is diverted untried."""
SLOW_MAX = 2
"""After this many were too slow one by one, the rest is retried together with the limits of long writes."""
CONTENDED_S = 10.0
"""How long after it was diverted a key gets transactions of its own."""
CONTENDED_MAX = 4
"""Most contended keys that are remembered, the latest ones: each costs a transaction per round."""
DIVERSION_IDLE_S = 10.0
"""How long a diversion keeps its connection without work."""
log = structlog.get_logger("penstock.store")


class DivertingCommitter(GroupCommitter):
    """Commits groups, and moves operations that are blocked or too slow to a second connection."""

    def __init__(self, shared: CommitResources, limits: SessionLimits, long: SessionLimits) -> None:
        brief = replace(limits, lock_ms=min(DIVERSION_LOCK_MS, limits.lock_ms))
        super().__init__(shared, brief, long)
        self._patient = replace(limits, lock_ms=min(BLOCKED_LOCK_MS, limits.lock_ms))
        self._lock_patience_s = 1.5 * TRIES * limits.lock_ms / 1000
        """How long in all an operation waits for rows that other sessions have locked."""
        self._diverted: Counter[str] = Counter()
        self._diversion: Diversion | None = None
        self._contended: dict[str, float] = {}
        """Until when each key gets transactions of its own."""

    def _waiting(self) -> int:
        return len(self._jobs) + self._diverted.total()

    async def close(self) -> None:
        await super().close()
        if self._diversion is not None:
            await self._diversion.close()

    def _next_group(self) -> list[QueuedOperation]:
        if self._diverted:
            behind = [job for job in self._jobs if job.key in self._diverted]
            self._jobs = deque(job for job in self._jobs if job.key not in self._diverted)
            self._divert(behind)
        if not self._contended:
            return super()._next_group()
        now = time.monotonic()
        self._contended = {key: until for key, until in self._contended.items() if until > now}
        return self._next_round_robin(self._contended)

    def _check_retryable(self, error: Exception, failures: int) -> None:
        if isinstance(error, asyncpg.LockNotAvailableError):
            raise Blocked from error
        super()._check_retryable(error, failures)

    async def _settle_blocked(self, jobs: list[QueuedOperation]) -> None:
        if len(jobs) == 1:
            self._divert(jobs, blocked=True)
            return
        for place, job in enumerate(jobs):
            if sum(each.key in self._diverted for each in jobs[:place]) == BLOCKED_MAX:
                self._divert(jobs[place:])
                return
            await self._settle([job])

    async def _settle_slow(self, jobs: list[QueuedOperation]) -> None:
        """Divert the group: it gets more time there, and the others do not wait for it."""
        self._group_max = max(1, len(jobs) // 2)
        self._divert(jobs)

    def _divert(self, jobs: list[QueuedOperation], *, blocked: bool = False) -> None:
        if not jobs:
            return
        if self._diversion is None:
            self._diversion = Diversion(
                self._shared, self._patient, self._long, self._lock_patience_s, self._on_returned
            )
        self._diverted.update(job.key for job in jobs)
        self._diversion.submit(jobs)
        if blocked:
            self._diversion.note_blocked(jobs[0])

    def _on_returned(self, job: QueuedOperation) -> None:
        self._diverted[job.key] -= 1
        if not self._diverted[job.key]:
            del self._diverted[job.key]
        self._contended.pop(job.key, None)
        self._contended[job.key] = time.monotonic() + CONTENDED_S
        if len(self._contended) > CONTENDED_MAX:
            del self._contended[next(iter(self._contended))]


class Diversion(GroupCommitter):
    """The second connection, which is open only while there is work for it."""

    def __init__(
        self,
        shared: CommitResources,
        limits: SessionLimits,
        long: SessionLimits,
        lock_patience_s: float,
        on_settled: Callable[[QueuedOperation], None],
    ) -> None:
        super().__init__(shared, limits, long)
        self._lock_patience_s = lock_patience_s
        self._on_settled = on_settled
        self._blocked: dict[str, float] = {}
        """Keys whose first operation is blocked, in round-robin order, and since when."""
        self._slow: list[QueuedOperation] | None = None
        """The operations that were too slow, while a group is retried one by one."""

    def note_blocked(self, job: QueuedOperation) -> float:
        """Note that the first operation of a key is blocked; returns since when, on the monotonic clock."""
        return self._blocked.setdefault(job.key, time.monotonic())

    def _settled(self, job: QueuedOperation) -> None:
        self._blocked.pop(job.key, None)
        self._on_settled(job)

    def _next_group(self) -> list[QueuedOperation]:
        if not self._blocked:
            return super()._next_group()
        return self._next_round_robin(self._blocked)

    async def _wait_for_jobs(self) -> None:
        while not self._arrived.is_set():
            try:
                await asyncio.wait_for(self._arrived.wait(), DIVERSION_IDLE_S if self._connection else None)
            except TimeoutError:
                self._disconnect()

    def _check_retryable(self, error: Exception, failures: int) -> None:
        if isinstance(error, asyncpg.LockNotAvailableError):
            raise Blocked from error
        super()._check_retryable(error, failures)

    async def _settle_blocked(self, jobs: list[QueuedOperation]) -> None:
        if len(jobs) > 1:
            await self._settle_each(jobs)
            return
        since = self.note_blocked(jobs[0])
        if time.monotonic() - since < self._lock_patience_s:
            self._jobs.extendleft(jobs)
            return
        jobs[0].error = unavailable(asyncpg.LockNotAvailableError("a row is locked by another session"))
        self._answer(jobs)

    async def _settle_slow(self, jobs: list[QueuedOperation]) -> None:
        if self._limits is self._long:
            for job in jobs:
                job.error = too_slow(TooSlow())
            self._answer(jobs)
        elif len(jobs) > 1:
            await self._settle_each(jobs)
        elif self._slow is not None:
            self._slow += jobs
        else:
            await self._settle_long(jobs)

    async def _settle_each(self, jobs: list[QueuedOperation]) -> None:
        """Commit each operation by itself, until a few have turned out to be blocked or too slow."""
        rest, blocked_before = deque(jobs), len(self._blocked)
        slow = self._slow = []
        while rest and len(slow) < SLOW_MAX and len(self._blocked) - blocked_before < BLOCKED_MAX:
            await self._settle([rest.popleft()])
        self._slow = None
        if len(slow) < SLOW_MAX:
            self._jobs.extendleft(reversed(rest))
        elif rest:
            await self._settle_long(list(rest))
        for job in slow:
            await self._settle_long([job])

    async def _settle_long(self, jobs: list[QueuedOperation]) -> None:
        """Retry operations that were too slow with the limits of long writes, on a session of their own."""
        log.warning(
            "operations exceeded their time limit; retrying with the limits of long writes",
            operations=len(jobs),
            key=jobs[0].key,
        )
        self._disconnect()
        usual, self._limits = self._limits, self._long
        try:
            await self._settle(jobs)
        finally:
            self._limits = usual
            self._disconnect()
