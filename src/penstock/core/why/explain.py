"""Why a task waits, from one snapshot of its queue, by the functions that claims use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.history.structural_limits import LimitExcess
from penstock.core.last_error import split_error
from penstock.core.limits.admission import queue_scope
from penstock.core.limits.policies import DispatchOrder, KeyState, SettingValue
from penstock.core.limits.rates import MICRO
from penstock.core.model import Queue, Task, TaskKind, TaskState
from penstock.core.scheduling.gates import Gate, ScopeState, gates
from penstock.core.why import limits, workers
from penstock.core.why.estimate import AT_ONCE_MS, NO_PACE, DispatchPace, estimate_start
from penstock.core.why.position import turns
from penstock.core.why.runs import structural_limit
from penstock.core.why.sentences import count_text, duration_text, scope_text, sentence
from penstock.core.why.values import (
    NO_ESTIMATE,
    Constraint,
    ConstraintKind,
    LeaseHolder,
    Position,
    Remedy,
    RemedyKind,
    StartEstimate,
    WaitExplanation,
)
from penstock.core.why.workers import QueueWorkers


class WaitSnapshot(Struct, frozen=True):
    """A task and everything that decides when it is dispatched, read in one snapshot."""

    subject: str
    """The name used in sentences."""
    task: Task
    queue: Queue
    queue_workers: QueueWorkers
    key: KeyState
    running: int = 0
    scopes: Mapping[str, ScopeState] = field(default_factory=dict)
    pauses: Mapping[str, SettingValue] = field(default_factory=dict)
    """The pause settings of paused scopes."""
    weight_milli: int = 1_000
    is_coordinated: bool = True
    place: Position | None = None
    """Only of ready tasks."""
    pace: DispatchPace = NO_PACE
    head_cost: int | None = None
    """The cost of the task at the head of the queue, if cost is limited and it is another task."""
    run_failures: int = 0
    """Failures in a row of the run's workflow task."""
    excess: LimitExcess | None = None
    """The structural limit that the run's workflow task exceeds."""
    worker_deaths: int = 0
    """How many workers died running it."""
    is_quarantined: bool = False

    @property
    def now_ms(self) -> int:
        return self.queue_workers.now_ms


def explain(seen: WaitSnapshot) -> WaitExplanation:
    """The constraint that binds a task now, what would bind next, its position and when it may start."""
    match seen.task.state:
        case TaskState.DONE | TaskState.CANCELLED:
            return _ended(seen)
        case TaskState.LEASED:
            return _prefetched(seen) if seen.task.claimed else _leased(seen)
        case TaskState.DELAYED:
            return _delayed(seen)
        case TaskState.READY:
            return _ready(seen)


def _ended(seen: WaitSnapshot) -> WaitExplanation:
    if seen.is_quarantined:
        message = f"it is quarantined: {_deaths(seen)}"
        return _answer(
            seen, [Constraint(ConstraintKind.QUARANTINED, message, frees=(Remedy(RemedyKind.MEND),))]
        )
    word = "done" if seen.task.state is TaskState.DONE else "cancelled"
    return _answer(seen, [Constraint(ConstraintKind.NOT_WAITING, f"it is {word}")])


def _deaths(seen: WaitSnapshot) -> str:
    return f"{count_text(seen.worker_deaths, 'worker')} died running it"


def _leased(seen: WaitSnapshot) -> WaitExplanation:
    task, now_ms = seen.task, seen.now_ms
    since, until = task.leased_at_ms or now_ms, task.lease_expires_at_ms or now_ms
    left = (
        f"expires in {duration_text(until - now_ms)}"
        if until > now_ms
        else "has expired and is about to be released"
    )
    before = f"; {_deaths(seen)} before" if seen.worker_deaths else ""
    held = Constraint(
        ConstraintKind.LEASED,
        f"the worker {task.lease_owner} has had it for {duration_text(now_ms - since)} (attempt {task.attempt}); "
        f"its lease {left}{before}",
        opens_at_ms=until,
        frees=(Remedy(RemedyKind.REPORT),),
        holders=(holder(task, None, now_ms),),
    )
    return _answer(seen, [held], expected=StartEstimate(unknown_because="It has started already."))


