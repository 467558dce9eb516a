"""Dialogs of what is not a cap, a rate or a pause: groups, windows, shares, caps on runs, and operations on runs."""

from __future__ import annotations

import html
import re

import pytest

from tests.server.client import Client
from tests.server.dashboard.conftest import QUEUE
from tests.server.dashboard.visitors import Visitor
from tests.support.clock import ManualClock

AUDIT = {"reason": "an audit", "for": "3600"}


def _hidden(text: str) -> dict[str, str]:
    """What the form of a dialog carries."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text)
    return {name: html.unescape(value) for name, value in found}


async def _undo(visitor: Visitor, setting: str) -> str:
    """The dialog that undoes the newest change of a setting."""
    found = re.search(
        rf'hx-get="([^"]+)"[^>]*aria-label="Undo: {setting} back', await visitor.page("/ui/changes")
    )
    assert found is not None, f"no change of {setting} can be undone"
    return await visitor.page(html.unescape(found[1]))


async def test_a_queue_joins_a_budget_group_counts_its_minutes_anew_and_both_are_undone(
    api: Client, operator: Visitor, clock: ManualClock
) -> None:
    (await api.patch("/api/budget-groups/bank", {"max_active_leases": 1})).expect(200)
    await operator.page("/ui/limits")
    clock.advance(1_000)
    shown = await operator.page(f"/ui/queues/{QUEUE}/group?to=bank")
    assert "1 running and 3 waiting tasks count in bank" in shown
    assert "bank has 0 of 1 leases in use now" in shown
    assert '<option value="bank">' in shown, "groups that are there are offered"
    form = _hidden(shown) | AUDIT | {"to": "bank"}
    assert b"is in the budget group bank" in (await operator.post(f"/ui/queues/{QUEUE}/group", form)).raw
    assert b"somebody was faster" in (await operator.post(f"/ui/queues/{QUEUE}/group", form)).raw
    shown = await operator.page(f"/ui/queues/{QUEUE}/settings?window=sliding")
    assert "is any sixty seconds" in shown.lower()
    form = _hidden(shown) | AUDIT | {"window": "sliding"}
    assert (await operator.post(f"/ui/queues/{QUEUE}/settings", form)).status == 200
    limits = (await api.get(f"/api/task-queues/{QUEUE}/limits")).json["limits"]
    assert limits["dispatch_budget_group"]["live"]["reason"] == "an audit"
    assert limits["dispatch_window"]["value"] == "sliding"
    assert limits["max_active_leases_per_queue"]["live"]["reason"] == "the bank is slow", "it was not touched"
    assert 'name="to" value=""' in await _undo(operator, "dispatch budget group")
    assert '<option value="" selected>as declared' in await _undo(operator, "dispatch window")


async def test_a_cap_is_taken_away_for_good_whatever_end_the_form_names(
    api: Client, operator: Visitor
) -> None:
    """It was refused: the dialog offers an end first, and what is not there cannot end."""
    shown = await operator.page(f"/ui/queues/{QUEUE}/cap?to=none&for=900")
    assert "--for" not in shown
    await operator.page("/ui/limits")
    done = await operator.post(f"/ui/queues/{QUEUE}/cap", _hidden(shown) | AUDIT | {"to": ""})
    assert b"the cap is off" in done.raw


async def test_the_order_of_a_queue_and_the_defaults_of_its_keys_change_together_or_alone(
    api: Client, operator: Visitor, clock: ManualClock
) -> None:
    await operator.page("/ui/limits")
    clock.advance(1_000)
    address = f"/ui/queues/{QUEUE}/settings"
    shown = await operator.page(f"{address}?fairness=off&key_cap=2")
    assert "Each key runs at most 2 tasks" in shown
    form = _hidden(shown) | AUDIT | {"fairness": "off", "key_cap": "2", "retries": ""}
    assert (await operator.post(address, form)).status == 200
    config = (await api.get(f"/api/task-queues/{QUEUE}/config")).json
    assert (config["fairness"]["value"], config["fairness_key_max_running_default"]["value"]) == ("off", 2)
    assert config["retry_rps_limit"] is None
    assert (await operator.post(address, form | {"retries": "many"})).status == 422
    assert 'name="key_cap" value=""' in await _undo(operator, "fairness key max running default")


async def test_runs_of_a_type_get_a_cap_that_stands_among_the_limits_and_is_undone(
    api: Client, operator: Visitor, clock: ManualClock
) -> None:
    await operator.page("/ui/limits")
    new = await operator.page("/ui/run-limits/change?new=yes&most=1&surplus=refuse")
    assert "is refused: its caller gets an error" in new
    form = _hidden(new) | AUDIT | {"scope": "workflow_type", "most": "1", "surplus": "refuse"}
    assert (await operator.post("/ui/run-limits/change", form | {"name": ""})).status == 422
    done = await operator.post("/ui/run-limits/change", form | {"name": "orders"})
    assert b"Runs of workflow type orders: at most 1 open" in done.raw
    start = {"workflow_type": "orders", "task_queue": QUEUE}
    (await api.post("/api/workflows", start | {"workflow_id": "order-1"})).expect(201)
    (await api.post("/api/workflows", start | {"workflow_id": "order-2"})).refused(409, "run_cap_reached")
    limits = await operator.page("/ui/limits")
    assert "runs of workflow type orders" in limits
    assert "“an audit”" in limits
    clock.advance(1_000)
    own = await operator.page("/ui/run-limits/change?scope=workflow_type&name=orders&most=0")
    assert "0 closes it" in own
    moved = _hidden(own) | AUDIT | {"most": "0", "surplus": "refuse"}
    assert (await operator.post("/ui/run-limits/change", moved)).status == 200
    conflict = await operator.post("/ui/run-limits/change", moved | {"most": "3"})
    assert conflict.status == 409
    assert "max open runs: 1 → 0" in html.unescape(conflict.raw.decode())
    assert 'name="most" value="1"' in await _undo(operator, "max open runs")


async def test_a_run_is_paused_resumed_ended_and_started_again_from_its_page(
    api: Client, operator: Visitor
) -> None:
    body = {"workflow_id": "order-1", "workflow_type": "orders", "task_queue": QUEUE}
    run_id = (await api.post("/api/workflows", body)).expect(201).json["run_id"]
    page = f"/ui/runs/order-1/{run_id}"
    assert ">Pause…<" in await operator.page(page)
    assert (await operator.post(f"{page}/act/pause", {"reason": "stock is counted"})).status == 200
    paused = await operator.page(page)
    assert ">Resume…<" in paused
    assert "stock is counted" in paused
    assert (await operator.post(f"{page}/act/resume")).status == 200
    assert (await operator.post(f"{page}/act/repair")).status == 200
    assert (await operator.post(f"{page}/act/terminate")).status == 200
    closed = await operator.page(page)
    assert ">Rerun…<" in closed
    assert ">Terminate…<" not in closed
    again = await operator.post(f"{page}/act/rerun", {"reason": "the card was renewed"})
    (next_run,) = re.findall(r'data-go="/ui/runs/order-1/(\w+)\?', again.raw.decode())
    assert next_run != run_id
    gone = await operator.post(f"{page}/act/delete", {"reason": "they asked for it"})
    assert b'data-go="/ui/runs?' in gone.raw
    assert (await operator.get(page)).status == 404


async def test_a_reset_begins_at_an_event_that_somebody_looks_at(api: Client, operator: Visitor) -> None:
    body = {"workflow_id": "order-1", "workflow_type": "orders", "task_queue": QUEUE}
    run_id = (await api.post("/api/workflows", body)).expect(201).json["run_id"]
    page = f"/ui/runs/order-1/{run_id}"
    await operator.page(page)
    shown = await operator.page(f"{page}/events/1")
    (address,) = re.findall(r'hx-get="([^"]*/act/reset[^"]*)"', shown)
    dialog = await operator.page(html.unescape(address))
    assert 'name="event" value="1"' in dialog
    refused = await operator.post(f"{page}/act/reset", {"event": "1", "reapply": "signals"})
    assert refused.status in (409, 422), "nothing was decided at the first event"
    assert (await operator.post(f"{page}/act/reset", {"event": ""})).status == 422


@pytest.mark.parametrize("act", ["pause", "run-now", "reset", "update-options"])
async def test_an_activity_is_changed_from_its_page(api: Client, operator: Visitor, act: str) -> None:
    page = "/ui/tasks/charge-3"
    text = await operator.page(page)
    (address,) = set(re.findall(rf'hx-get="([^"]*/act/{act})"', text))
    dialog = await operator.page(html.unescape(address))
    assert "Effect:" in dialog
    form = {"reason": "the card is checked", "queue": "slow", "start_to_close": "25", "attempts": "7"}
    assert (await operator.post(html.unescape(address), form)).status == 200
    after = (await api.get("/api/activities/charge-3")).json
    assert (after["task_queue"] == "slow") == (act == "update-options")
    assert (after["pause"] is not None) == (act == "pause")
    assert (">Resume…<" in await operator.page(page)) == (act == "pause")


async def test_schedules_are_paused_together_and_deleted_alone(api: Client, operator: Visitor) -> None:
    for number in (1, 2):
        schedule = {
            "schedule_id": f"nightly-{number}",
            "spec": {"cron_expressions": ["0 2 * * *"]},
            "action": {"workflow_type": "orders", "task_queue": QUEUE},
        }
        (await api.post("/api/schedules", schedule)).expect(201)
    await operator.page("/ui/schedules")
    query = f"TaskQueue = '{QUEUE}'"
    shown = await operator.page("/ui/schedules/bulk/pause?query=TaskQueue+%3D+%27payments%27")
    assert "2 schedules: nightly-2, nightly-1" in shown
    assert (await operator.post("/ui/schedules/bulk/pause", {"query": ""})).status == 422
    done = await operator.post("/ui/schedules/bulk/pause", {"query": query, "reason": "migration"})
    assert b"2 schedules" in done.raw
    assert "2 of 2 paused" in await operator.page("/ui/schedules")
    gone = await operator.post("/ui/schedules/nightly-1/act/delete")
    assert b'data-go="/ui/schedules?' in gone.raw
    assert (await operator.get("/ui/schedules/nightly-1")).status == 404


async def test_administrators_deregister_a_worker_and_operators_see_who_may(
    api: Client, operator: Visitor, somebody: object
) -> None:
    address = "/ui/workers/render-1/deregister"
    assert "its tasks may run twice" in await operator.page(address)
    assert (await operator.post(address)).status == 403
    admin = somebody()  # type: ignore[operator]
    await admin.sign_in("admin-secret")
    assert "Deregister…" in await admin.page("/ui/workers/render-1")
    assert (await admin.post(address)).status == 200
    assert (await operator.get("/ui/workers/render-1")).status == 404
