"""Schedules in a scene: created, advanced in time, and looked at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.model import Blob
from penstock.core.schedules.overlap import Overlap
from penstock.core.schedules.record import FireRecord, ScheduleEvent, SchedulePolicies, ScheduleRecord
from penstock.core.timestamps import iso
from penstock.engine.maintenance.sweepers.due_timers import due_schedules
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.schedules import actions, lifecycle
from penstock.engine.schedules.actions import StoredAction
from penstock.engine.schedules.lifecycle import NewSchedule
from penstock.engine.workflows.starts import Start
from tests.engine.support.scene import Scene

MINUTE_MS = 60_000
EVERY_MINUTE = {"intervals": [{"every": "PT1M"}]}


def an_action(**start: Any) -> StoredAction:
    fields: dict[str, Any] = {
        "namespace": "default",
        "workflow_type": "Order",
        "task_queue": "orders",
        "input": Blob(""),
    }
    return StoredAction(Start(**fields | start), {"workflow_type": "Order", "task_queue": "orders"})


@dataclass
class ScheduleScene:
    """A schedule `s` with a fire each minute, unless a test says otherwise."""

    scene: Scene

    async def create(
        self,
        spec: dict[str, Any] | None = None,
        *,
        overlap: Overlap = Overlap.SKIP,
        action: StoredAction | None = None,
        paused: bool = False,
        **policies: Any,
    ) -> ScheduleRecord:
        action = action or an_action()
        return await lifecycle.create(
            self.scene.ctx,
            NewSchedule(
                namespace="default",
                schedule_id="s",
                spec=json.dumps(spec or EVERY_MINUTE),
                action=actions.encode(action),
                action_type=action.type,
                policies=SchedulePolicies(overlap=overlap, **policies),
                memo="{}",
                search_attributes="{}",
                note=None,
                paused=paused,
            ),
        )

    async def advance(self, by_ms: int = MINUTE_MS) -> None:
        self.scene.clock.advance(by_ms)
        await self.sweep()

    async def sweep(self) -> None:
        """Do everything that is due."""
        while await due_schedules(self.scene.ctx).sweep() + await pending_outbox(self.scene.ctx).sweep():
            pass

    async def record(self) -> ScheduleRecord:
        found = await self.scene.read(lambda tx: tx.schedules.newest_of_id("default", "s"))
        assert found is not None
        return found

    async def fires(self) -> Sequence[FireRecord]:
        """All fires, the oldest moment first."""
        key = (await self.record()).schedule_key
        found = await self.scene.read(lambda tx: tx.schedules.latest_fires(key, 10_000))
        return sorted(found, key=lambda fire: (fire.nominal_at_ms, fire.kind))

    async def states(self) -> list[str]:
        return [fire.reason or fire.state.value for fire in await self.fires()]

    async def events(self) -> Sequence[ScheduleEvent]:
        return await lifecycle.history(self.scene.ctx, "default", "s", 0, 10_000)

    async def event_types(self) -> list[str]:
        return [event.type.value for event in await self.events()]

    def shown(self, at_ms: int) -> str:
        return iso(at_ms)
