"""Queries over schedules, pausing and resuming many, versions of updates, and what a dry run predicts."""

from __future__ import annotations

import itertools
import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.client import Client, Reply

_numbers = itertools.count(1)
YEARLY = {"cron_expressions": ["@yearly"]}


async def put(client: Client, target: str, body: object) -> Reply:
    return await client.request("PUT", target, json.dumps(body).encode())


class Schedules:
    """Schedules of one team, which no other test looks at."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.team = f"team-{next(_numbers)}"
        self._names = itertools.count(1)

    async def create(self, *, attributes: dict[str, Any] | None = None, **fields: Any) -> str:
        name = f"{self.team}-{next(self._names)}"
        action = {"workflow_type": "report", "task_queue": self.team}
        body = {"schedule_id": name, "spec": YEARLY, "action": action} | fields
        if attributes:
            body["search_attributes"] = attributes
        (await self.client.post("/api/schedules", body)).expect(201)
        return name

    def query(self, more: str = "") -> str:
        return f"TaskQueue = '{self.team}'" + (f" AND {more}" if more else "")

    async def found(self, query: str, page_size: int = 50) -> list[str]:
        names, token = [], ""
        while True:
            target = f"/api/schedules?page_size={page_size}&query={quote(query)}"
            page = (await self.client.get(target + (f"&next_page_token={token}" if token else ""))).expect(
                200
            )
            names += [each["schedule_id"] for each in page.json["schedules"]]
            token = page.json["next_page_token"]
            if token is None:
                return names

    async def batch(self, **body: Any) -> Reply:
        return await self.client.post("/api/schedules/batch-operations", body)

    async def statuses(self) -> list[str]:
        page = (await self.client.get(f"/api/schedules?query={quote(self.query())}")).expect(200).json
        return [each["status"] for each in page["schedules"]]


@pytest.fixture
def schedules(everywhere: Client) -> Schedules:
    return Schedules(everywhere)


async def test_a_query_finds_schedules_by_their_fields_and_search_attributes(schedules: Schedules) -> None:
    body = {"name": "Region", "type": "keyword"}
    assert (await schedules.client.post("/api/search-attributes", body)).status in (201, 409)
    first = await schedules.create(attributes={"Region": "eu"}, note="night")
    second = await schedules.create(overlap_policy="allow_all", paused=True)
    third = await schedules.create(
        attributes={"Region": "us"}, spec={"cron_expressions": ["0 1 * * *"], "timezone": "Europe/Berlin"}
    )
    query, found = schedules.query, schedules.found
    assert await found(query()) == [third, second, first]
    assert await found(query(), page_size=1) == [third, second, first]
    assert await found(query("Region = 'eu'")) == [first]
    assert await found(query("Region IS NULL")) == [second]
    assert await found(query("Status = 'paused'")) == [second]
    assert await found(query("(OverlapPolicy = 'allow_all' OR Note = 'night')")) == [second, first]
    assert await found(query("TimeZone STARTS_WITH 'Europe/'")) == [third]
    assert await found(query("NextFireTime < '2999-01-01T00:00:00Z' AND Fires = 0")) == [third, first]
    assert await found(query(f"ScheduleId IN ('{first}', '{second}')")) == [second, first]


async def test_a_query_that_cannot_be_meant_is_refused_with_what_there_is(schedules: Schedules) -> None:
    for query in ("TaskQeue = 'a'", "TaskQueue =", "CloseTime > '24h ago'", "Fires STARTS_WITH 'a'"):
        reply = await schedules.client.get(f"/api/schedules?query={quote(query)}")
        reply.refused(422, "invalid_query")
    misspelt = await schedules.client.get("/api/schedules?query=" + quote("TaskQeue = 'a'"))
    assert "TaskQueue" in misspelt.json["message"]


async def test_all_schedules_of_a_query_are_paused_and_resumed(schedules: Schedules) -> None:
    for _ in range(3):
        await schedules.create()
    asked = {"operation": "pause", "query": schedules.query(), "note": "migration"}
    planned = (await schedules.batch(**asked, dry_run=True)).expect(200).json
    assert (planned["matched"], planned["acted"], planned["complete"]) == (3, 0, True)
    assert len(planned["sample"]) == 3
    assert set(await schedules.statuses()) == {"active"}
    token, acted = None, []
    for _ in range(2):
        done = (await schedules.batch(**asked, max_schedules=2, token=token)).expect(200).json
        acted.append(done["acted"])
        token = done["next_token"]
    assert (acted, token) == ([2, 1], None)
    assert set(await schedules.statuses()) == {"paused"}
    again = (await schedules.batch(**asked)).expect(200).json
    assert (again["matched"], again["acted"]) == (0, 0)
    resumed = await schedules.batch(operation="resume", query=schedules.query("Note = 'migration'"))
    assert resumed.expect(200).json["acted"] == 3
    assert set(await schedules.statuses()) == {"active"}


async def test_a_bulk_change_with_a_misspelt_field_changes_nothing(schedules: Schedules) -> None:
    await schedules.create()
    (await schedules.batch(operation="pause", query=schedules.query(), dryrun=True)).refused_fields("dryrun")
    (await schedules.batch(operation="pause")).refused_fields("query")
    (await schedules.batch(operation="delete", query=schedules.query())).refused_fields("operation")
    assert await schedules.statuses() == ["active"]


async def test_the_second_of_two_people_learns_what_the_first_changed(schedules: Schedules) -> None:
    name = await schedules.create()
    target = f"/api/schedules/{name}"
    version = (await schedules.client.get(target)).json["version"]
    first = await put(schedules.client, target, {"note": "first", "if_version": version})
    assert first.expect(200).json["version"] == version + 1
    second = await put(schedules.client, target, {"overlap_policy": "allow_all", "if_version": version})
    second.refused(409, "schedule_version_conflict")
    assert (second.json["current_version"], second.json["changed"]) == (version + 1, ["note"])
    assert [each["version"] for each in second.json["updates"]] == [version + 1]
    assert (await schedules.client.get(target)).json["overlap_policy"] == "skip"
    again = await put(schedules.client, target, {"overlap_policy": "allow_all", "if_version": version + 1})
    again.expect(200)


async def test_a_fire_or_a_pause_does_not_conflict_with_an_update(schedules: Schedules) -> None:
    name = await schedules.create()
    target = f"/api/schedules/{name}"
    version = (await schedules.client.get(target)).json["version"]
    (await schedules.client.post(f"{target}/trigger", {})).expect(200)
    (await schedules.client.post(f"{target}/pause", {})).expect(200)
    (await put(schedules.client, target, {"note": "n", "if_version": version})).expect(200)


async def test_a_dry_run_predicts_what_the_backfill_then_does(schedules: Schedules) -> None:
    name = await schedules.create(spec={"intervals": [{"every": "P1D"}]})
    target = f"/api/schedules/{name}/backfill"
    asked = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-06T00:00:00Z"}
    effect = (await schedules.client.post(target, asked | {"dry_run": True})).expect(200).json["effect"]
    assert (effect["starts"], effect["skips"], effect["task_queue"]) == (1, 4, schedules.team)
    assert effect["sentences"][0] == "1 of 5 fires start a run at once."
    done = (await schedules.client.post(target, asked)).expect(200).json
    assert [each["outcome"] for each in done["results"]] == ["started"] + ["skipped"] * 4
    again = asked | {"dry_run": True, "overlap_policy": "buffer_all"}
    effect = (await schedules.client.post(target, again)).expect(200).json["effect"]
    assert (effect["repeated"], effect["waits"], effect["waiting_tasks"]) == (1, 4, 1)


async def test_readiness_names_the_zone_data(schedules: Schedules) -> None:
    checks = (await schedules.client.get("/api/ready")).json["checks"]
    assert checks["zone_data"]["status"] == "ok"
    assert checks["zone_data"]["version"]
