"""Schedules, fires and events in the stores."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.core.schedules.record import (
    FireKind,
    FireRecord,
    FireState,
    ScheduleEvent,
    ScheduleEventType,
    SchedulePolicies,
    ScheduleProgress,
    ScheduleRecord,
    ScheduleStatus,
)
from penstock.ports.store import Store, Tx
from penstock.ports.tables.next_due import Due
from penstock.ports.tables.schedules import ScheduleFilter
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS


def a_schedule(key: str = "k1", **changes: Any) -> ScheduleRecord:
    plain: dict[str, Any] = {
        "schedule_key": key,
        "namespace": "default",
        "schedule_id": f"id-{key}",
        "action_type": "Order",
        "status": ScheduleStatus.ACTIVE,
        "note": None,
        "spec": "{}",
        "action": "{}",
        "policies": SchedulePolicies(max_runs=3),
        "progress": ScheduleProgress(fires=2, remaining=1),
        "memo": "{}",
        "search_attributes": "{}",
        "cursor_at_ms": NOW_MS,
        "nominal_at_ms": NOW_MS + 60_000,
        "due_at_ms": NOW_MS + 60_000,
        "zone_version": "2026a",
        "created_at_ms": NOW_MS,
        "updated_at_ms": NOW_MS,
    }
    return ScheduleRecord(**plain | changes)


def a_fire(at_ms: int, **changes: Any) -> FireRecord:
    plain: dict[str, Any] = {
        "schedule_key": "k1",
        "nominal_at_ms": at_ms,
        "kind": FireKind.SCHEDULED,
        "state": FireState.STARTED,
        "at_ms": at_ms,
    }
    return FireRecord(**plain | changes)


async def create(store: Store, *schedules: ScheduleRecord) -> list[bool]:
    async def operation(tx: Tx) -> list[bool]:
        return [await tx.schedules.create(each) for each in schedules]

    return await store.transact(operation, key="create")


async def test_a_schedule_is_found_as_it_was_created_and_saved(store: Store) -> None:
    schedule = a_schedule()
    assert await create(store, schedule) == [True]
    assert await look(store, lambda tx: tx.schedules.by_id("default", "id-k1")) == schedule
    assert await look(store, lambda tx: tx.schedules.by_id("other", "id-k1")) is None
    changed = replace(schedule, note="ü", due_at_ms=None, status=ScheduleStatus.PAUSED, version=2)
    await record(store, lambda tx: tx.schedules.save(changed))
    assert await look(store, lambda tx: tx.schedules.by_id("default", "id-k1")) == changed


async def test_an_id_is_taken_once_until_its_schedule_is_deleted(store: Store) -> None:
    first, second = (
        a_schedule("a", schedule_id="s"),
        a_schedule("b", schedule_id="s", created_at_ms=NOW_MS + 1),
    )
    assert await create(store, first) == [True]
    assert await create(store, second) == [False]
    deleted = replace(first, status=ScheduleStatus.DELETED, due_at_ms=None)
    await record(store, lambda tx: tx.schedules.save(deleted))
    assert await look(store, lambda tx: tx.schedules.by_id("default", "s")) is None
    assert await look(store, lambda tx: tx.schedules.newest_of_id("default", "s")) == deleted
    assert await create(store, second) == [True]
    assert await look(store, lambda tx: tx.schedules.newest_of_id("default", "s")) == second


async def test_due_schedules_come_in_order_and_the_next_one_is_known(store: Store) -> None:
    dues = {"late": NOW_MS - 5, "now": NOW_MS, "soon": NOW_MS + 1, "never": None}
    await create(store, *(a_schedule(name, due_at_ms=due) for name, due in dues.items()))
    assert await look(store, lambda tx: tx.schedules.due(NOW_MS, "2026a", 10)) == ["late", "now"]
    assert await look(store, lambda tx: tx.schedules.due(NOW_MS, "2026a", 1)) == ["late"]
    assert (await look(store, lambda tx: tx.next_due.until(NOW_MS)))[Due.SCHEDULE] == NOW_MS - 5
    assert await look(store, lambda tx: tx.schedules.count_due("default", NOW_MS, NOW_MS + 1)) == 2


async def test_schedules_are_found_by_the_version_of_their_zone_data(store: Store) -> None:
    assert await look(store, lambda tx: tx.schedules.newer_zone_data("")) is None
    versions = {"utc": "", "old": "2025b", "new": "2026a"}
    await create(
        store,
        *(a_schedule(name, zone_version=version, due_at_ms=NOW_MS) for name, version in versions.items()),
        a_schedule("paused", zone_version="2027a", status=ScheduleStatus.PAUSED, due_at_ms=None),
    )
    assert await look(store, lambda tx: tx.schedules.newer_zone_data("2025b")) == "2026a"
    assert await look(store, lambda tx: tx.schedules.newer_zone_data("2026a")) is None
    assert await look(store, lambda tx: tx.schedules.of_older_zone_data("2026a", 10)) == ["old"]
    assert await look(store, lambda tx: tx.schedules.due(NOW_MS, "2025b", 10)) == ["old", "utc"]


async def test_the_latest_updates_are_found_among_other_events(store: Store) -> None:
    kinds = [ScheduleEventType.UPDATED, ScheduleEventType.TRIGGERED, ScheduleEventType.UPDATED]
    events = [
        ScheduleEvent(schedule_key="k1", sequence=n, type=kind, payload="{}", at_ms=NOW_MS)
        for n, kind in enumerate(kinds, 1)
    ]

    def write(tx: Tx) -> None:
        for event in events:
            tx.schedules.append_event(event)

    await record(store, write)
    assert await look(store, lambda tx: tx.schedules.latest_updates("k1", 5)) == [events[2], events[0]]
    assert await look(store, lambda tx: tx.schedules.latest_updates("k1", 1)) == [events[2]]


async def test_lists_are_newest_first_and_filtered(store: Store) -> None:
    await create(
        store,
        a_schedule("a"),
        a_schedule("b", created_at_ms=NOW_MS + 1, action_type="Other"),
        a_schedule("c", created_at_ms=NOW_MS + 2, status=ScheduleStatus.PAUSED),
        a_schedule("d", status=ScheduleStatus.DELETED),
        a_schedule("e", namespace="other"),
    )

    async def keys(**narrow: str) -> list[str]:
        found = await look(store, lambda tx: tx.schedules.page(ScheduleFilter("default", **narrow), None, 10))
        return [each.schedule_key for each in found]

    assert await keys() == ["c", "b", "a"]
    assert await keys(status="active") == ["b", "a"]
    assert await keys(action_type="Other") == ["b"]


async def test_fires_are_unique_by_moment_and_kind_and_found_by_state(store: Store) -> None:
    fires = [a_fire(2), a_fire(1), a_fire(1, kind=FireKind.BACKFILL), a_fire(3, state=FireState.BUFFERED)]

    def write(tx: Tx) -> None:
        for fire in fires:
            tx.schedules.insert_fire(fire)

    await record(store, write)
    started = await look(store, lambda tx: tx.schedules.fires("k1", FireState.STARTED, 10))
    assert started == [fires[2], fires[1], fires[0]]
    assert await look(store, lambda tx: tx.schedules.fires("k1", FireState.BUFFERED, 10)) == [fires[3]]
    closed = replace(fires[0], state=FireState.CLOSED, reason="completed")
    await record(store, lambda tx: tx.schedules.save_fire(closed))
    assert await look(store, lambda tx: tx.schedules.fire(closed.key)) == closed
    assert (await look(store, lambda tx: tx.schedules.latest_fires("k1", 1)))[0].at_ms == 3
    await record(store, lambda tx: tx.schedules.forget(NOW_MS))
    left = await look(store, lambda tx: tx.schedules.latest_fires("k1", 10))
    assert closed not in left
    assert len(left) == 3


async def test_events_are_read_in_pages(store: Store) -> None:
    events = [
        ScheduleEvent(
            schedule_key="k1", sequence=n, type=ScheduleEventType.TRIGGERED, payload="{}", at_ms=NOW_MS + n
        )
        for n in range(1, 6)
    ]

    def write(tx: Tx) -> None:
        for event in events:
            tx.schedules.append_event(event)

    await record(store, write)
    assert await look(store, lambda tx: tx.schedules.events("k1", 2, 2)) == events[2:4]
    assert await look(store, lambda tx: tx.schedules.any_before(NOW_MS + 1)) is False
    assert await look(store, lambda tx: tx.schedules.any_before(NOW_MS + 2)) is True
