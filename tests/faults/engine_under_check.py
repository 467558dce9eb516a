"""The real engine over an ephemeral store, driven by a random generator: its journal, and what its clients observed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.core.limits.policies import LimitSetting
from penstock.core.model import PriorityOverride, RetrySchedule, TaskKind
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import Leased, Poll
from penstock.core.verify.check import check
from penstock.core.verify.findings import Findings
from penstock.core.verify.journal import JournalLine
from penstock.core.verify.journal_clock import ClockOptions, Gaps
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
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import KeySettingsChange, PolicyUpdate, SettingChange
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.matching import permits
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.engine.operations import namespaces
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows.starts import STANDALONE_TYPE
from penstock.errors import PenstockError
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from penstock.wire.operations.journal import read_journal
from tests.engine.support import direct
from tests.engine.support.scene import NOTHING, a_start, charge, of
from tests.support.builders import NOW_MS
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy
from tests.support.ephemeral import ephemeral_store

ACTIVITY = TaskKind.ACTIVITY
QUEUES = ("a", "b", "c")
GROUP = "group:default/g"
LEASE_MS, CLAIM_MS = 20_000, 5_000
CAPS, RATE, COST = {"queue:default/c/activity": 3, GROUP: 4, "namespace:default": 6}, 4, 60


@dataclass
class Player:
    """Workers, clients and an operator, step by step; each step takes at least a millisecond."""

    dice: random.Random
    clock: ManualClock
    ctx: EngineContext
    seen: list[Observation] = field(default_factory=list)
    held: list[tuple[str, Leased]] = field(default_factory=list)
    started: int = 0

    @classmethod
    async def at(cls, seed: int) -> Player:
        clock, wakeups = ManualClock(NOW_MS), LocalWakeups()
        settings = load({"DW_AUTH_DRIVER": "none", "DW_ACTIVITY_TASK_TIMEOUT": str(LEASE_MS // 1000)})
        ctx = EngineContext(
            ephemeral_store(clock, wakeups, journals=True), wakeups, CountingEntropy(), settings
        )
        player = cls(random.Random(seed), clock, ctx)
        for name in ("default", "other"):
            await namespaces.ensure(ctx, name)
            for queue in QUEUES:
                await worker_registry.register(ctx, Registration(name, f"w-{name}-{queue}", queue, "python"))
        for queue in ("a", "b"):
            await player.limit_queue(queue, {LimitSetting.GROUP: "g"})
        await player.limit_queue("a", {LimitSetting.DISPATCHES: RATE, LimitSetting.WINDOW: "sliding"})
        for scope, cap in CAPS.items():
            await player.cap(scope, cap)
        await player.limit_scope(GROUP, {LimitSetting.COST: COST, LimitSetting.WINDOW: "sliding"})
        return player

    def now(self) -> float:
        """The clock of the clients, in step with that of the servers."""
        self.clock.advance(1)
        return float(self.clock.now_ms() - NOW_MS)

    # ── Operators ───────────────────────────────────────────────────────────────────────────────────────

    async def cap(self, scope: str, cap: int) -> None:
        sent_at = self.now()
        if scope.startswith("queue:"):
            await self.limit_queue(scope.split("/")[1], {LimitSetting.LEASE_CAP: cap})
        else:
            await self.limit_scope(scope, {LimitSetting.LEASE_CAP: cap})
        self.seen.append(LimitsSet(sent_at, scope, {"max_active_leases": cap}, self.now(), "accepted"))

    async def limit_queue(self, queue: str, settings: dict[LimitSetting, int | str]) -> None:
        asked = PolicyUpdate({setting_name: SettingChange(value) for setting_name, value in settings.items()})
        await policies.configure(self.ctx, "default", queue, ACTIVITY, asked, "operator")

    async def limit_scope(self, scope: str, settings: dict[LimitSetting, int | str]) -> None:
        asked = ScopeUpdate({setting_name: SettingChange(value) for setting_name, value in settings.items()})
        await admission.configure(self.ctx, scope, asked, "operator")

    # ── Clients and workers ─────────────────────────────────────────────────────────────────────────────

    async def start(self, queue: str | None = None) -> None:
        self.started += 1
        queue, sent_at = queue or self.dice.choice(QUEUES), self.now()
        cost = self.dice.choice((0, 5, 20))
        request = a_start(f"task-{self.started}", workflow_type=STANDALONE_TYPE, task_queue=queue)
        command = replace(
            charge(RetrySchedule(3, True, (0, 0), ()), queue), priority=PriorityOverride(cost=cost)
        )
        run = (await direct.start_activity(self.ctx, request, command)).run
        self.seen.append(
            StartSent(
                sent_at, self.now(), "accepted", f"{run.run_id}-1", task_queue=queue, key="", level=run.level
            )
        )

    async def poll(self, namespace: str = "default") -> None:
        queue = self.dice.choice(QUEUES)
        ahead = CLAIM_MS if self.dice.random() < 0.3 else None
        worker = f"w-{namespace}-{queue}"
        poll = Poll(
            namespace, worker, queue, ACTIVITY, tasks_max=self.dice.choice((1, 2, 5)), claim_lease_ms=ahead
        )
        sent_at, dispatcher = self.now(), Dispatcher(self.ctx)
        answer = await dispatcher.poll(poll, 0)
        if answer.leased and self.dice.random() < 0.15:
            self.seen.append(Polled(sent_at, self.now(), worker))
            await self.wait(self.dice.choice((0, 0, 900)))
            dispatcher.give_back(answer.leased)
            await dispatcher.close()
            return
        await dispatcher.close()
        leases = tuple(_lease(namespace, queue, leased) for leased in answer.leased)
        self.seen.append(Polled(sent_at, self.now(), worker, leases))
        self.held += [(namespace, leased) for leased in answer.leased]

    async def report(self) -> None:
        """Report on a task that is or was leased; tasks that ended are dropped."""
        if not self.held:
            return
        number = self.dice.randrange(len(self.held))
        namespace, leased = self.held[number]
        action = self.dice.choice(("complete", "complete", "complete", "fail", "heartbeat", "forget"))
        if leased.task.claimed:
            leased = await self.begin(namespace, leased, number)
            if leased.task.claimed:
                return
        if action == "forget" and self.dice.random() < 0.7:
            return
        if action in ("complete", "fail"):
            self.held.pop(number)
        await self.say(namespace, leased, "heartbeat" if action == "forget" else action)

    async def begin(self, namespace: str, leased: Leased, number: int) -> Leased:
        sent_at, verdict, after = self.now(), "refused", leased
        try:
            permit = await permits.start(self.ctx, namespace, leased.task.task_id, of(leased))
            if permit.hold is None:
                verdict = "accepted"
                after = Leased(replace(leased.task, claimed=0), leased.run, leased.activity)
                self.held[number] = (namespace, after)
        except PenstockError:
            self.held.pop(number)
        self._said("started", sent_at, leased, verdict)
        return after

    async def say(self, namespace: str, leased: Leased, action: str) -> None:
        sent_at, verdict = self.now(), "accepted"
        told: Report = of(leased)
        task_id = leased.task.task_id
        try:
            match action:
                case "complete":
                    await direct.complete_activity(self.ctx, namespace, task_id, told, NOTHING)
                case "fail":
                    await activity_reports.fail(self.ctx, namespace, task_id, told, AttemptFailure("no"))
                case _:
                    beat = await activity_reports.heartbeat(self.ctx, namespace, task_id, told, None)
                    verdict = "accepted" if beat.recorded else "refused"
        except PenstockError:
            verdict = "refused"
        self._said(action, sent_at, leased, verdict)

    def _said(self, op: Any, sent_at: float, leased: Leased, verdict: Any) -> None:
        task = leased.task
        self.seen.append(
            Reported(op, sent_at, task.task_id, task.lease_token or "", self.now(), verdict, LEASE_MS)
        )

    async def share_of_an_override(self) -> float:
        """The share of a key beside one with a quarter of its weight, re-weighted while both had a backlog."""
        for number in range(20):
            request = a_start(f"share-{number}", workflow_type=STANDALONE_TYPE, task_queue="c")
            wish = PriorityOverride(key=("heavy", "light")[number % 2])
            await direct.start_activity(self.ctx, request, replace(charge(queue="c"), priority=wish))
        asked = PolicyUpdate(keys={"heavy": KeySettingsChange(weight_milli=4_000)})
        await policies.configure(self.ctx, "default", "c", ACTIVITY, asked, "operator")
        given: list[str] = []
        while len(given) < 10:
            answer = await Dispatcher(self.ctx).poll(Poll("default", "w-default-c", "c", ACTIVITY), 0)
            (leased,) = answer.leased
            given.append(leased.task.key)
            await self.say("default", leased, "complete")
        return given.count("heavy") / len(given)

    # ── Time ────────────────────────────────────────────────────────────────────────────────────────────

    async def wait(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        await due_tasks(self.ctx).sweep()
        if self.dice.random() < 0.7:
            await self.sweep()

    async def sweep(self) -> None:
        """Requeue tasks without a report; on a server the sweeper does it a tick later."""
        for task_id in await self.ctx.store.read(_expired):
            await activity_reports.reclaim(self.ctx, task_id)

    # ── A whole run ─────────────────────────────────────────────────────────────────────────────────────

    async def run(self, steps: int) -> Player:
        for _ in range(steps):
            match self.dice.choices(
                ("start", "poll", "elsewhere", "report", "wait", "change"), (20, 30, 3, 40, 8, 2)
            )[0]:
                case "start":
                    await self.start()
                case "poll":
                    await self.poll()
                case "elsewhere":
                    await self.poll("other")
                case "report":
                    await self.report()
                case "wait":
                    await self.wait(self.dice.choice((100, 1_000, 6_000, 21_000)))
                case _:
                    scope = self.dice.choice(list(CAPS))
                    await self.cap(scope, self.dice.choice((0, 1, CAPS[scope], CAPS[scope] + 1)))
        return self

    async def journal(self) -> Iterator[JournalLine]:
        lines = await self.ctx.store.read(lambda tx: tx.journal.page(0, 1_000_000))
        told = [msgspec.json.encode({"seq": seq} | msgspec.json.decode(line)) for seq, line in lines]
        return read_journal(told, "the journal")

    async def verdict(self) -> Findings:
        book, _ = check(await self.journal(), self.seen, ClockOptions(gaps=Gaps.FOUND))
        return book

    def rest(self, *finals: ObservedFinal) -> None:
        """Everything has settled and was checked."""
        self.seen += [*finals, Quiescent()]


async def _expired(tx: Tx) -> Any:
    return await tx.tasks.expired(tx.now_ms, 1_000)


def _lease(namespace: str, queue: str, leased: Leased) -> PolledLease:
    task = leased.task
    claimed = bool(task.claimed)
    return PolledLease(
        task.task_id,
        task.lease_token or "",
        namespace,
        queue,
        "activity",
        task.attempt,
        CLAIM_MS if claimed else LEASE_MS,
        "claimed" if claimed else "running",
        (GROUP,) if queue in ("a", "b") else (),
    )
