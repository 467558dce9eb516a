"""The invariants of runs hold for random concurrent code and random events in any order."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.core.history.commands import (
    CancelExternal,
    CancelStep,
    CancelWorkflow,
    Command,
    CompleteUpdate,
    CompleteWorkflow,
    ContinueAsNew,
    FailUpdate,
    FailWorkflow,
    SignalExternal,
    StartChild,
    StartTimer,
)
from penstock.core.model import Blob, ClosePolicy, RetrySchedule
from penstock.core.scheduling.polls import Leased
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.signals import Signal
from penstock.engine.messaging.updates import UpdateSubmission
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import Conflict, LeaseLost, NotFound
from tests.engine.support import run_invariants
from tests.engine.support.scene import ACTIVITY, NOTHING, WORKFLOW, Scene, charge, tries
from tests.support.effort import times

IDS = ("order-1", "order-2", "order-3")
ONE = Blob("AQ==")
SEEDS = times(25)
MOVES = 120


class Play:
    """Callers, workers, clocks and sweepers that act at random."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.dice = Random(seed)
        self.deciding: list[Leased] = []
        self.acting: list[Leased] = []

    async def go(self) -> None:
        for workflow_id in IDS:
            await self.scene.start(workflow_id)
        moves = (
            self._take,
            self._take,
            self._decide,
            self._decide,
            self._decide,
            self._act,
            self._report,
            self._signal,
            self._update,
            self._cancel,
            self._deliver,
            self._wait,
        )
        for _ in range(MOVES):
            try:
                await self.dice.choice(moves)()
            except (Conflict, LeaseLost, NotFound):
                pass  # a refusal changes nothing, which the laws show
            run_invariants.check(await run_invariants.load(self.scene.ctx.store))

    async def _take(self) -> None:
        leased = await self.scene.claim(WORKFLOW, self.dice.choice(("w1", "w2")))
        self.deciding += [leased] if leased is not None else []

    async def _decide(self) -> None:
        if not self.deciding:
            return
        leased = self.deciding.pop(self.dice.randrange(len(self.deciding)))
        if self.dice.random() < 0.1:
            await self.scene.fail(leased)
            return
        await self.scene.complete(
            leased, *self._commands(leased), concurrent=True, cached=self.dice.random() < 0.5
        )

    def _commands(self, leased: Leased) -> list[Command]:
        step, commands = self.scene.run(leased.run.run_id).last_step, list[Command]()
        for _ in range(self.dice.randrange(5)):
            new: Command = self.dice.choice(
                (
                    charge(self.dice.choice((None, tries(2, 1), RetrySchedule(3, True, backoff_ms=(20,))))),
                    StartTimer(1, delay_ms=self.dice.choice((0, 250))),
                    StartChild("Ship", None, NOTHING, policy=self.dice.choice(list(ClosePolicy))),
                    SignalExternal(self.dice.choice((*IDS, "nobody")), "go", NOTHING),
                    CancelExternal(self.dice.choice((*IDS, "nobody")))
                    if self.dice.random() < 0.2
                    else charge(),
                )
            )
            step += 1
            commands.append(new)
            if self.dice.random() < 0.3:
                commands.append(CancelStep(self.dice.randint(1, step)))
        for update in self.scene.tables.updates.values():
            if update.run_id == leased.run.run_id and self.dice.random() < 0.5:
                commands.append(
                    self.dice.choice(
                        (CompleteUpdate(update.update_id, ONE), FailUpdate(update.update_id, "no"))
                    )
                )
        if self.dice.random() < 0.08:
            commands.append(
                self.dice.choice(
                    (CompleteWorkflow(ONE), FailWorkflow("boom"), ContinueAsNew(NOTHING), CancelWorkflow())
                )
            )
        return commands

    async def _act(self) -> None:
        leased = await self.scene.claim(ACTIVITY)
        self.acting += [leased] if leased is not None else []

    async def _report(self) -> None:
        if self.acting:
            leased = self.acting.pop(self.dice.randrange(len(self.acting)))
            await (self.scene.finish if self.dice.random() < 0.6 else self.scene.fail_activity)(leased)

    async def _signal(self) -> None:
        address = Address("default", self.dice.choice(IDS))
        await signals.send(self.scene.ctx, Signal(address, "go", NOTHING))

    async def _update(self) -> None:
        asked = UpdateSubmission(Address("default", self.dice.choice(IDS)), "approve", NOTHING)
        await updates.accept(self.scene.ctx, asked, asyncio.Event())

    async def _cancel(self) -> None:
        end = EndMode.TERMINATE if self.dice.random() < 0.1 else EndMode.CANCEL
        if self.dice.random() < 0.3:
            await run_close.end_run(self.scene.ctx, "default", self.dice.choice(IDS), end, None)

    async def _deliver(self) -> None:
        await pending_outbox(self.scene.ctx).sweep()

    async def _wait(self) -> None:
        await self.scene.advance(self.dice.choice((1, 300, 2_000, 90_000)))
        for sweeper in (expired_leases, overdue_activities):
            await sweeper(self.scene.ctx).sweep()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_laws_hold_whatever_happens(scene: Scene, seed: int):
    await Play(scene, seed).go()