def _prefetched(seen: WaitSnapshot) -> WaitExplanation:
    """A prefetched task: the limits decide when its worker may start it."""
    task, now_ms = seen.task, seen.now_ms
    until = task.lease_expires_at_ms or now_ms
    held = Constraint(
        ConstraintKind.PREFETCHED,
        f"the worker {task.lease_owner} has prefetched it and has not started it",
        opens_at_ms=until,
        frees=(Remedy(RemedyKind.REPORT), Remedy(RemedyKind.WAIT, at_ms=until)),
        holders=(holder(task, None, now_ms),),
    )
    closed = [*_coordination(seen), *(_of(seen, gate) for gate in _gates(seen) if gate.is_closed)]
    unknown = StartEstimate(unknown_because="Its worker decides when to start it.")
    return _answer(seen, [*closed, held], expected=unknown)


def _delayed(seen: WaitSnapshot) -> WaitExplanation:
    task, now_ms = seen.task, seen.now_ms
    at_ms = task.available_at_ms
    error, _ = split_error(task.last_error)
    error = f": {error}" if error else ""
    soon = f"next attempt in {duration_text(at_ms - now_ms)}"
    if task.kind is TaskKind.WORKFLOW and seen.run_failures:
        times = "once" if seen.run_failures == 1 else f"{seen.run_failures} times in a row"
        kind, message = ConstraintKind.BLOCKED_RUN, f"its workflow task failed {times}{error}; {soon}"
    elif task.retry_due_at_ms is not None:
        return _moved(seen, task.retry_due_at_ms, f"attempt {task.attempt} did not succeed{error}")
    elif not task.attempt and not error:
        kind, message = (
            ConstraintKind.START_DELAY,
            f"its start is delayed: the first attempt is due in {duration_text(at_ms - now_ms)}",
        )
    else:
        kind, message = ConstraintKind.RETRY_BACKOFF, f"attempt {task.attempt} did not succeed{error}; {soon}"
    # The next attempt of code that failed comes with time, and fails as well: waiting is no remedy.
    frees = (
        Remedy(RemedyKind.FIX) if kind is ConstraintKind.BLOCKED_RUN else Remedy(RemedyKind.WAIT, at_ms=at_ms)
    )
    rest = Constraint(kind, message, opens_at_ms=at_ms, frees=(frees,))
    closed = [*_structural(seen), rest, *_closed(seen)]
    return _answer(seen, closed, expected=_after_rest(seen, closed))


def _structural(seen: WaitSnapshot) -> list[Constraint]:
    """The structural limit that rejects the run's workflow task on every attempt."""
    is_refused = seen.task.kind is TaskKind.WORKFLOW and seen.excess is not None and seen.excess.was_refused
    return [structural_limit(seen.excess)] if is_refused and seen.excess is not None else []


def _moved(seen: WaitSnapshot, due_at_ms: int, before: str) -> WaitExplanation:
    """A retry that the retry budget of its queue moved to a later time."""
    task, now_ms, rate = seen.task, seen.now_ms, seen.queue.rules.retry_rate
    at_ms, scope = task.available_at_ms, queue_scope(task.namespace, task.task_queue, task.kind)
    most = "" if rate is None else f" of {rate.micro / MICRO:g} retries a second"
    rest = Constraint(
        ConstraintKind.RETRY_BUDGET,
        f"{before}; its retry was due {_ago(now_ms - due_at_ms)}, and the retry budget{most} of "
        f"{scope_text(scope)} moved it by {duration_text(at_ms - due_at_ms)}: "
        f"next attempt in {duration_text(at_ms - now_ms)}",
        scope,
        opens_at_ms=at_ms,
        frees=(
            Remedy(RemedyKind.WAIT, at_ms=at_ms),
            *(() if rate is None else (Remedy(RemedyKind.UNSET, scope),)),
        ),
    )
    closed = [rest, *_closed(seen)]
    return _answer(seen, closed, expected=_after_rest(seen, closed))


def _ago(ms: int) -> str:
    return f"{duration_text(ms)} ago" if ms > 0 else "now"


