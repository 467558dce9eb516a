"""Caps on runs over HTTP: set, read, listed, logged and rejected; and the starts that they hold back or refuse."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.server.client import Client

NUMBERS = itertools.count()
OF_TYPE = "/api/run-limits/workflow_type"


@pytest.fixture
def name() -> str:
    """A workflow type of the test's own: the servers are shared."""
    return f"capped-{next(NUMBERS)}"


async def start(penstock: Client, workflow_type: str, **fields: Any) -> dict[str, Any]:
    body = {"workflow_type": workflow_type, "task_queue": f"queue-of-{workflow_type}"} | fields
    answer: dict[str, Any] = (await penstock.post("/api/workflows", body)).expect(201).json
    return answer


async def test_a_cap_is_set_used_explained_and_unset(penstock: Client, name: str):
    fields = {"name": name, "max_open_runs": 1, "reason": "contract", "expires_in_seconds": 600}
    changed = (await penstock.patch(OF_TYPE, fields)).expect(200).json
    assert changed["version"] == 1
    assert changed["limits"]["max_open_runs"]["value"] == 1
    assert changed["limits"]["max_open_runs"]["ends_at"] is not None
    first = await start(penstock, name)
    second = await start(penstock, name)
    assert "waits_to_start" not in first
    assert second["waits_to_start"] is True
    assert second["status"] == "pending"
    described = (await penstock.get(f"/api/workflows/{second['workflow_id']}")).expect(200).json
    assert described["waits_to_start"] is True
    why = (await penstock.get(f"/api/workflows/{second['workflow_id']}/why")).expect(200).json
    assert why["binding"]["kind"] == "run_cap"
    assert [each["workflow_id"] for each in why["binding"]["holders"]] == [first["workflow_id"]]
    assert why["position"]["ahead"] == 0
    third = await start(penstock, name)
    behind = (await penstock.get(f"/api/workflows/{third['workflow_id']}/why")).expect(200).json
    assert behind["position"]["ahead"] == 1
    assert "1 run waits before it" in behind["summary"]
    await penstock.post(f"/api/workflows/{third['workflow_id']}/terminate", {})
    assert why["summary"].endswith(f"the workflow type {name} has 1 of at most 1 runs open.")
    read = (await penstock.get(f"{OF_TYPE}?name={name}")).expect(200).json
    assert read["counts"] == {"open_runs": 1, "waiting_runs": 1, "remaining_open_runs": 0}
    assert [each["workflow_id"] for each in read["holders"]] == [first["workflow_id"]]
    listed = (await penstock.get("/api/run-limits")).expect(200).json["run_limits"]
    assert name in [each["name"] for each in listed]
    await penstock.patch(OF_TYPE, {"name": name, "max_open_runs": None, "reason": "over"})
    history = (await penstock.get(f"{OF_TYPE}/history?name={name}")).expect(200).json["changes"]
    assert [(each["setting"], each["before"], each["after"], each["reason"]) for each in history] == [
        ("max_open_runs", 1, None, "over"),
        ("max_open_runs", None, 1, "contract"),
    ]


async def test_a_refused_start_says_which_cap_and_how_many_runs_are_open(penstock: Client, name: str):
    path = "/api/run-limits/concurrency_key"
    await penstock.patch(path, {"name": name, "max_open_runs": 1, "surplus": "refuse"})
    await start(penstock, name, concurrency_key=name)
    body = {"workflow_type": name, "concurrency_key": name}
    refused = (await penstock.post("/api/workflows", body)).expect(409, "run_cap_reached").json
    assert (refused["max_open_runs"], refused["open_runs"]) == (1, 1)
    assert refused["scope"] == f"runs:default/key/{name}"
    await start(penstock, name, concurrency_key=f"{name}-other")


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("workflow_type", {"max_open_runs": 1}, "name"),
        ("namespace", {"name": "x", "max_open_runs": 1}, "name"),
        ("worker", {"max_open_runs": 1}, "scope"),
        ("workflow_type", {"name": "x"}, "max_open_runs"),
        ("workflow_type", {"name": "x", "max_open_runs": -1}, "max_open_runs"),
        ("workflow_type", {"name": "x", "max_open_runs": 1.5}, "max_open_runs"),
        ("workflow_type", {"name": "x", "surplus": "drop", "max_open_runs": 1}, "surplus"),
        ("workflow_type", {"name": "x", "max_runs": 1}, "max_runs"),
    ],
)
async def test_what_makes_no_sense_is_rejected(
    penstock: Client, path: str, fields: dict[str, Any], field: str
):
    refused = (await penstock.patch(f"/api/run-limits/{path}", fields)).expect(422, "validation_failed")
    assert field in refused.json["errors"]


async def test_a_surplus_without_a_cap_and_an_old_version_are_conflicts(penstock: Client, name: str):
    fields = {"name": name, "surplus": "refuse"}
    (await penstock.patch(OF_TYPE, fields)).expect(409, "run_cap_contradiction")
    stale = {"name": name, "max_open_runs": 2, "if_version": 7}
    (await penstock.patch(OF_TYPE, stale)).expect(409, "config_version_conflict")
