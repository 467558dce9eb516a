"""Starts under caps on runs: who is admitted at once, who waits, and who is admitted when a place is free.

`core.limits.run_caps` decides; this module reads the loads under the locks of the scopes and records the outcome. A
namespace that never had a cap pays nothing: the statement with which a start reads the promoted build says so too.

Scopes are locked before runs. The two transactions that hold the lock of a run first and ask for scopes then (a report
that starts children, a start that replaces a closed run) hold runs that no turn wants: a turn locks only runs that
wait. An operation records the new counters of its scopes last, because operations of one transaction pass a scope on as
soon as it is recorded (`stores.sql.scope_locks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history import lineage
from penstock.core.limits import run_caps
from penstock.core.limits.run_caps import (
    Admit,
    Candidate,
    Refuse,
    RunCap,
    ScopeLoad,
    Surplus,
    Wait,
)
from penstock.core.model import Run, RunId, Task, TaskState
from penstock.core.operations import journal_lines
from penstock.core.scheduling.gates import ScopeState
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import requeue
from penstock.engine.runs.run_places import caps_of
from penstock.engine.workflows.run_close import EndMode, close_now, end_open
from penstock.errors import Conflict, Reason
from penstock.ports.gather import gather
from penstock.ports.store import Tx
from penstock.ports.tables.run_places import RunPlace
from penstock.ports.wakeups import RUN_PLACES_TOPIC

UNTIL_ADMITTED_MS = 253_402_300_799_000
"""The end of the year 9999: when the first task of a run that waits to start would be ready."""
TURN_MAX = 32
"""Runs of a line that one transaction looks at."""
VICTIMS_READ = 100
"""Runs that are read to find one to cancel, or to replace."""
MAKES_ROOM = "cancelled to make room for a newer run: {scope} has a cap of {most} open runs"
REPLACED = "replaced by a newer run that waits to start: {scope} has a cap of {most} open runs"


async def any_caps(tx: Tx, namespace: str) -> bool:
    """Whether a namespace ever had a cap on runs."""
    name = run_caps.namespace_name(namespace)
    return name in await tx.run_places.policies([name])


async def of_start(ctx: EngineContext, tx: Tx, run: Run) -> StartCaps | None:
    """The caps that apply to a run that is about to start, locked; None in a namespace that never had one."""
    return await StartCaps.locked(ctx, tx, [run]) if await any_caps(tx, run.namespace) else None


def first_task_at_ms(run: Run, ready_at_ms: int) -> int:
    """When the first workflow task of a new run is ready: not before it is admitted."""
    return UNTIL_ADMITTED_MS if run.waits.to_start else ready_at_ms


def record(caps: StartCaps | None) -> None:
    """Record what an operation has taken of the caps that it locked, if any; the last thing that it does."""
    if caps is not None:
        caps.record()


class StartCaps:
    """The caps that apply to the runs that one operation starts, locked, with what it has taken of them so far.

    Args:
        ctx: the server.
        tx: the operation's transaction.
        caps: by run id, the caps of its scopes.
        states: by scope, its counters.
        lines: the scopes in whose line runs wait.
    """

    def __init__(
        self,
        ctx: EngineContext,
        tx: Tx,
        caps: Mapping[str, Sequence[RunCap]],
        states: Mapping[str, ScopeState],
        lines: frozenset[str],
    ) -> None:
        self._ctx = ctx
        self._tx = tx
        self._caps = caps
        self._states = dict(states)
        self._lines = set(lines)
        self._changed: set[str] = set()
        self._promised: Counter[str] = Counter()
        """Places of runs that `refusal` let pass, by scope."""
        self._passed: set[str] = set()
        self._gone: set[RunId] = set()
        """Runs that this operation has closed, or asked to end: reads still show them as they were."""
        self._freed: set[int] = set()
        """The scopes in which one of them held a place."""

    @classmethod
    async def locked(
        cls, ctx: EngineContext, tx: Tx, runs: Sequence[Run], *, replaces: bool = True
    ) -> StartCaps:
        """The caps of runs that are about to start.

        Args:
            ctx: the server.
            tx: the operation's transaction.
            runs: the runs, not recorded yet.
            replaces: whether one of them may cancel or replace others, so that operations must take turns.
        """
        caps = await caps_of(tx, runs)
        found = {cap.name: cap for each in caps.values() for cap in each}
        if not found:
            return cls(ctx, tx, caps, {}, frozenset())
        ids = await tx.scopes.ids(sorted(found))
        if replaces and any(map(_takes_turns, found.values())):
            await tx.run_places.hold(ids)
        states = {state.name: state for state in await tx.scopes.lock(ids)}
        standing = await tx.run_places.lines([state.scope_id for state in states.values()])
        lines = frozenset(compress(states, standing))
        return cls(ctx, tx, caps, states, lines)

    def refusal(self, run: Run) -> Conflict | None:
        """Why a cap refuses a run; None: `admit` will not."""
        loads = self._loads(run)
        match run_caps.decide(loads):
            case Refuse(full):
                return _refused(run, full)
            case Admit():
                self._promised.update(load.cap.name for load in loads)
                self._passed.add(run.run_id)
            case Wait():
                pass
        return None

    def give_way(self, run: Run) -> None:
        """Note an open run, as it was, that this operation ends: it is not ended again, and its places make room."""
        self._gone.add(run.run_id)
        self._freed.update(run.waits.places)

    async def admit(self, run: Run, ready_at_ms: int, *, replaces: bool = True) -> Run:
        """The run, with its places or waiting for them. Raises `Conflict` if a cap refuses it.

        Args:
            run: one of the runs that were given to `locked`.
            ready_at_ms: when its first workflow task may be ready.
            replaces: whether it may cancel and replace others where a cap says so; else it waits behind them.
        """
        caps = self._caps[run.run_id]
        if run.run_id in self._passed:
            self._promised.subtract(cap.name for cap in caps)
        match run_caps.decide(self._loads(run)):
            case Admit():
                return self._take(run, caps)
            case Refuse(full):
                raise _refused(run, full)
            case Wait(at, cancels, replaced):
                if replaces:
                    for cap in replaced:
                        await self._replace_waiting(run, cap)
                    for cap in cancels:
                        await self._cancel_oldest(run, cap)
                self._lines.add(at.name)
                self._tx.run_places.wait(run, self._states[at.name].scope_id, ready_at_ms)
                self._tx.wake(RUN_PLACES_TOPIC)
                return replace(run, waits=replace(run.waits, to_start=True))

    def require(self, run: Run) -> Run:
        """The run, with its places. Raises `Conflict` if there are none: it begins in the middle, so it cannot wait."""
        loads = self._loads(run)
        match run_caps.decide(loads):
            case Admit():
                return self._take(run, self._caps[run.run_id])
            case Refuse(full):
                raise _refused(run, full)
            case Wait(at):
                raise _refused(run, next(load for load in loads if load.cap.name == at.name))

    def _loads(self, run: Run) -> Sequence[ScopeLoad]:
        return [
            ScopeLoad(cap, self._states[cap.name].running + self._promised[cap.name], cap.name in self._lines)
            for cap in self._caps[run.run_id]
        ]

    def _take(self, run: Run, caps: Sequence[RunCap]) -> Run:
        for cap in caps:
            state = self._states[cap.name]
            self._states[cap.name] = replace(state, granted=state.granted + 1)
            self._changed.add(cap.name)
        ids = tuple(self._states[cap.name].scope_id for cap in caps)
        self._tx.run_places.take(run, ids)
        if caps and self._ctx.store.journals:
            self._tx.journal.append(journal_lines.run_admitted(lineage.first_of(run), caps, self._tx.now_ms))
        return replace(run, waits=replace(run.waits, places=ids)) if ids else run

    def record(self) -> None:
        """Record the counters that changed; the last thing that an operation does."""
        for name in sorted(self._changed):
            self._tx.scopes.settle(self._states[name])

    async def _replace_waiting(self, run: Run, cap: RunCap) -> None:
        """Close the runs that wait in the line of a scope."""
        for place in await self._tx.run_places.line(self._states[cap.name].scope_id, VICTIMS_READ):
            if place.run_id in self._gone:
                continue
            waiting = await self._tx.runs.lock(place.run_id)
            if waiting is not None and waiting.is_open and waiting.waits.to_start:
                self.give_way(waiting)
                await close_now(self._ctx, self._tx, waiting, EndMode.CANCEL, _why(REPLACED, cap))

    async def _cancel_oldest(self, run: Run, cap: RunCap) -> None:
        """Cancel the oldest run of a scope that is not being cancelled: of those that run, else of those that wait.

        None if this operation has ended a run there already.
        """
        scope_id = self._states[cap.name].scope_id
        if scope_id in self._freed:
            return
        running = await self._tx.run_places.holders(scope_id, VICTIMS_READ)
        for place in (*running, *await self._tx.run_places.line(scope_id, 1)):
            oldest = None if place.run_id in self._gone else await self._tx.runs.lock(place.run_id)
            if oldest is None or not oldest.is_open:
                continue
            if not oldest.waits.cancelling and oldest.waits.cancellation is None:
                self.give_way(oldest)
                await end_open(self._ctx, self._tx, oldest, EndMode.CANCEL, _why(MAKES_ROOM, cap))
                return


def _takes_turns(cap: RunCap) -> bool:
    return cap.surplus in (Surplus.CANCEL_RUNNING, Surplus.KEEP_NEWEST)


def _why(text: str, cap: RunCap) -> str:
    return text.format(scope=run_caps.scope_text(cap.name), most=cap.most)


def _refused(run: Run, full: ScopeLoad) -> Conflict:
    scope, cap = run_caps.scope_text(full.cap.name), full.cap
    held = "it is closed" if not cap.most else f"{full.open} of at most {cap.most} runs are open"
    return Conflict(
        Reason.RUN_CAP_REACHED,
        f"{run.workflow_id!r} was not started: of {scope}, {held}. Start it when one has closed, or have the operator "
        "raise the cap or let runs beyond it wait (surplus queue).",
        workflow_id=run.workflow_id,
        scope=cap.name,
        max_open_runs=cap.most,
        open_runs=full.open,
        outcome="rejected",
    )


# ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Waiting(Struct, frozen=True):
    place: RunPlace
    run: Run
    task: Task


async def take_turn(ctx: EngineContext, scope_id: int) -> bool:
    """Admit the first runs of a line as far as there is room. True if another turn may admit or move more."""

    async def operation(tx: Tx) -> bool:
        line = await tx.run_places.line(scope_id, TURN_MAX)
        found = [run for run in await tx.runs.get_many([each.run_id for each in line]) if run is not None]
        if not found:
            return False
        caps = await caps_of(tx, found)
        names = sorted({cap.name for each in caps.values() for cap in each})
        ids = await tx.scopes.ids(names)
        states = {state.name: state for state in await tx.scopes.lock([*{*ids, scope_id}])}
        if await caps_of(tx, found) != caps:  # changed before the lock; a change holds the lines from here on
            return True
        at = next(name for name, state in states.items() if state.scope_id == scope_id)
        waiting = await _locked(tx, line)
        candidates = [Candidate(run_id, tuple(caps[run_id])) for run_id in waiting]
        turn = run_caps.take_turn(at, candidates, {name: each.running for name, each in states.items()})
        for run_id in turn.admitted:
            _admit(ctx, tx, waiting[run_id], caps[run_id], states)
        for run_id, name in turn.moved.items():
            tx.run_places.move(waiting[run_id].run.run_id, states[name].scope_id)
        for name, state in states.items():
            if turn.open[name] != state.running:
                tx.scopes.settle(replace(state, granted=state.ended + turn.open[name]))
        if turn.moved:
            tx.wake(RUN_PLACES_TOPIC)
        return len(line) == TURN_MAX and bool(turn.admitted or turn.moved)

    return await ctx.store.transact(operation, key=f"run-places:{scope_id}")


async def _locked(tx: Tx, line: Sequence[RunPlace]) -> dict[str, _Waiting]:
    """The runs of a line that still wait, locked, with their delayed workflow tasks."""
    runs = await gather(*(tx.runs.lock(place.run_id) for place in line))
    found = [
        (place, run)
        for place, run in zip(line, runs, strict=True)
        if run is not None and run.is_open and run.waits.to_start
    ]
    tasks = await gather(*(tx.tasks.lock_workflow_task(run.run_id) for _, run in found))
    waiting: dict[str, _Waiting] = {}
    for (place, run), task in zip(found, tasks, strict=True):
        assert task is not None, "a run that waits to start has a delayed workflow task"
        waiting[run.run_id] = _Waiting(place, run, task)
    return waiting


def _admit(
    ctx: EngineContext,
    tx: Tx,
    waiting: _Waiting,
    caps: Sequence[RunCap],
    states: Mapping[str, ScopeState],
) -> None:
    run, ids = waiting.run, tuple(states[cap.name].scope_id for cap in caps)
    tx.runs.save(replace(run, waits=replace(run.waits, to_start=False, places=ids)))
    tx.run_places.drop(run.run_id)
    tx.run_places.take(run, ids)
    ready_at_ms = max(tx.now_ms, waiting.place.ready_at_ms)
    state = TaskState.DELAYED if ready_at_ms > tx.now_ms else TaskState.READY
    requeue(tx, run, replace(waiting.task, state=state, available_at_ms=ready_at_ms), TaskState.DELAYED)
    if ctx.store.journals:
        tx.journal.append(journal_lines.run_admitted(lineage.first_of(run), caps, tx.now_ms))