def _after_rest(seen: WaitSnapshot, closed: Sequence[Constraint]) -> StartEstimate:
    """A delayed task returns to the front of its key."""
    front = Position(seen.task.level, seen.task.key)
    return estimate_start(seen.queue, closed, _gates(seen), seen.scopes, front, seen.pace, seen.now_ms)


def _ready(seen: WaitSnapshot) -> WaitExplanation:
    place = seen.place or Position(seen.task.level, seen.task.key)
    closed = [*_structural(seen), *_closed(seen)]
    waits = [*closed, *turns(place, fair=seen.queue.rules.order is DispatchOrder.FAIR)]
    soon = [_of(seen, gate) for gate in _gates(seen) if not gate.is_closed and gate.left <= place.ahead]
    expected = estimate_start(seen.queue, closed, _gates(seen), seen.scopes, place, seen.pace, seen.now_ms)
    if not waits:
        expected = StartEstimate(seen.now_ms, seen.now_ms + AT_ONCE_MS)
    kept = workers.sticky_wait(seen.queue_workers, seen.task)
    if kept is not None:
        waits, expected = [*waits, kept], _at_the_latest_after(kept, expected)
    return _answer(seen, [*waits, *soon], place, expected)


def _at_the_latest_after(kept: Constraint, expected: StartEstimate) -> StartEstimate:
    """The sticky worker may poll at once; otherwise other workers get the task when stickiness expires."""
    if expected.to_ms is None or kept.opens_at_ms is None:
        return expected
    return replace(expected, to_ms=max(expected.to_ms, kept.opens_at_ms + AT_ONCE_MS))


def _closed(seen: WaitSnapshot) -> list[Constraint]:
    """All closed constraints in the order in which they are reported: workers first, then limits."""
    absent = workers.no_available_worker(seen.queue_workers, seen.task)
    key = limits.of_key(seen.queue, seen.key, seen.weight_milli, seen.now_ms)
    full = workers.saturation(seen.queue_workers, seen.task)
    return [
        *([] if absent is None else [absent]),
        *_coordination(seen),
        *(_of(seen, gate) for gate in _gates(seen) if gate.is_closed),
        *([] if key is None else [key]),
        *([] if full is None else [full]),
    ]


def _coordination(seen: WaitSnapshot) -> list[Constraint]:
    if seen.is_coordinated or not seen.queue.is_limited:
        return []
    message = "the queue has limits, and the cache that coordinates servers is unavailable"
    return [Constraint(ConstraintKind.COORDINATION, message, frees=(Remedy(RemedyKind.RESTORE),))]


def _gates(seen: WaitSnapshot) -> Sequence[Gate]:
    return gates(seen.queue, seen.running, seen.scopes, seen.now_ms, _cost(seen))


def _cost(seen: WaitSnapshot) -> int:
    """The cost that budgets must allow: an expensive task at the head also holds back those behind it."""
    return max(seen.task.cost, seen.head_cost or 0)


def _of(seen: WaitSnapshot, gate: Gate) -> Constraint:
    whose = "this task" if _cost(seen) == seen.task.cost else "the task that goes first"
    return limits.of_gate(gate, seen.pauses, seen.now_ms, _cost(seen), whose)


def _answer(
    seen: WaitSnapshot,
    constraints: Sequence[Constraint],
    place: Position | None = None,
    expected: StartEstimate = NO_ESTIMATE,
) -> WaitExplanation:
    binding = constraints[0] if constraints else None
    return WaitExplanation(sentence(seen.subject, binding), binding, tuple(constraints[1:]), place, expected)


def holder(task: Task, workflow_id: str | None, now_ms: int) -> LeaseHolder:
    """The holder of a leased task."""
    since, until = task.leased_at_ms or now_ms, task.lease_expires_at_ms or now_ms
    return LeaseHolder(task.task_id, workflow_id, task.task_queue, task.lease_owner, since, until)


def held_by(explanation: WaitExplanation, holders: Sequence[LeaseHolder]) -> WaitExplanation:
    """The explanation with the leases that use up the binding limit."""
    if explanation.binding is None:
        return explanation
    return replace(explanation, binding=replace(explanation.binding, holders=tuple(holders)))
