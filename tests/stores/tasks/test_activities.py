"""Activities over all their attempts."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import Activity, ActivityId, ActivityStatus, ActivityTimeouts, RetrySchedule, RunId
from penstock.ports.store import Store, Tx
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, an_activity


async def insert(store: Store, *activities: Activity) -> None:
    def write(tx: Tx) -> None:
        for activity in activities:
            tx.activities.insert(activity)

    await record(store, write)


async def test_an_activity_is_found_with_its_policy_and_its_clocks(store: Store):
    activity = an_activity(
        retry=RetrySchedule(5, True, (1, 2, 4), ("A", "B")),
        timeouts=ActivityTimeouts(1, 2, 3, 4),
        extra='{"g":1}',
    )
    await insert(store, activity)
    assert await look(store, lambda tx: tx.activities.get(activity.activity_id)) == activity
    assert await look(store, lambda tx: tx.activities.get(ActivityId("nobody"))) is None


async def test_several_activities_are_found_in_the_order_asked(store: Store):
    one, two = an_activity("r1-a"), an_activity("r1-b", retry=RetrySchedule())
    await insert(store, one, two)
    asked = [ActivityId(name) for name in ("r1-b", "nobody", "r1-a", "r1-b")]
    assert await look(store, lambda tx: tx.activities.get_many(asked)) == [two, None, one, two]
    assert await look(store, lambda tx: tx.activities.get_many([])) == []


async def test_a_saved_activity_shows_what_changed(store: Store):
    activity = an_activity()
    await insert(store, activity)
    changed = replace(
        activity,
        status=ActivityStatus.TIMED_OUT,
        attempt=2,
        started_at_ms=NOW_MS + 1,
        heartbeat_at_ms=NOW_MS + 2,
        heartbeat_details="wwE=",
        deadline_at_ms=None,
        closed_at_ms=NOW_MS + 3,
        worker_deaths=3,
        quarantined=1,
    )
    await record(store, lambda tx: tx.activities.save(changed))
    assert await look(store, lambda tx: tx.activities.get(activity.activity_id)) == changed


async def test_the_open_activities_of_a_run_come_in_the_order_of_their_steps(store: Store):
    steps = {"r1-a": 3, "r1-b": 1, "r1-c": 2}
    activities = {name: an_activity(name, step=step) for name, step in steps.items()}
    await insert(store, *activities.values(), an_activity("r2-a", run_id="r2"))
    closed = replace(activities["r1-c"], status=ActivityStatus.COMPLETED, closed_at_ms=NOW_MS)
    await record(store, lambda tx: tx.activities.save(closed))
    assert await look(store, lambda tx: tx.activities.open_of(RunId("r1"))) == [
        activities["r1-b"],
        activities["r1-a"],
    ]


async def test_overdue_activities_are_the_open_ones_whose_deadline_has_come_earliest_first(store: Store):
    await insert(
        store,
        an_activity("late", deadline_at_ms=NOW_MS - 1),
        an_activity("now", deadline_at_ms=NOW_MS, status=ActivityStatus.RUNNING),
        an_activity("later", deadline_at_ms=NOW_MS - 5),
        an_activity("soon", deadline_at_ms=NOW_MS + 1),
        an_activity("never"),
    )
    assert await look(store, lambda tx: tx.activities.overdue(NOW_MS, 10)) == ["later", "late", "now"]
    assert await look(store, lambda tx: tx.activities.overdue(NOW_MS, 2)) == ["later", "late"]


async def test_an_activity_that_closed_is_no_longer_overdue(store: Store):
    activity = an_activity(deadline_at_ms=NOW_MS)
    await insert(store, activity)
    closed = replace(activity, status=ActivityStatus.FAILED, closed_at_ms=NOW_MS, deadline_at_ms=None)
    await record(store, lambda tx: tx.activities.save(closed))
    assert await look(store, lambda tx: tx.activities.overdue(NOW_MS, 10)) == []
