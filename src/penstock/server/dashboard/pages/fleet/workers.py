"""Workers: which there are, how many of their slots are free, and the builds that serve each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from penstock.ports.gather import gather
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import dialog
from penstock.server.dashboard.pages.effects import Effect
from penstock.server.dashboard.view import Act, View
from penstock.server.operation import Body

WORKERS_SHOWN: Final = 200
QUEUES_WITH_BUILDS: Final = 8
_RANK: Final = {"stale": 0, "draining": 1, "active": 2}


async def load(view: View) -> Values:
    body = await view.read("list_workers")
    workers = sorted(body["workers"], key=lambda each: (_RANK.get(each["status"], 0), each["worker_id"]))
    queues = _by_queue(workers)
    builds = []
    names = [each["name"] for each in queues][:QUEUES_WITH_BUILDS]
    found = await gather(*(view.read("list_build_ids", None, name=name) for name in names))
    for name, body in zip(names, found, strict=True):
        builds += [each | {"task_queue": name} for each in body["build_ids"]]
    states = Counter(each["status"] for each in workers)
    return {
        "workers": workers[:WORKERS_SHOWN],
        "worker_count": len(workers),
        "states": ", ".join(f"{count} {state}" for state, count in sorted(states.items())),
        "queues": queues,
        "builds": builds,
        "queues_without_builds": max(0, len(queues) - QUEUES_WITH_BUILDS),
    }


async def load_one(view: View) -> Values:
    return {"worker": await view.read("describe_worker", None, worker_id=view.path["worker_id"])}


def _by_queue(workers: Sequence[Body]) -> list[dict[str, Any]]:
    """Active workers and their activity slots, by queue; a stale worker offers none."""
    found: dict[str, dict[str, Any]] = {}
    for each in workers:
        name = each["task_queue"]
        row = found.setdefault(name, {"name": name, "workers": 0, "stale": 0, "slots": 0, "free": 0})
        if each["status"] == "stale":
            row["stale"] += 1
            continue
        row["workers"] += 1
        row["slots"] += each["max_concurrent_activity_tasks"] or 0
        row["free"] += (each["task_slots"] or {}).get("activity_available") or 0
    return sorted(found.values(), key=lambda row: (-(row["slots"] - row["free"]), row["name"]))


async def deregister_dialog(view: View) -> Values:
    """What becomes of the tasks of a worker that is removed."""
    worker_id = view.path["worker_id"]
    worker = await view.read("describe_worker", None, worker_id=worker_id)
    address = link("workers", worker_id, "deregister", namespace=view.namespace)
    lines = [Effect("Its leases end, and its tasks go to other workers at once.", "warn")]
    if worker["status"] != "stale":
        lines.append(
            Effect(
                "It still sends heartbeats: it may register itself again, and its tasks may run twice.",
                "warn",
            )
        )
    return dialog(
        f"Deregister {worker_id}",
        "Deregister it",
        address,
        address,
        lines,
        command=("worker", "deregister", worker_id),
        given=view.query,
        takes_reason=False,
    )


async def deregister(act: Act) -> Outcome:
    worker_id = act.path["worker_id"]
    await act.change("remove_worker", None, worker_id=worker_id)
    return Outcome(f"{worker_id} is deregistered.", go_to=link("workers", namespace=act.namespace))
