"""Unique keys over HTTP: what a start returns, what is shown, and what contradicts itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.server.client import Client

NUMBERS = itertools.count()


@pytest.fixture
def key() -> str:
    """A key of the test's own: the servers are shared."""
    return f"key-{next(NUMBERS)}"


def a_start(key: str, **fields: Any) -> dict[str, Any]:
    return {"workflow_type": "unique", "task_queue": "unique", "unique_key": key} | fields


async def test_a_start_returns_the_run_that_holds_its_key_which_is_shown(penstock: Client, key: str):
    first = (await penstock.post("/api/workflows", a_start(key))).expect(201).json
    second = (await penstock.post("/api/workflows", a_start(key))).expect(200).json
    assert (second["outcome"], second["run_id"]) == ("returned_existing_active", first["run_id"])
    refused = await penstock.post("/api/workflows", a_start(key, unique_conflict_policy="fail"))
    assert refused.expect(409, "unique_key_held").json["run_id"] == first["run_id"]
    shown = (await penstock.get(f"/api/workflows/{first['workflow_id']}")).expect(200).json
    listed = (await penstock.get("/api/workflows?workflow_type=unique")).expect(200).json["workflows"]
    entry = next(each for each in listed if each["run_id"] == first["run_id"])
    for body in (first, shown, entry):
        assert (body["unique_key"], body["unique_until"]) == (key, "done")


async def test_a_debounced_start_takes_the_latest_input_and_why_says_so(penstock: Client, key: str):
    body = a_start(key, debounce_seconds=60, debounce_max_seconds=90)
    first = (await penstock.post("/api/workflows", body | {"input": ["one"]})).expect(201).json
    second = (await penstock.post("/api/workflows", body | {"input": ["two"]})).expect(200).json
    assert (second["outcome"], second["run_id"]) == ("debounced", first["run_id"])
    path = f"/api/workflows/{first['workflow_id']}"
    assert (await penstock.get(path)).expect(200).json["input"] == ["two"]
    why = (await penstock.get(f"{path}/why")).expect(200).json
    assert why["binding"]["kind"] == "debounced"
    assert "2 starts" in why["summary"]


async def test_a_standalone_activity_has_a_unique_key_too(penstock: Client, key: str):
    body = {"activity_type": "unique", "task_queue": "unique", "unique_key": key, "debounce_seconds": 60}
    first = (await penstock.post("/api/activities", body | {"input": ["one"]})).expect(201).json
    second = (await penstock.post("/api/activities", body | {"input": ["two"]})).expect(200).json
    assert (second["outcome"], second["activity_id"]) == ("debounced", first["activity_id"])
    assert second["unique_key"] == key


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"unique_key": None, "unique_until": "started"}, "unique_until"),
        ({"unique_key": None, "debounce_seconds": 1}, "debounce_seconds"),
        ({"debounce_max_seconds": 1}, "debounce_max_seconds"),
        ({"debounce_seconds": 2, "debounce_max_seconds": 1}, "debounce_max_seconds"),
        ({"debounce_seconds": 1, "unique_until": "done"}, "unique_until"),
        ({"debounce_seconds": 1, "unique_conflict_policy": "fail"}, "unique_conflict_policy"),
        ({"debounce_seconds": 1, "start_delay_seconds": 1}, "start_delay_seconds"),
        ({"debounce_seconds": 0}, "debounce_seconds"),
        ({"unique_key": ""}, "unique_key"),
    ],
)
async def test_contradictions_are_named(penstock: Client, key: str, fields: dict[str, Any], wrong: str):
    refused = (
        (await penstock.post("/api/workflows", a_start(key) | fields)).expect(422, "validation_failed").json
    )
    assert list(refused["errors"]) == [wrong]
