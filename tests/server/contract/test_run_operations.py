"""A closed run is run again or deleted, by its operators and on each store."""

from __future__ import annotations

from tests.server.contract.conftest import Body, Tenant

SCHEDULE: Body = {"type": "schedule_activity", "activity_type": "charge", "arguments": []}
DONE: Body = {"type": "complete_workflow", "result": "done"}


async def closed_run(tenant: Tenant, workflow_id: str = "a", **fields: object) -> str:
    await tenant.register()
    run_id: str = (await tenant.start(workflow_id, **fields))["run_id"]
    (await tenant.complete((await tenant.poll())["task"], DONE)).expect(200)
    return run_id


async def test_a_rerun_starts_a_closed_run_again_as_it_started(tenant: Tenant) -> None:
    await tenant.register()
    first = (await tenant.start("a", input=[7], memo={"of": "start"}, priority=2, run_timeout_seconds=60))[
        "run_id"
    ]
    upsert = {"type": "upsert_memo", "entries": {"of": "code"}}
    (await tenant.complete((await tenant.poll())["task"], upsert, DONE)).expect(200)
    answer = (await tenant.post("/api/workflows/a/rerun", {"reason": "again"})).expect(200).json
    assert (answer["outcome"], answer["source_run_id"], answer["run_number"]) == ("rerun", first, 2)
    again = (await tenant.get("/api/workflows/a")).expect(200).json
    assert again["run_id"] == answer["run_id"] != first
    assert (again["input"], again["memo"], again["priority"]) == ([7], {"of": "start"}, 2)
    assert again["run_deadline_at"] is not None
    events = (await tenant.get(f"/api/workflows/a/runs/{first}/history?derived=true")).json["events"]
    [asked] = [each for each in events if each["event_type"] == "RerunRequested"]
    assert asked["payload"]["reason"] == "again"
    assert asked["principal"]["id"] == "operator"
    (await tenant.complete((await tenant.poll())["task"], DONE)).expect(200)


async def test_a_repeated_rerun_is_the_same_run(tenant: Tenant) -> None:
    first = await closed_run(tenant)
    path = f"/api/workflows/a/runs/{first}/rerun"
    made = (await tenant.post(path, {"request_id": "r-1"})).expect(200).json
    assert (await tenant.post(path, {"request_id": "r-1"})).expect(200).json["run_id"] == made["run_id"]
    assert (await tenant.get("/api/workflows/a")).json["run_count"] == 2


async def test_only_a_closed_run_is_run_again_and_only_if_none_is_open(tenant: Tenant) -> None:
    first = await closed_run(tenant)
    second = (await tenant.post("/api/workflows/a/rerun", {})).expect(200).json["run_id"]
    (await tenant.post("/api/workflows/a/rerun", {})).refused(409, "run_not_closed")
    refused = (await tenant.post(f"/api/workflows/a/runs/{first}/rerun", {})).refused(409, "another_run_open")
    assert refused.json["open_run_id"] == second
    (await tenant.post("/api/workflows/nowhere/rerun", {})).refused(404, "instance_not_found")
    (await tenant.post("/api/workflows/a/runs/nowhere/rerun", {})).refused(404, "run_not_found")
    (await tenant.post("/api/workflows/a/rerun", {"input": 1})).refused_fields("input")


async def test_a_deleted_run_is_gone_and_its_record_stays(tenant: Tenant) -> None:
    run_id = await closed_run(tenant, input=["secret"])
    target, body = "/api/workflows/a/delete", {"reason": "asked for"}
    gone = (await tenant.post(target, body)).expect(200).json
    assert (gone["outcome"], gone["run_id"], gone["deletion_reason"]) == ("deleted", run_id, "asked for")
    (await tenant.get("/api/workflows/a")).refused(404, "instance_not_found")
    (await tenant.get(f"/api/workflows/a/runs/{run_id}/history")).refused(404, "run_not_found")
    assert (await tenant.get("/api/workflows")).json["workflows"] == []
    [record] = (await tenant.get("/api/deletions")).expect(200).json["deletions"]
    assert (record["workflow_id"], record["status"], record["principal"]["id"]) == (
        "a",
        "completed",
        "operator",
    )
    assert "secret" not in str(record)
    (await tenant.post(target, body)).refused(404, "instance_not_found")
    again = await tenant.start("a")
    assert again["run_id"] != run_id


async def test_an_open_run_is_not_deleted(tenant: Tenant) -> None:
    await tenant.start("a")
    (await tenant.post("/api/workflows/a/delete", {})).refused(409, "run_not_closed")
    (await tenant.post("/api/workflows/a/runs/nowhere/delete", {})).refused(404, "run_not_found")
    assert (await tenant.get("/api/workflows/a")).expect(200).json["status"] == "pending"
    assert (await tenant.get("/api/deletions")).json["deletions"] == []


async def test_behind_a_deleted_newest_run_the_one_before_it_is_current(tenant: Tenant) -> None:
    first = await closed_run(tenant)
    (await tenant.post("/api/workflows/a/rerun", {})).expect(200)
    (await tenant.complete((await tenant.poll())["task"], DONE)).expect(200)
    (await tenant.post("/api/workflows/a/delete", {})).expect(200)
    assert (await tenant.get("/api/workflows/a")).expect(200).json["run_id"] == first
    third = (await tenant.post("/api/workflows/a/rerun", {})).expect(200).json
    assert third["run_number"] == 3


