"""The timeline of a run over HTTP, on every store."""

from __future__ import annotations

from typing import Any

from tests.server.client import Client


async def start(client: Client, name: str) -> str:
    body = {"workflow_id": name, "workflow_type": "orders", "task_queue": name}
    run_id: str = (await client.post("/api/workflows", body)).expect(201).json["run_id"]
    return run_id


async def test_a_run_that_no_worker_takes_waits_for_one(everywhere: Client) -> None:
    run_id = await start(everywhere, "timeline-1")
    for target in ("/api/workflows/timeline-1/timeline", f"/api/workflows/timeline-1/runs/{run_id}/timeline"):
        found = (await everywhere.get(target)).expect(200).json
        [lane] = found["lanes"]
        assert (lane["kind"], lane["is_open"]) == ("workflow_task", True)
        assert all(span["cause"] == "no_worker" for span in lane["spans"])
        spent = found["time_spent"]
        assert spent["held_back_ms"] + spent["running_ms"] + spent["by_design_ms"] == spent["total_ms"]
        assert found["complete"] is True


async def test_a_wait_that_is_over_says_which_limit_or_lack_it_was(everywhere: Client) -> None:
    name = "timeline-3"
    worker = {"worker_id": name, "task_queue": name}

    async def work(path: str, body: dict[str, Any]) -> Any:
        return (await everywhere.post(f"/api/worker/{path}", body, role="worker")).json

    async def poll(kind: str, status: str = "leased") -> Any:
        while True:
            answer = await work(f"{kind}-tasks/poll", worker | {"timeout_seconds": 0})
            if answer["poll_status"] == status:
                return answer["task"]

    async def finish(task: Any) -> None:
        report = {"activity_attempt_id": task["activity_attempt_id"], "lease_owner": name, "result": None}
        await work(f"activity-tasks/{task['task_id']}/complete", report)

    await everywhere.patch(f"/api/task-queues/{name}/limits", {"max_active_leases_per_queue": 1})
    await work("register", worker | {"runtime": "python"})
    await start(everywhere, name)
    task = await poll("workflow")
    charge = {"type": "schedule_activity", "activity_type": "charge"}
    report = {"lease_owner": name, "workflow_task_attempt": task["workflow_task_attempt"]}
    report |= {"commands": [charge, charge]}
    await work(f"workflow-tasks/{task['task_id']}/complete", report)
    first = await poll("activity")
    await poll("activity", "throttled")
    await finish(first)
    await finish(await poll("activity"))
    found = (await everywhere.get(f"/api/workflows/{name}/timeline")).expect(200).json
    waits = [
        {span["cause"] for span in lane["spans"] if span["state"] == "waiting"}
        for lane in found["lanes"]
        if lane["kind"] == "activity"
    ]
    assert "cap" in waits[1]
    assert "cap" not in waits[0]


async def test_bad_parameters_and_unknown_runs_are_refused(everywhere: Client) -> None:
    await start(everywhere, "timeline-2")
    target = "/api/workflows/timeline-2/timeline"
    (await everywhere.get(f"{target}?width=0")).refused_fields("width")
    (await everywhere.get(f"{target}?after_step=3")).refused_fields("after_step")
    (await everywhere.get("/api/workflows/timeline-none/timeline")).refused(404, "instance_not_found")
    (await everywhere.get(target, namespace="elsewhere")).refused(404, "instance_not_found")
    (await everywhere.get(target, role="worker")).refused(403, "forbidden")
