"""Caps on runs: how many runs of a scope may be open at a time, and what becomes of a start beyond that.

Theory of operation
-------------------
A cap on *leases* bounds the tasks that workers hold; a run whose code sleeps for a week holds none. A cap on *runs*
bounds the runs themselves, from their start to their end. Four kinds of scopes can have one: a namespace, a workflow
type, a task queue, and a concurrency key that the caller of a start chose. A run counts in each of its scopes that has
a cap; it *holds a place* there. A start that finds a place in all of them is admitted. Beyond a cap, the *surplus
policy* of the full scope decides: the run waits to start (`queue`), or the start is refused (`refuse`), or the oldest
running run is cancelled and the new one waits for its place (`cancel_running`), or the new one takes the place of
those that wait (`keep_newest`).

Waiting runs stand in line at *one* full scope each, in the order of priority level and arrival, as in a chain of lock
queues. When a place of that scope is free, the first of the line is tried: it is admitted if all its other scopes have
room too, and otherwise moves to the line of the first full one, where it keeps its place by arrival. So a place costs
work only for the runs in its own line, however many wait elsewhere.

A chain of runs is one run: continue-as-new and the retry of a failed child hand their places on.

Invariants:
- `run-cap-never-exceeded`: a run is admitted only where each of its scopes then holds at most its cap. A cap that is
  lowered below the number of open runs ends none of them.
- `no-idle-place`: after a turn of a scope with room, nobody waits in its line.
- A new start never overtakes a run that stands in the line of one of its scopes.

Rejected: counting open runs at each start (costs as much as the cap is large), and lines without parking (each free
place would have to look at every waiting run of the namespace to find one whose other scopes have room).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.core.limits.policies import LimitSetting, Policy

PREFIX = "runs:"
"""The names of all scopes of caps on runs begin with this."""
KEY_MAX = 255


class Surplus(StrEnum):
    """What becomes of a start beyond the cap. The values are API."""

    QUEUE = "queue"
    REFUSE = "refuse"
    CANCEL_RUNNING = "cancel_running"
    KEEP_NEWEST = "keep_newest"


class RunScopeKind(StrEnum):
    """What a cap on runs is for. The values are API."""

    NAMESPACE = "namespace"
    TYPE = "workflow_type"
    QUEUE = "task_queue"
    KEY = "concurrency_key"
    EACH_KEY = "each_concurrency_key"


_SEGMENTS = {RunScopeKind.TYPE: "type", RunScopeKind.QUEUE: "queue", RunScopeKind.KEY: "key"}
_KINDS = {segment: kind for kind, segment in _SEGMENTS.items()}
_EACH_KEY = "each-key"


class RunScope(Struct, frozen=True):
    """The namespace, or a type, queue or key in it."""

    namespace: str
    kind: RunScopeKind = RunScopeKind.NAMESPACE
    value: str = ""

    @property
    def name(self) -> str:
        """Its name in the table of scopes, in the change log and in the journal."""
        if self.kind is RunScopeKind.NAMESPACE:
            return namespace_name(self.namespace)
        if self.kind is RunScopeKind.EACH_KEY:
            return f"{PREFIX}{self.namespace}/{_EACH_KEY}"
        return f"{PREFIX}{self.namespace}/{_SEGMENTS[self.kind]}/{self.value}"


def namespace_name(namespace: str) -> str:
    """The scope of a namespace. Its row has a policy, maybe an empty one, once anything in the namespace had a cap."""
    return f"{PREFIX}{namespace}"


def scope_of(name: str) -> RunScope:
    """The scope with a name."""
    namespace, _, rest = name.removeprefix(PREFIX).partition("/")
    segment, _, value = rest.partition("/")
    if segment == _EACH_KEY:
        return RunScope(namespace, RunScopeKind.EACH_KEY)
    kind = _KINDS.get(segment, RunScopeKind.NAMESPACE)
    return RunScope(namespace, kind, value)


def scopes_of(namespace: str, workflow_type: str, task_queue: str, key: str | None) -> Sequence[RunScope]:
    """The scopes that may count a run."""
    scopes = [
        RunScope(namespace),
        RunScope(namespace, RunScopeKind.TYPE, workflow_type),
        RunScope(namespace, RunScopeKind.QUEUE, task_queue),
    ]
    return scopes if key is None else [*scopes, RunScope(namespace, RunScopeKind.KEY, key)]


def scope_text(name: str) -> str:
    """A scope in words."""
    scope = scope_of(name)
    match scope.kind:
        case RunScopeKind.TYPE:
            return f"the workflow type {scope.value}"
        case RunScopeKind.QUEUE:
            return f"the task queue {scope.value}"
        case RunScopeKind.KEY:
            return f"the concurrency key {scope.value}"
        case RunScopeKind.EACH_KEY:
            return f"each concurrency key of the namespace {scope.namespace}"
        case RunScopeKind.NAMESPACE:
            return f"the namespace {scope.namespace}"


class RunCap(Struct, frozen=True):
    """The cap that is in force for a scope."""

    name: str
    most: int
    surplus: Surplus = Surplus.QUEUE


def cap_in_force(scope: RunScope, policies: Mapping[str, Policy], now_ms: int) -> RunCap | None:
    """The cap of a scope by the settings of operators. A key without one of its own has that of each key."""
    own = _cap(scope.name, policies.get(scope.name), now_ms)
    if own is not None or scope.kind is not RunScopeKind.KEY:
        return own
    each = RunScope(scope.namespace, RunScopeKind.EACH_KEY)
    return _cap(scope.name, policies.get(each.name), now_ms)


def _cap(name: str, policy: Policy | None, now_ms: int) -> RunCap | None:
    if policy is None:
        return None
    policy = policy.at(now_ms)
    most = policy.number(LimitSetting.OPEN_RUNS)
    surplus = Surplus(policy.word(LimitSetting.SURPLUS) or Surplus.QUEUE)
    return None if most is None else RunCap(name, most, surplus)


class ScopeLoad(Struct, frozen=True):
    """A cap, how many runs hold a place under it, and whether others wait in its line."""

    cap: RunCap
    open: int
    has_line: bool = False

    @property
    def is_full(self) -> bool:
        """Whether a new start must not take a place here."""
        return self.open >= self.cap.most or self.has_line


class Admit(Struct, frozen=True):
    """The run starts and takes a place in each of its scopes."""


class Refuse(Struct, frozen=True):
    """Nothing is started."""

    full: ScopeLoad


class Wait(Struct, frozen=True):
    """The run waits to start."""

    at: RunCap
    """Where it stands in line."""
    cancels: tuple[RunCap, ...] = ()
    """The scopes in which the oldest running run is cancelled."""
    replaces: tuple[RunCap, ...] = ()
    """The scopes whose waiting runs it replaces."""


Decision = Admit | Refuse | Wait


def decide(loads: Sequence[ScopeLoad]) -> Decision:
    """Whether a new run is admitted. A scope that refuses does so before another cancels or replaces anything.

    A cap of 0 is closed: no run is cancelled for it, because that would make no room.
    """
    full = [load for load in loads if load.is_full]
    if not full:
        return Admit()
    for load in full:
        if load.cap.surplus is Surplus.REFUSE:
            return Refuse(load)
    cancels = [each.cap for each in full if each.cap.surplus is Surplus.CANCEL_RUNNING and each.cap.most]
    replaces = [each.cap for each in full if each.cap.surplus is Surplus.KEEP_NEWEST]
    return Wait(full[0].cap, tuple(cancels), tuple(replaces))


class Candidate(Struct, frozen=True):
    """A run that waits, with the caps of all its scopes."""

    run_id: str
    caps: tuple[RunCap, ...]


class Turn(Struct, frozen=True):
    """The outcome of a turn."""

    admitted: tuple[str, ...]
    moved: Mapping[str, str]
    """By run, the scope to whose line it goes."""
    open: Mapping[str, int]
    """By scope, how many runs hold a place afterwards."""


def take_turn(at: str, line: Sequence[Candidate], loads: Mapping[str, int]) -> Turn:
    """Admit the runs of a line as far as there is room.

    Args:
        at: the scope in whose line they stand.
        line: the runs that wait there, the first first.
        loads: by scope, how many runs hold a place.
    """
    taken, admitted, moved = dict(loads), [], {}
    for candidate in line:
        full = [cap.name for cap in candidate.caps if taken[cap.name] >= cap.most]
        if at in full:
            continue  # others of the line may have no cap here any more, if theirs was that of each key
        if full:
            moved[candidate.run_id] = full[0]
            continue
        admitted.append(candidate.run_id)
        for cap in candidate.caps:
            taken[cap.name] += 1
    return Turn(tuple(admitted), moved, taken)