async def test_records_of_deletions_come_in_pages_and_by_workflow(tenant: Tenant) -> None:
    for workflow_id in ("a", "b", "c"):
        await closed_run(tenant, workflow_id)
        (await tenant.post(f"/api/workflows/{workflow_id}/delete", {})).expect(200)
    page = (await tenant.get("/api/deletions?page_size=2")).expect(200).json
    rest = (await tenant.get(f"/api/deletions?page_size=2&next_page_token={page['next_page_token']}")).json
    found = [each["workflow_id"] for each in (*page["deletions"], *rest["deletions"])]
    assert found == ["c", "b", "a"]
    assert rest["next_page_token"] is None
    [only] = (await tenant.get("/api/deletions?workflow_id=b")).json["deletions"]
    assert only["workflow_id"] == "b"


async def test_a_paused_run_shows_who_paused_it_and_why_and_goes_on_when_resumed(tenant: Tenant) -> None:
    await tenant.register()
    run_id = (await tenant.start("a"))["run_id"]
    body = {"reason": "stock is counted"}
    done = (await tenant.post("/api/workflows/a/pause", body)).expect(200).json
    assert (done["outcome"], done["pause"]["principal"]["id"]) == ("paused", "operator")
    assert (await tenant.post("/api/workflows/a/pause", {})).expect(200).json["outcome"] == "already_paused"
    assert (await tenant.poll())["task"] is None
    shown = (await tenant.get("/api/workflows/a")).expect(200).json
    assert (shown["is_paused"], shown["pause"]["reason"]) == (True, "stock is counted")
    assert [each["is_paused"] for each in (await tenant.get("/api/workflows")).json["workflows"]] == [True]
    why = (await tenant.get("/api/workflows/a/why")).expect(200).json
    assert "paused" in str(why)
    assert "by operator: stock is counted" in str(why)
    path = f"/api/workflows/a/runs/{run_id}"
    assert (await tenant.post(f"{path}/resume", {})).expect(200).json["outcome"] == "resumed"
    events = (await tenant.get(f"{path}/history?derived=true")).json["events"]
    assert {"PauseRequested", "ResumeRequested"} <= {each["event_type"] for each in events}
    (await tenant.complete((await tenant.poll())["task"], DONE)).expect(200)
    (await tenant.post("/api/workflows/a/pause", {})).refused(409, "run_not_active")
    (await tenant.post("/api/workflows/b/resume", {})).refused(404, "instance_not_found")


async def two_steps(tenant: Tenant) -> str:
    """A stepwise run that has decided at the events 2 and 4."""
    await tenant.register()
    run_id: str = (await tenant.start("a", input=[1]))["run_id"]
    (await tenant.complete((await tenant.poll())["task"], SCHEDULE)).expect(200)
    task = (await tenant.poll("activity"))["task"]
    body = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": "w-1", "result": 7}
    (await tenant.work(f"activity-tasks/{task['task_id']}/complete", body)).expect(200)
    (await tenant.complete((await tenant.poll())["task"], SCHEDULE)).expect(200)
    return run_id


async def test_a_reset_run_is_terminated_and_its_successor_decides_anew(tenant: Tenant) -> None:
    first = await two_steps(tenant)
    (await tenant.post("/api/workflows/a/signal/hurry", {"input": [1]})).expect(202)
    body = {"event": 4, "reason": "bad deploy"}
    done = (await tenant.post(f"/api/workflows/a/runs/{first}/reset", body)).expect(200).json
    assert (done["outcome"], done["source_run_id"], done["reused_event_count"]) == ("reset", first, 3)
    old = (await tenant.get(f"/api/workflows/a/runs/{first}")).expect(200).json
    assert old["status"] == "terminated"
    events = (await tenant.get(f"/api/workflows/a/runs/{first}/history?derived=true")).json["events"]
    assert "reset to event 4: bad deploy" in str(events)
    assert "ResetRequested" in {each["event_type"] for each in events}
    task = (await tenant.poll())["task"]
    assert [each["sequence"] for each in task["history_events"]] == [1, 2, 3]
    (await tenant.complete(task, SCHEDULE)).expect(200)
    history = (await tenant.get(f"/api/workflows/a/runs/{done['run_id']}/history")).json["events"]
    assert "SignalReceived" in {each["event_type"] for each in history}


async def test_a_fork_has_another_id_and_input_and_why_says_that_no_worker_has_its_type(
    tenant: Tenant,
) -> None:
    first = await two_steps(tenant)
    body = {"event": 4, "workflow_id": "b", "input": [2]}
    done = (await tenant.post("/api/workflows/a/fork", body)).expect(201).json
    assert (done["workflow_id"], done["source_run_id"], done["outcome"]) == ("b", first, "forked")
    assert (await tenant.get("/api/workflows/b")).expect(200).json["input"] == [2]
    assert (await tenant.get("/api/workflows/a")).expect(200).json["status"] == "waiting"
    (await tenant.post("/api/workflows/a/fork", body)).refused(409, "instance_already_started")
    (await tenant.ask("DELETE", "/api/workers/w-1", role="admin")).expect(200)
    why = (await tenant.get("/api/workflows/b/why")).expect(200).json
    assert "no worker of the task queue orders runs workflow tasks of type order" in str(why)


async def test_an_event_that_is_no_decision_point_is_refused_with_the_nearest_ones(tenant: Tenant) -> None:
    run_id = await two_steps(tenant)
    for verb in ("reset", "fork"):
        for event in (1, 3, 99):
            refused = await tenant.post(f"/api/workflows/a/{verb}", {"event": event})
            assert refused.refused(409, "not_a_decision_point").json["decision_points"] == [2, 4]
        (await tenant.post(f"/api/workflows/a/{verb}", {})).refused_fields("event")
        (await tenant.post(f"/api/workflows/a/{verb}", {"event": 2, "reapply": "all"})).refused_fields(
            "reapply"
        )
        (await tenant.post(f"/api/workflows/x/{verb}", {"event": 2})).refused(404, "instance_not_found")
    assert (await tenant.get("/api/workflows/a")).expect(200).json["run_id"] == run_id
