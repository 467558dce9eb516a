"""A worker process that leases one activity task and then waits, to be killed or paused in the middle of it.

    python lone_worker.py URL QUEUE NAME

Prints the leased task as one line of JSON. A line on its standard input makes it report the task as completed
and print the answer, again as one line.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any

HEADERS = {
    "Authorization": "Bearer worker-secret",
    "X-Durable-Workflow-Protocol-Version": "1.0",
    "Content-Type": "application/json",
}


def post(url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), HEADERS, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=40) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def main() -> None:
    url, queue, name = sys.argv[1:]
    post(f"{url}/api/worker/register", {"worker_id": name, "task_queue": queue, "runtime": "python"})
    poll = {"worker_id": name, "task_queue": queue, "timeout_seconds": 30}
    _, answer = post(f"{url}/api/worker/activity-tasks/poll", poll)
    task = answer["task"]
    print(json.dumps(task), flush=True)
    sys.stdin.readline()
    report = {
        "activity_attempt_id": task["activity_attempt_id"],
        "lease_owner": task["lease_owner"],
        "result": f"from {name}",
    }
    status, answer = post(f"{url}/api/worker/activity-tasks/{task['task_id']}/complete", report)
    print(json.dumps({"status": status, **answer}), flush=True)


if __name__ == "__main__":
    main()
