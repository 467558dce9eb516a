"""Schedules over HTTP: both shapes of a description, outcomes, named refusals that write nothing, previews."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.server.client import Client, Reply

_numbers = itertools.count(1)
YEARLY = {"cron_expressions": ["@yearly"]}
ACTION = {"workflow_type": "report", "task_queue": "reports", "input": ["a", 1]}


async def put(client: Client, target: str, body: object) -> Reply:
    return await client.request("PUT", target, json.dumps(body).encode())


async def create(client: Client, **fields: Any) -> str:
    schedule_id = f"nightly-{next(_numbers)}"
    body = {"schedule_id": schedule_id, "spec": YEARLY, "action": ACTION} | fields
    made = (await client.post("/api/schedules", body)).expect(201).json
    assert (made["schedule_id"], made["outcome"]) == (schedule_id, "created")
    return schedule_id


async def described(client: Client, schedule_id: str) -> dict[str, Any]:
    body: dict[str, Any] = (await client.get(f"/api/schedules/{schedule_id}")).expect(200).json
    return body


async def test_a_description_has_the_flat_and_the_nested_shape(everywhere: Client) -> None:
    spec = {"cron_expressions": ["30 2 * * *"], "timezone": "Europe/Berlin", "gap": "skip"}
    name = await create(
        everywhere,
        spec=spec,
        overlap_policy="buffer_one",
        jitter_seconds=5,
        max_runs=3,
        memo={"a": 1},
        note="n",
    )
    body = await described(everywhere, name)
    assert body["spec"] == spec
    assert body["action"]["workflow_type"] == body["workflow_type"] == "report"
    assert body["action"]["input"]["codec"] == "avro"
    assert (body["status"], body["paused"], body["note"]) == ("active", False, "n")
    assert body["state"] == {"status": "active", "paused": False, "note": "n"}
    assert (body["max_runs"], body["remaining_actions"], body["jitter_seconds"]) == (3, 3, 5)
    assert body["next_fire"] == body["next_fire_at"] == body["info"]["next_fire"]
    assert (body["fires_count"], body["failures_count"], body["last_fired_at"]) == (0, 0, None)
    for name_of in ("recent_actions", "buffered_actions"):
        assert body["info"][name_of] == []
    assert len(body["info"]["next_action_times"]) == 10
    assert body["info"]["in_words"] == ["At 02:30 every day"]
    listed = (await everywhere.get("/api/schedules?workflow_type=report")).expect(200).json["schedules"]
    assert name in [each["schedule_id"] for each in listed]
    assert {"spec", "action", "state", "info", "next_fire_at"} <= listed[0].keys()


async def test_the_life_of_a_schedule(everywhere: Client) -> None:
    name = await create(everywhere)
    target = f"/api/schedules/{name}"
    (
        await everywhere.post("/api/schedules", {"schedule_id": name, "spec": YEARLY, "action": ACTION})
    ).refused(409, "schedule_already_exists")
    for verb, outcome in (
        ("pause", "paused"),
        ("pause", "paused"),
        ("resume", "resumed"),
        ("resume", "resumed"),
    ):
        reply = (await everywhere.post(f"{target}/{verb}", {"note": verb})).expect(200)
        assert reply.json == {"schedule_id": name, "outcome": outcome}
    reply = await put(everywhere, target, {"action": {"task_queue": "other"}, "overlap_policy": "allow_all"})
    assert reply.expect(200).json == {"schedule_id": name, "outcome": "updated", "version": 2}
    body = await described(everywhere, name)
    assert body["action"]["task_queue"] == "other"
    assert body["action"]["workflow_type"] == "report"
    assert body["overlap_policy"] == "allow_all"
    triggered = (await everywhere.post(f"{target}/trigger", {})).expect(200).json
    assert triggered["outcome"] == "triggered"
    run = (await everywhere.get(f"/api/workflows/{triggered['workflow_id']}")).expect(200).json
    assert (run["run_id"], run["task_queue"]) == (triggered["run_id"], "other")
    skipped = (await everywhere.post(f"{target}/trigger", {"overlap_policy": "skip"})).json
    assert (skipped["outcome"], skipped["reason"]) == ("skipped", "overlap")
    buffered = (await everywhere.post(f"{target}/trigger", {"overlap_policy": "buffer_one"})).expect(200).json
    assert (buffered["outcome"], buffered["buffer_depth"]) == ("buffered", 1)
    full = (await everywhere.post(f"{target}/trigger", {"overlap_policy": "buffer_one"})).json
    assert (full["outcome"], full["reason"]) == ("buffer_full", "buffer_full")
    deleted = await everywhere.request("DELETE", target)
    assert deleted.expect(200).json == {"schedule_id": name, "outcome": "deleted"}
    (await everywhere.get(target)).refused(404, "schedule_not_found")
    history = (await everywhere.get(f"{target}/history?limit=3")).expect(200).json
    assert [each["sequence"] for each in history["events"]] == [1, 2, 3]
    assert (history["has_more"], history["next_cursor"]) == (True, 3)
    rest = (await everywhere.get(f"{target}/history?after_sequence=3&limit=9999")).expect(200).json
    types = [each["event_type"] for each in (*history["events"], *rest["events"])]
    assert types == [
        "ScheduleCreated",
        "SchedulePaused",
        "ScheduleResumed",
        "ScheduleUpdated",
        "ScheduleTriggered",
        "ScheduleTriggerSkipped",
        "ScheduleTriggerSkipped",
        "ScheduleDeleted",
    ]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)
    by = {"type": "auth:token", "id": "operator"}
    found = [(each["principal"], each["payload"]["principal"]) for each in history["events"]]
    assert found == [(by, by)] * 3
    assert await create(everywhere) != name


async def test_pages_of_schedules_are_newest_first_and_complete(everywhere: Client) -> None:
    names = [await create(everywhere, action=ACTION | {"workflow_type": "paged"}) for _ in range(5)]
    found, target = [], "/api/schedules?workflow_type=paged&page_size=2"
    token: str | None = ""
    while token is not None:
        page = (
            (await everywhere.get(target + (f"&next_page_token={token}" if token else ""))).expect(200).json
        )
        found += [each["schedule_id"] for each in page["schedules"]]
        token = page["next_page_token"]
    assert found == names[::-1]


async def test_an_activity_is_started_too(everywhere: Client) -> None:
    action = {"activity_type": "sweep", "task_queue": "reports", "cost_estimate": 3, "priority": 1}
    name = await create(everywhere, action=action)
    fired = (await everywhere.post(f"/api/schedules/{name}/trigger", {})).expect(200).json
    found = (await everywhere.get(f"/api/activities/{fired['workflow_id']}")).expect(200).json
    assert found["activity_type"] == "sweep"
    (await everywhere.post(f"/api/activities/{fired['workflow_id']}/cancel", {})).expect(200)


async def test_a_backfill_lists_its_fires(everywhere: Client) -> None:
    name = await create(everywhere, spec={"intervals": [{"every": "P1D"}]})
    target = f"/api/schedules/{name}/backfill"
    asked = {
        "start_time": "2026-01-01T00:00:00Z",
        "end_time": "2026-01-03T00:00:00Z",
        "overlap_policy": "allow_all",
    }
    planned = (await everywhere.post(target, asked | {"dry_run": True})).expect(200).json
    assert (planned["outcome"], planned["fires_attempted"]) == ("dry_run", 2)
    assert (await described(everywhere, name))["fires_count"] == 0
    done = (await everywhere.post(target, asked)).expect(200).json
    assert (done["outcome"], done["fires_attempted"]) == ("backfill_started", 2)
    assert [each["outcome"] for each in done["results"]] == ["started", "started"]
    assert done["results"][0]["workflow_id"] == f"{name}-2026-01-01T00:00:00Z"
    late = asked | {"end_time": "2026-01-01T00:00:00Z"}
    (await everywhere.post(target, late)).refused(422, "invalid_time_range")
    often = await create(everywhere, spec={"intervals": [{"every": "PT1S"}]}, paused=True)
    day = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-02T00:00:00Z"}
    (await everywhere.post(f"/api/schedules/{often}/backfill", day)).refused(422, "backfill_too_large")
    assert (await described(everywhere, often))["fires_count"] == 0


REFUSED_SPECS: list[tuple[dict[str, Any], str]] = [
    ({}, "spec.cron_expressions"),
    ({"cron_expressions": ["* * * * * *"]}, "spec.cron_expressions.0"),
    ({"cron_expressions": ["0 0 31 2 *"]}, "spec.cron_expressions.0"),
    ({"cron_expressions": ["0 0 * * *", "61 * * * *"]}, "spec.cron_expressions.1"),
    ({"cron_expressions": ["@sometimes"]}, "spec.cron_expressions.0"),
    ({"cron_expressions": ["0 0 * * *"] * 65}, "spec.cron_expressions"),
    ({"intervals": [{"every": "P1M"}]}, "spec.intervals.0"),
    ({"intervals": [{"every": "P1Y"}]}, "spec.intervals.0"),
    ({"intervals": [{"every": "PT0S"}]}, "spec.intervals.0"),
    ({"intervals": [{"every": "hourly"}]}, "spec.intervals.0"),
    ({"intervals": [{"every": "PT1H", "offset": "PT1H"}]}, "spec.intervals.0"),
    ({"calendars": [{"hour": [25]}]}, "spec.calendars.0"),
    ({"calendars": [{"hour": [{"start": 0, "end": 5, "step": 0}]}]}, "spec.calendars.0"),
    ({"calendars": [{"day_of_month": [30], "month": [2]}]}, "spec.calendars.0"),
    (YEARLY | {"timezone": "Europe/Berlino"}, "spec.timezone"),
    (YEARLY | {"timezone": "../../etc/passwd"}, "spec.timezone"),
    (YEARLY | {"end_at": "yesterday"}, "spec.end_at"),
    (YEARLY | {"start_at": "2030-01-01", "end_at": "2029-01-01"}, "spec.end_at"),
    (YEARLY | {"end_at": "2001-01-01T00:00:00Z"}, "spec"),
    ({"cron_expressions": ["0 0 * * *"], "skip": [{}]}, "spec"),
]


@pytest.mark.parametrize(("spec", "field"), REFUSED_SPECS, ids=lambda each: str(each)[:40])
async def test_a_specification_that_cannot_be_meant_is_refused(
    penstock: Client, spec: dict[str, Any], field: str
) -> None:
    before = (await penstock.get("/api/schedules")).json
    reply = await penstock.post("/api/schedules", {"spec": spec, "action": ACTION})
    reply.refused_fields(field)
    assert (await penstock.get("/api/schedules")).json == before


REFUSED_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"jitter_seconds": 3601}, "jitter_seconds"),
    ({"jitter_seconds": -1}, "jitter_seconds"),
    ({"catchup_window_seconds": 9}, "catchup_window_seconds"),
    ({"catchup_window_seconds": 31_536_001}, "catchup_window_seconds"),
    ({"max_runs": 0}, "max_runs"),
    ({"overlap_policy": "sometimes"}, "overlap_policy"),
    ({"schedule_id": "x" * 129}, "schedule_id"),
    ({"note": "x" * 1001}, "note"),
    ({"action": {"task_queue": "q"}}, "action.workflow_type"),
    ({"action": ACTION | {"activity_type": "a"}}, "action.workflow_type"),
    ({"action": {"activity_type": "a"}}, "action.task_queue"),
    ({"action": ACTION | {"cost_estimate": 1}}, "action.cost_estimate"),
    ({"action": ACTION | {"input": "text"}}, "action.input"),
    (
        {"action": ACTION | {"execution_timeout_seconds": 1, "run_timeout_seconds": 2}},
        "action.run_timeout_seconds",
    ),
    (
        {"action": ACTION | {"workflow_run_timeout": 1, "run_timeout_seconds": 2}},
        "action.workflow_run_timeout",
    ),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED_FIELDS, ids=lambda each: str(each)[:40])
async def test_a_field_out_of_bounds_is_refused(penstock: Client, fields: dict[str, Any], field: str) -> None:
    reply = await penstock.post("/api/schedules", {"spec": YEARLY, "action": ACTION} | fields)
    reply.refused_fields(field)


async def test_a_backfill_from_the_first_year_to_the_last_is_too_large(everywhere: Client) -> None:
    name = await create(everywhere, spec={"cron_expressions": ["@daily"], "timezone": "America/New_York"})
    ages = {"start_time": "0001-01-01T00:00:00Z", "end_time": "9999-12-31T00:00:00Z"}
    reply = await everywhere.post(f"/api/schedules/{name}/backfill", ages)
    reply.refused(422, "backfill_too_large")


async def test_an_update_to_a_specification_that_never_fires_is_refused_and_changes_nothing(
    everywhere: Client,
) -> None:
    name = await create(everywhere)
    over = YEARLY | {"end_at": "2020-01-01T00:00:00Z"}
    (await put(everywhere, f"/api/schedules/{name}", {"spec": over, "note": "n"})).refused_fields("spec")
    body = await described(everywhere, name)
    assert (body["spec"], body["note"], body["version"]) == (YEARLY, None, 1)


async def test_refusals_with_reasons_of_their_own(everywhere: Client) -> None:
    memo = {"spec": YEARLY, "action": ACTION, "memo": {"a": "x" * 300_000}}
    (await everywhere.post("/api/schedules", memo)).refused(422, "memo_too_large")
    for verb in ("pause", "resume", "trigger"):
        (await everywhere.post(f"/api/schedules/nobody/{verb}", {})).refused(404, "schedule_not_found")
    (await everywhere.get("/api/schedules/nobody/history")).refused(404, "schedule_not_found")
    (await put(everywhere, "/api/schedules/nobody", {})).refused(404, "schedule_not_found")
    name = await create(everywhere)
    bad = await everywhere.get(f"/api/schedules/{name}/history?after_sequence=-1")
    bad.refused(422, "invalid_after_sequence")
    (await put(everywhere, f"/api/schedules/{name}", {"action": {"activity_type": "a"}})).expect(200)


async def test_namespaces_do_not_see_each_others_schedules(everywhere: Client) -> None:
    name = await create(everywhere)
    target = f"/api/schedules/{name}"
    (await everywhere.get(target, namespace="elsewhere")).refused(404, "schedule_not_found")
    (await everywhere.post(f"{target}/trigger", {}, namespace="elsewhere")).refused(404, "schedule_not_found")
    listed = (await everywhere.get("/api/schedules", namespace="elsewhere")).expect(200).json
    assert listed == {"schedules": [], "next_page_token": None}


class TestPreviews:
    async def test_a_time_that_a_clock_change_leaves_out_is_named(self, everywhere: Client) -> None:
        spec = {"cron_expressions": ["30 2 * * *"], "timezone": "Europe/Berlin"}
        asked = {"spec": spec, "after": "2027-03-27T12:00:00Z", "count": 2}
        body = (await everywhere.post("/api/schedules/preview", asked)).expect(200).json
        assert body["next_fire_times"] == ["2027-03-28T01:00:00.000Z", "2027-03-29T00:30:00.000Z"]
        assert body["in_words"] == ["At 02:30 every day"]
        messages = {each["reason"]: each["message"] for each in body["warnings"][::-1]}
        assert messages["nonexistent_time"].startswith("02:30 does not exist on 2027-03-28 in Europe/Berlin")
        assert messages["repeated_time"].startswith("02:30 happens twice on 2027-10-31")

    @pytest.mark.parametrize(
        "after", ["0001-01-01T00:00:00+14:00", "8999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"]
    )
    @pytest.mark.parametrize(
        "spec",
        [
            {"cron_expressions": ["30 2 * * *"], "timezone": "America/New_York"},
            {"calendars": [{"hour": [2]}], "timezone": "Pacific/Kiritimati"},
            {"intervals": [{"every": "PT7H"}]},
        ],
        ids=lambda each: next(iter(each)),
    )
    async def test_the_first_and_the_last_year_of_the_calendar_have_an_answer(
        self, penstock: Client, spec: dict[str, Any], after: str
    ) -> None:
        body = (
            (await penstock.post("/api/schedules/preview", {"spec": spec, "after": after})).expect(200).json
        )
        assert all("1970" <= each < "9001" for each in body["next_fire_times"])

    async def test_a_skipped_day_without_hours_is_named_since_it_skips_nothing(
        self, penstock: Client
    ) -> None:
        days = [{"day_of_month": [25]}, {"day_of_month": [24], "hour": [9]}]
        spec = {"cron_expressions": ["0 9 * * *"], "skip": days}
        found = (await penstock.post("/api/schedules/preview", {"spec": spec})).expect(200).json
        [warning] = found["warnings"]
        assert warning["reason"] == "skips_nothing"
        assert "day of month 25" in warning["message"]

    async def test_frequent_fires_are_counted(self, penstock: Client) -> None:
        asked = {"spec": {"cron_expressions": ["* * * * *"]}}
        body = (await penstock.post("/api/schedules/preview", asked)).expect(200).json
        assert {"reason": "frequent_fires", "message": "It fires 1,440 times a day."} in body["warnings"]

    async def test_others_of_the_same_minute_are_counted(self, everywhere: Client) -> None:
        spec = {"cron_expressions": ["17 3 29 2 *"]}
        await create(everywhere, spec=spec)
        body = (await everywhere.post("/api/schedules/preview", {"spec": spec})).expect(200).json
        assert "shared_minute" in [each["reason"] for each in body["warnings"]]

    async def test_a_preview_refuses_what_a_create_refuses(self, penstock: Client) -> None:
        asked = {"spec": {"cron_expressions": ["0 0 30 2 *"]}}
        (await penstock.post("/api/schedules/preview", asked)).refused_fields("spec.cron_expressions.0")
