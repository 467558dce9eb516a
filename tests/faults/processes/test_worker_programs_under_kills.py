"""Worker programs with caps while processes, workers and the server are killed: no loss, no exceeded cap."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import textwrap
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from penstock.sdk.clients.client import Client
from penstock.sdk.retry import RetryPolicy
from tests.faults.programs.worker_program import worker_program
from tests.support.live import PENSTOCK, TOKENS, LiveServer, running, server
from tests.support.patience import PATIENCE_S

TASKS, CAP = 40, 3
AGAIN = RetryPolicy(maximum_attempts=20, initial_interval=timedelta(milliseconds=50), backoff_coefficient=1)
APP = f"""
    import os
    import time

    from penstock import AppConfig, CustomQueueConfig, Penstock, QueueMode

    queue = CustomQueueConfig(name="work", priority=1, max_concurrency={CAP})
    app = Penstock("killed", config=AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=[queue]))

    @app.task(queue="work")
    def work(number: int) -> int:
        time.sleep(0.05)
        return os.getpid()
"""


async def test_no_task_is_lost_and_no_cap_exceeded_whoever_is_killed(tmp_path: Path) -> None:
    (tmp_path / "killed_app.py").write_text(textwrap.dedent(APP))
    settings = {"DW_JOURNAL": "true", "DW_ACTIVITY_TASK_TIMEOUT": "2"}
    made = server(tmp_path, f"sqlite:///{tmp_path}/penstock.db", settings=settings)
    with ExitStack() as stack:
        stack.enter_context(running(made))
        workers = [
            stack.enter_context(
                worker_program(tmp_path, made, "killed_app:app", name, "--processes=2", sets_caps=True)
            )
            for name in ("one", "two")
        ]
        connecting = Client.connect(
            made.url,
            control_token=TOKENS["DW_OPERATOR_TOKEN"],
            worker_token=TOKENS["DW_WORKER_TOKEN"],
        )
        async with asyncio.timeout(PATIENCE_S), await connecting as client:
            handles = [
                await client.start_activity(
                    "work",
                    number,
                    id=f"k-{number}",
                    task_queue="work",
                    start_to_close_timeout=timedelta(seconds=30),
                    retry_policy=AGAIN,
                    result_type=int,
                )
                for number in range(TASKS)
            ]
            os.kill(await handles[5].result(), signal.SIGKILL)
            await handles[10].result()
            workers[0].kill()
            await handles[15].result()
            made.kill()
            made.start()
            pids = {await each.result() for each in handles}
        workers[1].terminate()
        assert workers[1].wait(PATIENCE_S) == 0
        lines = journal(made)
    assert pids
    (tmp_path / "journal").write_bytes(lines)
    ran = subprocess.run(
        [*PENSTOCK, "verify", "--dense", "--journal", str(tmp_path / "journal"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = [json.loads(line) for line in lines.splitlines()]
    assert len({each["task_id"] for each in said if each.get("event") == "granted"}) == TASKS


def journal(made: LiveServer) -> bytes:
    command = [*PENSTOCK, "journal", "export", "--server", made.url, "--token", TOKENS["DW_ADMIN_TOKEN"]]
    return subprocess.run(command, capture_output=True, check=True).stdout
