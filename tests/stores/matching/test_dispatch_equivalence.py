"""All stores dispatch tasks in the same order as a model that shares no statement with them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from penstock.core.limits.admission import (
    EVERYWHERE,
    Declaration,
    DeclaredScope,
    LimitField,
    cluster_scope,
    group_scope,
    namespace_scope,
)
from penstock.core.limits.policies import KeySettings, KeyState, LimitSetting, SettingValue, changed
from penstock.core.limits.windows import Window
from penstock.core.model import Queue, Task, TaskId, TaskState
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.fairness import Lane, LaneState, VirtualClock
from penstock.core.scheduling.gates import ScopeState
from penstock.engine.limits.adoption import adopt
from penstock.ports.store import Store, TransactionClass, Tx
from tests.stores.store_operations import (
    ANYTHING,
    a_queue,
    claim,
    enqueue,
    limit,
    look,
    queue_now,
    record,
    take_effect,
)
from tests.support.builders import NOW_MS, a_task, released
from tests.support.clock import ManualClock
from tests.support.dispatch_model import DispatchModel
from tests.support.effort import times

KEYS = ("", "a", "B", "ä", "z" * 64, "tenant-1", "tenant-10", "tenant-2")
TYPES = ("Charge", "Ship", "Pack")
BUILDS = (None, None, "build-1", "build-2")
VALUES: Mapping[LimitSetting, Sequence[int | str | None]] = {
    LimitSetting.QUEUE_RATE: (None, 5_000_000, 100_000_000),
    LimitSetting.KEY_RATE: (None, None, 1_000_000, 20_000_000),
    LimitSetting.FAIRNESS: (None, None, "on", "off"),
    LimitSetting.COUNTS: (None, "running", "dispatches"),
    LimitSetting.LEASE_CAP: (None, None, 9),
    LimitSetting.KEY_LEASE_CAP: (None, 2, 4),
    LimitSetting.AGING_WAIT: (None, 500, 5_000),
    LimitSetting.AGING_EVERY: (2, 3),
}
SCOPES = (
    cluster_scope(),
    cluster_scope("activity"),
    namespace_scope("default"),
    namespace_scope("default", "activity"),
    group_scope(EVERYWHERE, "bank"),
    group_scope("default", "bank"),
    group_scope("default", "post", "activity"),
)
DECLARED = Declaration(
    defaults={"activity": {LimitField.QUEUE_LEASES: 20, LimitField.GROUP: "bank"}},
    overrides={"refunds": {"activity": {LimitField.QUEUE_LEASES: 10, LimitField.NAMESPACE_DISPATCHES: 60}}},
    scopes={group_scope("default", "bank"): DeclaredScope(leases=15, window=Window.SLIDING)},
)

FAR_MS = 10**15
WEIGHTS = (1, 400, 1000, 1000, 2500, 1_000_000)
FITS = (
    ANYTHING,
    WorkerFilter((), "build-1"),
    WorkerFilter(("Charge",), None),
    WorkerFilter(("Pack", "Ship"), "build-2"),
    WorkerFilter(TYPES, "build-1"),
    WorkerFilter((), "build-1", ("w2",)),
    WorkerFilter(TYPES, "build-2", ("w1", "w3")),
)
RESERVATIONS = ((None, None), (None, None), (None, None), ("w1", FAR_MS), ("w2", FAR_MS), ("w1", 1))
"""One has expired; the others outlast the test, because the clocks of the stores differ."""


Move = Callable[[], Awaitable[None]]


class Player:
    """Runs a random program from a seed and records what was dispatched."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._dice = random.Random(seed)
        self._tasks = 0
        self._held: list[Task] = []
        self.now_ms = NOW_MS
        self.dispatched: list[str] = []

    async def play(self, steps: int) -> None:
        self._queue = await a_queue(self._store)
        moves = self._moves()
        for _ in range(steps):
            await self._dice.choice(moves)()
            await self._look_over()
        await self._play_out()

    def _moves(self) -> Sequence[Move]:
        return (self._enqueue, self._enqueue, self._claim, self._finish, self._give_back, self._cancel)

    async def _look_over(self) -> None:
        """Check the invariants after every step."""

    async def _play_out(self) -> None:
        while await self._claim_with(WorkerFilter(TYPES, "build-1")) + await self._claim_with(
            WorkerFilter(TYPES, "build-2")
        ):
            pass

    async def state(self) -> tuple[Sequence[Lane], Sequence[VirtualClock]]:
        """The snapshot that the next claim would use."""
        await self._enqueue()
        queue_id = self._queue.queue_id
        busy = (await look(self._store, lambda tx: tx.queues.backlog(queue_id, 0, 100))).lanes
        clocks = await look(self._store, lambda tx: tx.queues.clocks(queue_id))
        return [each.lane for each in busy], [*clocks]

    async def _enqueue(self) -> None:
        dice = self._dice
        key, level, weight = dice.choice(KEYS), dice.choice((0, 3, 3, 9)), dice.choice(WEIGHTS)
        tasks = [self._draw(self._queue, key, level) for _ in range(dice.randint(1, 6))]
        await enqueue(self._store, *tasks, weight_milli=weight)

    def _draw(self, queue: Queue, key: str, level: int) -> Task:
        self._tasks += 1
        kind, build = self._dice.choice(TYPES), self._dice.choice(BUILDS)
        keeper, until_ms = self._dice.choice(RESERVATIONS)
        task = a_task(queue, f"r{self._tasks}-1", key=key, level=level, type=kind, compatibility=build)
        return replace(task, sticky_worker_id=keeper, sticky_until_ms=until_ms)

    async def _claim(self) -> None:
        await self._claim_with(self._dice.choice(FITS))

    async def _claim_with(self, worker_filter: WorkerFilter) -> int:
        room = self._dice.choice((1, 2, 7))
        granted = await claim(self._store, self._queue.queue_id, room, worker_filter, now_ms=self.now_ms)
        self.dispatched += [task.task_id for task in granted]
        self._held += granted
        return len(granted)

    async def _finish(self) -> None:
        await self._end(TaskState.DONE)

    async def _give_back(self) -> None:
        await self._end(TaskState.READY)

    async def _end(self, state: TaskState) -> None:
        if self._held:
            task = self._held.pop(self._dice.randrange(len(self._held)))
            await self._store.transact(lambda tx: _end(tx, task.task_id, state), key=task.run_id)

    async def _cancel(self) -> None:
        """Cancel the oldest ready task, if there is one."""
        queue_id = self._queue.queue_id
        oldest = (await look(self._store, lambda tx: tx.queues.stats(queue_id, 0))).oldest
        if oldest is not None and self._dice.random() < 0.3:
            gone = released(oldest, TaskState.CANCELLED)
            await record(self._store, lambda tx: tx.tasks.save(gone, TaskState.READY))


