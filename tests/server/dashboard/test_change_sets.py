"""Change sets in the dashboard: seen by everybody, acted on by those who may, with the plan that they saw."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from penstock.server.dashboard.pages.change_sets.detail import history
from tests.server.client import Client
from tests.server.dashboard.conftest import QUEUE
from tests.server.dashboard.visitors import Visitor

PATH = "/ui/change-sets"


async def proposed(api: Client, **body: Any) -> str:
    settings = {"queues": {QUEUE: {"max_active_leases": 0, "weights": {"acme": 3}}}}
    made = await api.post("/api/change-sets", {"reason": "slow database"} | settings | body)
    change_set_id: str = made.expect(201).json["change_set_id"]
    return change_set_id


async def state_of(api: Client, change_set_id: str) -> str:
    found = (await api.get(f"/api/change-sets/{change_set_id}")).expect(200).json
    state: str = found["state"]
    return state


async def do(visitor: Visitor, change_set_id: str, act: str, **form: str) -> Any:
    """Open the dialog of an act, and send it as it is with these fields."""
    dialog = html.unescape(await visitor.page(f"{PATH}/{change_set_id}/do/{act}"))
    plan = re.search(r'name="plan" value="([0-9a-f]+)"', dialog)
    sent = {"plan": plan[1]} if plan else {}
    return await visitor.post(f"{PATH}/{change_set_id}/do/{act}", sent | form)


async def test_without_change_sets_the_page_says_how_to_make_one(operator: Visitor) -> None:
    page = html.unescape(await operator.page(PATH))
    assert "No change set yet" in page
    assert "penstock change new --set queue:payments.max_active_leases=5" in page
    assert "No change set is expired" in await operator.page(f"{PATH}?state=expired")
    assert (await operator.get(f"{PATH}?state=gone")).status == 404


async def test_a_change_set_is_shown_with_its_plan_in_words_and_what_stops_it(
    api: Client, operator: Visitor
) -> None:
    (await api.patch("/api/namespaces/default/limits", {"change_approvals": 1})).expect(200)
    change_set_id = await proposed(api)
    page = html.unescape(await operator.page(f"{PATH}/{change_set_id}"))
    for text in (
        "The cap on leases of the task queue payments falls from 1 to 0.",
        "It closes the task queue payments: nothing more starts there",
        "1 approval by others than its author is missing.",
        "It cannot be applied yet.",
    ):
        assert text in page
    assert change_set_id in await operator.page(PATH)
    assert "Change sets: several limits as one" in await operator.page("/ui/find?q=change")


async def test_a_change_set_is_approved_applied_and_rolled_back_by_visitors(
    api: Client, operator: Visitor, admin: Visitor
) -> None:
    (await api.patch("/api/namespaces/default/limits", {"change_approvals": 1})).expect(200)
    change_set_id = await proposed(api)
    for visitor in (operator, admin):
        await visitor.page(PATH)
    assert b"approvals are missing" in (await do(operator, change_set_id, "apply")).raw
    assert (await do(operator, change_set_id, "approve")).status == 200
    assert (await do(operator, change_set_id, "apply")).status == 200
    assert await state_of(api, change_set_id) == "applied"
    effect = await operator.page(f"{PATH}/{change_set_id}/effect")
    assert "This server keeps no journal" in effect
    undo = (await do(operator, change_set_id, "rollback", reason="worse")).raw.decode()
    rollback = re.findall(r"change-sets/(\w+)", undo)[0]
    assert (await do(operator, rollback, "apply", break_glass="fire")).status == 403
    assert (await do(admin, rollback, "apply", break_glass="fire")).status == 200
    page = html.unescape(await operator.page(f"{PATH}/{rollback}"))
    assert "without 1 of its approvals: “fire”" in page
    assert "It rolls back" in page


async def test_an_apply_is_put_off_and_withdrawn_and_an_approval_taken_back(
    api: Client, operator: Visitor
) -> None:
    change_set_id = await proposed(api)
    await operator.page(PATH)
    await do(operator, change_set_id, "approve")
    assert (await do(operator, change_set_id, "apply", at="2099-01-01T00:00:00Z")).status == 200
    assert await state_of(api, change_set_id) == "scheduled"
    assert "because ops-on-call asked for it" in await operator.page(f"{PATH}/{change_set_id}")
    assert (await do(operator, change_set_id, "apply", at="tomorrow")).status == 422
    assert (await do(operator, change_set_id, "unapprove")).status == 200
    assert (await do(operator, change_set_id, "withdraw")).status == 200
    assert await state_of(api, change_set_id) == "withdrawn"
    assert (await operator.get(f"{PATH}/{change_set_id}/do/explode")).status == 404


async def test_a_plan_that_moved_while_its_dialog_was_open_is_not_applied(
    api: Client, operator: Visitor
) -> None:
    change_set_id = await proposed(api)
    await operator.page(PATH)
    dialog = await operator.page(f"{PATH}/{change_set_id}/do/apply")
    [plan] = re.findall(r'name="plan" value="([0-9a-f]+)"', dialog)
    (await api.patch(f"/api/task-queues/{QUEUE}/limits", {"paused": True})).expect(200)
    reply = await operator.post(f"{PATH}/{change_set_id}/do/apply", {"plan": plan})
    assert reply.status == 409
    assert await state_of(api, change_set_id) == "proposed"


async def test_viewers_see_change_sets_and_do_nothing_with_them(api: Client, viewer: Visitor) -> None:
    change_set_id = await proposed(api)
    page = await viewer.page(f"{PATH}/{change_set_id}")
    assert "Viewers change nothing" in page
    assert (await viewer.post(f"{PATH}/{change_set_id}/do/withdraw", {})).status == 403
    assert await state_of(api, change_set_id) == "proposed"


@pytest.mark.parametrize(
    ("state", "since", "note"),
    [
        ("outdated", ["queue:default/q/activity"], "does not count: queue:default/q/activity changed since"),
        ("outdated", [], "does not count: it was edited since"),
        ("expired", [], "expired, so it does not count"),
        ("counts", [], ""),
    ],
)
def test_the_history_says_which_approvals_do_not_count(state: str, since: list[str], note: str) -> None:
    given = {"by": "ben", "at": "T1", "state": state, "changed_since": since}
    ended = {"ended_at": None, "applied_at": None, "break_glass": None, "edited_at": None}
    body = ended | {"state": "proposed", "approvals": {"given": [given]}, "created_at": "T0"}
    approved, made = history(body | {"author": "ada", "change_reason": "why"})
    assert (approved["by"], approved["note"], made["by"]) == ("ben", note, "ada")
