"""Simulations over HTTP: run in a process of their own, read when they are done, cancelled, refused."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tests.server.client import Client
from tests.support.patience import PATIENCE_S

NUMBERS = itertools.count()
PATH = "/api/simulations"
MODEL: dict[str, Any] = {
    "queues": {"q": {"max_active_leases": 2}},
    "arrivals": [{"queue": "q", "key": "a", "count": 12, "takes": "2s"}],
    "workers": [{"queue": "q", "slots": 10}],
}
LONG = MODEL | {"arrivals": [{"queue": "q", "key": "a", "count": 40_000, "takes": "2s"}]}


async def submitted(penstock: Client, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await penstock.post(PATH, body, role="operator")).expect(202).json
    return found


async def ended(penstock: Client, found: dict[str, Any]) -> dict[str, Any]:
    """The simulation once it has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while found["state"] == "running":
            await asyncio.sleep(0.1)
            found = (await penstock.get(f"{PATH}/{found['simulation_id']}", role="operator")).expect(200).json
    return found


async def test_a_model_is_simulated_with_a_change(everywhere: Client) -> None:
    asked = await submitted(everywhere, model=MODEL, set=["queue:q.max_active_leases=4"], replications=1)
    assert (asked["state"], asked["result"], asked["author"]) == ("running", None, "operator")
    done = await ended(everywhere, asked)
    assert done["state"] == "done", done["problem"]
    assert done["result"]["summary"].startswith("In q the p95 wait falls from 10 s to 4 s")
    listed = (await everywhere.get(PATH, role="operator")).expect(200).json["simulations"]
    assert listed[0]["simulation_id"] == asked["simulation_id"]
    assert "result" not in listed[0]


async def test_the_state_of_the_server_is_forecast(penstock: Client) -> None:
    name = f"simulated-{next(NUMBERS)}"
    items = [{"activity_type": "x", "task_queue": name, "fairness_key": "a"} for _ in range(9)]
    (await penstock.post("/api/activities/batch", {"items": items}, role="operator")).expect(200)
    asked = await submitted(penstock, live={"queue": name, "takes": "2s"}, workers=[])
    done = await ended(penstock, asked)
    assert done["state"] == "done", done["problem"]
    summary = done["result"]["summary"]
    assert summary == f"The backlog of 9 tasks in {name} will not drain: no worker takes 9 of them."


async def test_what_cannot_be_simulated_has_failed_and_says_why(penstock: Client) -> None:
    done = await ended(penstock, await submitted(penstock, model=MODEL, set=["queue:r.paused=true"]))
    assert done["state"] == "failed"
    assert done["problem"]["reason"] == "validation_failed"
    assert "There is no queue 'r'" in done["problem"]["message"]


async def test_a_simulation_that_is_cancelled_ends_at_once_and_stays_cancelled(penstock: Client) -> None:
    asked = await submitted(penstock, model=LONG)
    path = f"{PATH}/{asked['simulation_id']}"
    assert (await penstock.request("DELETE", path)).expect(200).json["state"] == "cancelled"
    again = await ended(penstock, await submitted(penstock, model=MODEL, replications=1))
    assert again["state"] == "done", "its turn came, so the long one does not run any more"
    assert (await penstock.get(path, role="operator")).json["state"] == "cancelled"
    assert (await penstock.request("DELETE", path)).expect(200).json["state"] == "cancelled"


async def test_only_so_many_may_be_under_way(penstock: Client) -> None:
    found = [await submitted(penstock, model=LONG) for _ in range(10)]
    refused = (await penstock.post(PATH, {"model": MODEL}, role="operator")).refused(
        409, "too_many_simulations"
    )
    assert "Wait for one" in refused.json["message"]
    for each in found:
        await penstock.request("DELETE", f"{PATH}/{each['simulation_id']}")
    (await penstock.post(PATH, {"model": MODEL}, role="operator")).expect(202)


async def test_it_is_refused_to_workers_and_unknown_ones_are_named(penstock: Client) -> None:
    (await penstock.post(PATH, {"model": MODEL}, role="worker")).refused(403, "forbidden")
    for method in ("GET", "DELETE"):
        (await penstock.request(method, f"{PATH}/none")).refused(404, "simulation_not_found")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "live"),
        ({"model": MODEL, "live": {}}, "live"),
        ({"model": MODEL, "target": "p95 wait in q <= 1s"}, "target"),
        ({"model": MODEL, "seeds": 3}, "seeds"),
    ],
)
async def test_a_request_that_is_wrong_is_refused_at_once(penstock: Client, body: Any, named: str) -> None:
    (await penstock.post(PATH, body, role="operator")).refused_fields(named)