async def _end(tx: Tx, task_id: TaskId, state: TaskState) -> None:
    task = await tx.tasks.lock(task_id)
    assert task is not None
    tx.tasks.save(released(task, state), TaskState.LEASED)


class RuledPlayer(Player):
    """Runs with settings that change all the time."""

    values = VALUES

    async def keys(self) -> Mapping[str, KeyState]:
        return await look(self._store, lambda tx: tx.policies.key_states(self._queue.queue_id, KEYS))

    async def counted(self) -> Mapping[str, int]:
        """The counted leases of each key."""
        leases = await look(self._store, lambda tx: tx.tasks.leases_on(self._queue.queue_id, 10_000))
        return Counter(task.key for task in leases if task.counted == 1)

    def _moves(self) -> Sequence[Move]:
        return (*super()._moves(), self._claim, self._finish, self._wait, self._set_line, self._set_key)

    async def _play_out(self) -> None:
        for _ in range(10):
            await self._wait()
            await self._claim_with(WorkerFilter(TYPES, "build-1"))

    async def _wait(self) -> None:
        self.now_ms += self._dice.choice((1, 50, 700, 5_000))

    async def _set_line(self) -> None:
        """Set a random setting of the queue, or unset it."""
        setting_name = self._dice.choice(tuple(self.values))
        value = self._dice.choice(self.values[setting_name])
        setting = None if value is None else SettingValue(value, "ann", NOW_MS)
        await self._store.transact(lambda tx: self._change(tx, {setting_name: setting}, []), key="policy")

    async def _set_key(self) -> None:
        dice = self._dice
        after = KeySettings(
            dice.choice(KEYS),
            dice.choice((None, None, 300, 5000)),
            dice.choice((None, None, None, 0, 3_000_000)),
            dice.choice((None, None, 0, 1, 3)),
            dice.choice((0, 0, 0, 1)),
            "ann",
            NOW_MS,
        )
        await self._store.transact(lambda tx: self._change(tx, {}, [after]), key="policy")

    async def _change(
        self, tx: Tx, settings: Mapping[LimitSetting, SettingValue | None], keys: Sequence[KeySettings]
    ) -> None:
        queue_id = self._queue.queue_id
        before = await tx.queues.lock(queue_id)
        assert before is not None
        known = await tx.policies.key_settings(queue_id, [each.key for each in keys])
        policy = changed(
            before.policy, settings, [(known.get(each.key, KeySettings(each.key)), each) for each in keys]
        )
        admission = await tx.scopes.admission()
        limits = admission.of(before.namespace, before.name, before.kind, policy, tx.now_ms)
        after = replace(before, policy=policy, limits=limits)
        await adopt(tx, {each.name: [after] for each in limits.scopes})
        old, new = before.rules, after.rules
        if new.counts_leases_by_key and not old.counts_leases_by_key:
            await tx.policies.count_leases(queue_id)
        if new.shares_by_running != old.shares_by_running:
            await tx.policies.rank_lanes(queue_id, by_running=new.shares_by_running)
        looked_at = LaneState.DIRTY if new.needs_keys else LaneState.READY
        tx.policies.reset_lanes(queue_id, looked_at)
        tx.policies.save(queue_id, policy)
        for each in keys:
            tx.policies.save_key(queue_id, each)
            tx.policies.touch_key(queue_id, each.key, self._dice.choice((LaneState.NEW, looked_at)))


