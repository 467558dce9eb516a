"""A little server that keeps every promise, or breaks the one it is told to; it and its clients write all down."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any

from penstock.core.verify.journal import (
    LeaseEnded,
    LeaseGranted,
    LeaseLine,
    LeaseRenewed,
    LeaseStarted,
    RunAdmitted,
    RunClosed,
    RunScopeLimit,
    ScopeLimits,
)
from penstock.core.verify.observations import (
    LimitsSet,
    Observation,
    ObservedFinal,
    Polled,
    PolledLease,
    Quiescent,
    Reported,
    StartSent,
)

AHEAD_MS = 1_800_000_000_000
LEASE_MS = 30_000
RUNS = 2
MINUTE_MS = 60_000
GROUP = "group:default/openai"
QUEUES = ("payments", "email")
LEASES, RATE, COST = "max_active_leases", "max_dispatches_per_minute", "max_cost_per_minute"


class Mutant(StrEnum):
    """What the little server does wrong."""

    DOUBLE_RELEASE = auto()
    CAP_OFF_BY_ONE = auto()
    CAP_IGNORED_AT_START = auto()
    MINUTE_BURST = auto()
    SLIDING_BURST = auto()
    COST_NOT_RESERVED = auto()
    ZERO_IS_UNLIMITED = auto()
    ZERO_IS_IGNORED = auto()
    PAUSE_IS_IGNORED = auto()
    GROUP_PER_QUEUE = auto()
    LIMIT_OF_YESTERDAY = auto()
    EXPIRY_RESURRECTED = auto()
    NO_EPOCH_GUARD = auto()
    ATTEMPT_STAYS = auto()
    LEASED_TWICE = auto()
    ACK_BEFORE_COMMIT = auto()
    GRANT_NOT_WRITTEN = auto()
    NAMESPACE_FROM_BODY = auto()
    NEWEST_FIRST = auto()
    START_FORGOTTEN = auto()
    WAKEUP_LOST = auto()
    PERMIT_LEAKED = auto()
    UNDELIVERED_NOT_REFUNDED = auto()
    UNDELIVERED_NOT_TOLD = auto()
    REFUNDED_THOUGH_DELIVERED = auto()
    LINE_SWALLOWED = auto()
    JOURNAL_REORDERED = auto()
    RUN_CAP_OFF_BY_ONE = auto()


@dataclass
class Task:
    task_id: str
    queue: str
    cost: int
    attempt: int = 0
    state: str = "ready"
    due: float = 0.0


@dataclass
class Lease:
    task: Task
    token: str
    worker: str
    expires_at_ms: int
    is_running: bool
    known_at: float
    cost: int


@dataclass
class LittleServer:
    """One step is one call. All happens in the order of the calls; each call takes some time around its effect."""

    seed: int
    mutant: Mutant | None = None
    soft: bool = False
    window: Any = "minute"
    journal: list[LeaseLine | RunAdmitted | RunClosed] = field(default_factory=list)
    seen: list[Observation] = field(default_factory=list)
    now: float = 1_000.0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.tasks: dict[str, Task] = {}
        self.ready: dict[str, list[Task]] = {queue: [] for queue in QUEUES}
        self.live: dict[tuple[str, str], Lease] = {}
        self.old: list[Lease] = []
        self.released: dict[str, int] = {}
        self.dispatched: dict[str, list[int]] = {}
        self.spent: dict[str, list[list[Any]]] = {}
        self.limits: dict[str, dict[str, Any]] = {}
        self.numbers = iter(range(1, 1_000_000))
        self.runs: list[str] = []
        """Open runs, the oldest first."""
        for scope, told in (
            ("queue:default/payments/activity", {LEASES: 4, RATE: 25}),
            ("queue:default/email/activity", {LEASES: 4, RATE: 14}),
            ("namespace:default/activity", {LEASES: 6}),
            (GROUP, {LEASES: 5, RATE: 30, COST: 300}),
        ):
            self.set_limits(scope, told)

    # what happens

    def run(self, steps: int) -> LittleServer:
        calls: list[tuple[Callable[[], None], int]] = [
            (self.start, 8),
            (self.poll, 10),
            (self.report, 9),
            (self.heartbeat, 2),
            (self.late_report, 2),
            (self.change_limits, 1),
        ]
        names, weights = zip(*calls, strict=True)
        for step in range(steps):
            self.pass_time()
            self.sweep()
            self.dice.choices(names, weights)[0]()
            if step % 10 == 0:
                self.admit_run(step)
        return self

    def admit_run(self, step: int) -> None:
        """Start a run under a cap of runs; the oldest closes first if there is no place."""
        most = RUNS + 1 if self.mutant is Mutant.RUN_CAP_OFF_BY_ONE else RUNS
        if len(self.runs) >= most:
            self.write(RunClosed, run_id=self.runs.pop(0))
        self.runs.append(f"r{step}")
        self.write(RunAdmitted, run_id=f"r{step}", scopes=(RunScopeLimit("runs:default", RUNS),))

    def rest(self) -> LittleServer:
        """Open every gate, let the work drain, and look at what is left."""
        for scope in list(self.limits):
            self.set_limits(
                scope, {LEASES: 6, RATE: 25, "paused": False} | ({COST: 300} if scope == GROUP else {})
            )
        for _ in range(5_000):
            if not self.live and not any(self.ready.values()):
                break
            self.now += self.dice.uniform(500, 2_000)
            for call in (self.poll, self.report):
                self.sweep()
                call()
        for task in self.tasks.values():
            self.seen.append(
                ObservedFinal(task.state, task_id=task.task_id, task_queue=task.queue, namespace="default")
            )
        self.seen.append(Quiescent())
        if self.mutant is Mutant.LINE_SWALLOWED:
            del self.journal[len(self.journal) // 2]
        if self.mutant is Mutant.JOURNAL_REORDERED:
            self._reorder()
        return self

    def pass_time(self) -> None:
        self.now += self.dice.choice((20, 200, 900, 2_500)) * self.dice.uniform(0.5, 1)
        if self.dice.random() < 0.01:
            self.now += self.dice.uniform(10_000, 70_000)

    def start(self) -> None:
        task = Task(f"t{next(self.numbers)}", self.dice.choice(QUEUES), self.dice.randint(5, 20))
        t_inv, t_ok = self.call()
        self.seen.append(
            StartSent(t_inv, t_ok, "accepted", task_id=task.task_id, task_queue=task.queue, key="a", level=3)
        )
        if self.mutant is Mutant.START_FORGOTTEN and self.dice.random() < 0.05:
            return
        self.tasks[task.task_id] = task
        self.put(task)

    def poll(self) -> None:
        queue = self.dice.choice(QUEUES)
        worker = f"w{self.dice.randint(1, 6)}"
        t_inv, t_ok = self.call(self.dice.choice((5, 300, 3_000)))
        claimed = self.soft and self.dice.random() < 0.4
        leases = []
        for _ in range(self.dice.randint(1, 4)):
            lease = self.grant(queue, worker, claimed, t_ok)
            if lease is None:
                break
            leases.append(lease)
        if leases and self.dice.random() < 0.05 and self.mutant is None:
            self.seen.append(Polled(t_inv, None, worker))
        elif leases and self.dice.random() < 0.05:
            self.seen.append(Polled(t_inv, t_ok, worker))
            for lease in leases:
                self.hand_back(lease)
        else:
            self.seen.append(Polled(t_inv, t_ok, worker, tuple(map(self.told, leases))))
        self.now = max(self.now, t_ok)

    def hand_back(self, lease: Lease) -> None:
        """The poll has ended without the task."""
        not_told = self.mutant is Mutant.UNDELIVERED_NOT_TOLD
        self.end(lease, "handed_back" if not_told else "undelivered")

    def refund(self, lease: Lease) -> bool:
        """Whether all that a lease was charged is given back."""
        if self.mutant in (Mutant.UNDELIVERED_NOT_REFUNDED, Mutant.UNDELIVERED_NOT_TOLD):
            return False
        for scope in self.scopes(lease.task.queue) if lease.is_running else ():
            self.dispatched[scope].remove(self.at_ms)
            self.spent[scope] = [each for each in self.spent.get(scope, ()) if each[2] != lease.token]
        return True

    def told(self, lease: Lease) -> PolledLease:
        return PolledLease(
            lease.task.task_id,
            lease.token,
            "default",
            lease.task.queue,
            "activity",
            lease.task.attempt,
            LEASE_MS,
            "running" if lease.is_running else "claimed",
            (GROUP,),
        )

    def grant(self, queue: str, worker: str, claimed: bool, known_at: float) -> Lease | None:
        index = self.due(queue)
        if index is None or not self.may_go(queue, self.ready[queue][index].cost, claimed):
            return None
        task = self.ready[queue].pop(index)
        if self.mutant is not Mutant.ATTEMPT_STAYS or task.attempt <= 0:
            task.attempt += 1
        token = f"{task.attempt}.{next(self.numbers)}"
        lease = Lease(task, token, worker, self.at_ms + LEASE_MS, not claimed, known_at, task.cost)
        task.state = "leased"
        self.live[task.task_id, token] = lease
        if self.mutant is Mutant.LEASED_TWICE and self.dice.random() < 0.1:
            self.put(task)
        if not claimed:
            self.spend(queue, lease)
        namespace = "default"
        if self.mutant is Mutant.NAMESPACE_FROM_BODY and self.dice.random() < 0.1:
            namespace = "other"
        if self.mutant is Mutant.GRANT_NOT_WRITTEN and self.dice.random() < 0.1:
            return lease
        self.write(
            LeaseGranted,
            namespace=namespace,
            task_queue=queue,
            kind="activity",
            task_id=task.task_id,
            lease=token,
            attempt=task.attempt,
            worker_id=worker,
            key="a",
            level=3,
            expires_at_ms=lease.expires_at_ms,
            phase="claimed" if claimed else "running",
            scopes=() if claimed else tuple(self.told_limits(queue, task.cost)),
        )
        return lease

    def report(self) -> None:
        ready = [lease for lease in self.live.values() if lease.known_at < self.now - 1]
        if not ready:
            return
        lease = self.dice.choice(ready)
        if not lease.is_running:
            self.begin(lease)
            return
        op, how = self.dice.choice(
            [("complete", "completed")] * 6
            + [("fail", "failed"), ("hand_back", "handed_back"), ("crash", "")]
        )
        if op == "crash":
            return
        lost_answer = self.dice.random() < 0.1
        t_inv, t_ok = self.call(since=lease.known_at)
        forgotten = self.mutant is Mutant.ACK_BEFORE_COMMIT and self.dice.random() < 0.1
        if not forgotten:
            self.end(lease, how)
        self.say(op, lease, t_inv, None if lost_answer else t_ok, "unknown" if lost_answer else "accepted")

    def begin(self, lease: Lease) -> None:
        """A claimed lease asks for its permit."""
        free = self.mutant is Mutant.CAP_IGNORED_AT_START or self.has_place(lease.task.queue, lease.cost)
        t_inv, t_ok = self.call(since=lease.known_at)
        if free:
            lease.is_running = True
            self.spend(lease.task.queue, lease)
            told = tuple(self.told_limits(lease.task.queue, lease.cost))
            self.write(LeaseStarted, task_id=lease.task.task_id, lease=lease.token, scopes=told)
        else:
            self.end(lease, "handed_back")
        self.say("started", lease, t_inv, t_ok, "accepted" if free else "refused")

    def heartbeat(self) -> None:
        late = self.mutant is Mutant.EXPIRY_RESURRECTED and self.old
        held = [self.dice.choice(self.old)] if late else list(self.live.values())
        if not held:
            return
        lease = self.dice.choice(held)
        t_inv, t_ok = self.call(since=lease.known_at)
        lease.expires_at_ms = self.at_ms + LEASE_MS
        self.write(
            LeaseRenewed, task_id=lease.task.task_id, lease=lease.token, expires_at_ms=lease.expires_at_ms
        )
        self.say("heartbeat", lease, t_inv, t_ok, "accepted")

    def late_report(self) -> None:
        if not self.old:
            return
        lease = self.dice.choice(self.old)
        t_inv, t_ok = self.call()
        accepted = self.mutant is Mutant.NO_EPOCH_GUARD
        if accepted:
            self.write(LeaseEnded, task_id=lease.task.task_id, lease=lease.token, how="completed")
        self.say("complete", lease, t_inv, t_ok, "accepted" if accepted else "refused")
        if self.mutant is Mutant.DOUBLE_RELEASE:
            for scope in self.scopes(lease.task.queue):
                self.released[scope] = self.released.get(scope, 0) + 1

    def sweep(self) -> None:
        for lease in list(self.live.values()):
            if lease.expires_at_ms <= self.at_ms:
                self.end(lease, "expired")
                self.old.append(lease)

    def end(self, lease: Lease, how: str) -> None:
        del self.live[lease.task.task_id, lease.token]
        actual = self.dice.randint(1, lease.cost + 3) if how == "completed" else lease.cost
        self.settle(lease, actual)
        refunded = how == "undelivered" and self.refund(lease)
        if self.mutant is Mutant.REFUNDED_THOUGH_DELIVERED and how == "completed":
            refunded = self.dice.random() < 0.1
        if not (self.mutant is Mutant.PERMIT_LEAKED and self.dice.random() < 0.1):
            cost = actual if how == "completed" else None
            told = {"task_id": lease.task.task_id, "lease": lease.token}
            self.write(LeaseEnded, **told, how=how, cost=cost, refunded=refunded)
        if how == "completed":
            lease.task.state = "done"
            return
        if how in ("handed_back", "undelivered") or not lease.is_running:
            lease.task.attempt -= 1
        lease.task.state = "ready"
        self.put(lease.task)

    def change_limits(self) -> None:
        scope = self.dice.choice(list(self.limits))
        match self.dice.randint(0, 3):
            case 0:
                self.set_limits(scope, {LEASES: 0})
            case 1:
                self.set_limits(scope, {"paused": not self.limits[scope].get("paused", False)})
            case 2:
                self.set_limits(scope, {RATE: self.dice.randint(3, 30)})
            case _:
                self.set_limits(scope, {LEASES: self.dice.randint(1, 6)})

    def set_limits(self, scope: str, told: dict[str, Any]) -> None:
        t_inv, t_ok = self.call()
        known = self.limits.get(scope, {})
        self.seen.append(LimitsSet(t_inv, scope, told | {"window": self.window}, t_ok, "accepted"))
        if not (self.mutant is Mutant.LIMIT_OF_YESTERDAY and known):
            self.limits[scope] = known | told
        self.now = t_ok

    # what is decided

    def may_go(self, queue: str, cost: int, claimed: bool) -> bool:
        scopes = self.scopes(queue)
        open_ = self.mutant is Mutant.PAUSE_IS_IGNORED or not any(
            self.limits[scope].get("paused") for scope in scopes
        )
        zero_blind = self.mutant in (Mutant.ZERO_IS_UNLIMITED, Mutant.ZERO_IS_IGNORED)
        closed = not zero_blind and any(self.limits[scope].get(LEASES) == 0 for scope in scopes)
        return open_ and (claimed or (not closed and self.has_place(queue, cost)))

    def has_place(self, queue: str, cost: int) -> bool:
        return all(
            self.held(queue, scope) < self.cap(scope) and self.in_budget(scope, cost)
            for scope in self.scopes(queue)
        )

    def cap(self, scope: str) -> float:
        cap = self.limits[scope].get(LEASES)
        if self.mutant in (Mutant.ZERO_IS_UNLIMITED, Mutant.ZERO_IS_IGNORED) and cap == 0:
            cap = None
        extra = 1 if self.mutant is Mutant.CAP_OFF_BY_ONE else 0
        return float("inf") if cap is None else cap + extra

    def held(self, queue: str, scope: str) -> int:
        alone = scope == GROUP and self.mutant is Mutant.GROUP_PER_QUEUE
        count = sum(
            lease.is_running
            and scope in self.scopes(lease.task.queue)
            and (not alone or lease.task.queue == queue)
            for lease in self.live.values()
        )
        return count - self.released.get(scope, 0)

    def in_budget(self, scope: str, cost: int) -> bool:
        rate, most = self.limits[scope].get(RATE), self.limits[scope].get(COST)
        since = self.window_began()
        gone = sum(at_ms >= since for at_ms in self.dispatched.get(scope, ()))
        if self.mutant is Mutant.MINUTE_BURST:
            gone = 0
        if rate is not None and gone >= rate:
            return False
        spent = sum(amount for at_ms, amount, _ in self.spent.get(scope, ()) if at_ms >= since)
        return most is None or self.mutant is Mutant.COST_NOT_RESERVED or spent + cost <= most

    def window_began(self) -> int:
        if self.window == "sliding" and self.mutant is not Mutant.SLIDING_BURST:
            return self.at_ms - MINUTE_MS + 1
        return self.at_ms - self.at_ms % MINUTE_MS

    def due(self, queue: str) -> int | None:
        waiting = self.ready[queue]
        if self.mutant is Mutant.WAKEUP_LOST:
            waiting = [task for task in waiting if not task.task_id.endswith("7")]
        if not waiting:
            return None
        fresh = [task for task in waiting if task.attempt == 0]
        wanted = waiting[0]
        if self.mutant is Mutant.NEWEST_FIRST and fresh:
            wanted = fresh[-1]
        return self.ready[queue].index(wanted)

    # what is kept

    @property
    def at_ms(self) -> int:
        return int(self.now) + AHEAD_MS

    def call(self, longest_ms: float = 60.0, since: float = 0.0) -> tuple[float, float]:
        """When a call that has its effect now was sent and answered."""
        t_inv = max(self.now - self.dice.uniform(0, longest_ms), since, 0.0)
        return min(t_inv, self.now), self.now + self.dice.uniform(0, 40)

    def put(self, task: Task) -> None:
        self.ready[task.queue].append(task)

    def scopes(self, queue: str) -> tuple[str, ...]:
        return f"queue:default/{queue}/activity", "namespace:default/activity", GROUP

    def told_limits(self, queue: str, cost: int) -> Iterator[ScopeLimits]:
        for scope in self.scopes(queue):
            limits = self.limits[scope]
            leases = limits.get(LEASES)
            if self.mutant is Mutant.ZERO_IS_UNLIMITED and leases == 0:
                leases = None
            of_cost = limits.get(COST)
            reserved = cost if of_cost is not None else 0
            yield ScopeLimits(scope, leases, limits.get(RATE), of_cost, self.window, reserved)

    def spend(self, queue: str, lease: Lease) -> None:
        for scope in self.scopes(queue):
            self.dispatched.setdefault(scope, []).append(self.at_ms)
            if COST in self.limits[scope]:
                self.spent.setdefault(scope, []).append([self.at_ms, lease.cost, lease.token])

    def settle(self, lease: Lease, actual: int) -> None:
        for entries in self.spent.values():
            for entry in entries:
                if entry[2] == lease.token:
                    entry[1] = actual

    def write(self, line: type[LeaseLine | RunAdmitted | RunClosed], **told: Any) -> None:
        self.journal.append(line(seq=len(self.journal) + 1, at_ms=self.at_ms, **told))

    def say(self, op: Any, lease: Lease, t_inv: float, t_ok: float | None, verdict: Any) -> None:
        self.seen.append(Reported(op, t_inv, lease.task.task_id, lease.token, t_ok, verdict))
        if t_ok is not None:
            self.now = max(self.now, t_ok)

    def _reorder(self) -> None:
        """The last grant of all claims to be the first."""
        from dataclasses import replace

        last = max(index for index, line in enumerate(self.journal) if isinstance(line, LeaseGranted))
        line = self.journal[last]
        assert isinstance(line, LeaseGranted)
        rest = [
            each
            for each in self.journal
            if each is not line and getattr(each, "lease_id", None) != line.lease_id
        ]
        self.journal = [replace(each, seq=seq) for seq, each in enumerate([line, *rest], start=1)]