class LimitedPlayer(RuledPlayer):
    """Runs on two queues with shared limits, which change all the time."""

    values = {
        **VALUES,
        LimitSetting.DISPATCHES: (None, 5, 40),
        LimitSetting.WINDOW: (None, "minute", "sliding"),
        LimitSetting.GROUP: (None, None, "bank", "post"),
    }

    async def play(self, steps: int) -> None:
        self._queues = [await a_queue(self._store), await a_queue(self._store, name="refunds")]
        await self._store.transact(self._declare, key="admission", tx_class=TransactionClass.CHANGE)
        await super().play(steps)

    async def scopes(self) -> Mapping[str, ScopeState]:
        """The counts of each scope, without its id."""
        found = await look(self._store, lambda tx: tx.scopes.find(SCOPES))
        return {state.name: replace(state, scope_id=0) for state in found}

    def _moves(self) -> Sequence[Move]:
        mine = (
            self._switch,
            self._limit,
            self._lift,
            self._lift,
            self._wait_a_minute,
            self._claim,
            self._claim,
        )
        return (*super()._moves(), *mine)

    async def _switch(self) -> None:
        self._queue = self._dice.choice(self._queues)

    async def _limit(self) -> None:
        dice = self._dice
        closed: Sequence[Mapping[str, int | str]] = (
            {LimitSetting.PAUSED: "on"},
            {LimitSetting.LEASE_CAP: 0},
            {},
            {},
        )
        drawn: Sequence[Mapping[str, int | str]] = (
            {LimitSetting.LEASE_CAP: dice.choice((3, 6, 6, 12))},
            {
                LimitSetting.LEASE_CAP: 8,
                LimitSetting.DISPATCHES: dice.choice((5, 30)),
                LimitSetting.WINDOW: "sliding",
            },
            {LimitSetting.DISPATCHES: dice.choice((5, 30))},
            dice.choice(closed),
        )
        await limit(self._store, dice.choice(SCOPES), None, **dice.choice(drawn))

    async def _lift(self) -> None:
        await limit(self._store, self._dice.choice(SCOPES), None)

    async def _wait_a_minute(self) -> None:
        self.now_ms += 61_000

    async def _claim_with(self, worker_filter: WorkerFilter) -> int:
        """A claim exceeds no cap; a scope that exceeded its cap before does not grow."""
        before = await self.scopes()
        granted = await super()._claim_with(worker_filter)
        after = await self.scopes()
        for rules in (await queue_now(self._store, self._queue.queue_id)).limits.scopes:
            if granted and rules.leases is not None:
                assert after[rules.name].running <= rules.leases
                assert after[rules.name].running == before[rules.name].running + granted
        return granted

    async def _look_over(self) -> None:
        """The count of each scope equals the number of leases that name it."""
        for name, (running, held) in (await look(self._store, self._counts)).items():
            assert running == held, name

    async def _counts(self, tx: Tx) -> Mapping[str, tuple[int, int]]:
        lines = [queue.queue_id for queue in self._queues]
        return {
            state.name: (state.running, await tx.scopes.counted(state.scope_id, lines))
            for state in await tx.scopes.find(SCOPES)
        }

    async def _declare(self, tx: Tx) -> None:
        before = await tx.scopes.lock_admission()
        lines = await tx.scopes.lock_queues(None)
        tx.scopes.declare(DECLARED, "server-1")
        await take_effect(tx, lines, replace(before, declaration=DECLARED))


@pytest.mark.parametrize("seed", range(times(3)))
async def test_the_same_history_gives_the_same_order_as_in_the_model(
    store: Store, clock: ManualClock, seed: int
):
    model, candidate = Player(DispatchModel.store(clock), seed), Player(store, seed)
    await model.play(60)
    await candidate.play(60)
    assert len(model.dispatched) > 40
    assert candidate.dispatched == model.dispatched
    assert await candidate.state() == await model.state()


@pytest.mark.parametrize("seed", range(times(4)))
async def test_the_same_history_under_changing_settings_gives_the_same_order_as_in_the_model(
    store: Store, clock: ManualClock, seed: int
):
    model, candidate = RuledPlayer(DispatchModel.store(clock), seed), RuledPlayer(store, seed)
    await model.play(200)
    await candidate.play(200)
    assert len(model.dispatched) > 20
    assert candidate.dispatched == model.dispatched
    assert await candidate.state() == await model.state()
    keys = await candidate.keys()
    assert keys == await model.keys()
    assert {key: state.running for key, state in keys.items() if state.running} == await candidate.counted()


@pytest.mark.parametrize("seed", range(times(3)))
async def test_the_same_history_under_shared_limits_gives_the_same_order_and_counts_as_in_the_model(
    store: Store, clock: ManualClock, seed: int
):
    model, candidate = LimitedPlayer(DispatchModel.store(clock), seed), LimitedPlayer(store, seed)
    await model.play(200)
    await candidate.play(200)
    assert len(model.dispatched) > 10
    assert candidate.dispatched == model.dispatched
    assert await candidate.state() == await model.state()
    scopes = await candidate.scopes()
    assert scopes == await model.scopes()
    assert sum(state.granted for state in scopes.values()) > 10
