"""Temporal's side of the accuracy benchmark: lines of JSON in, lines of JSON out, raw calls in between.

Runs in the peer's own Python, so it imports nothing of ours. Tasks are activities that one workflow task schedules
in bulk; they are polled one after the other and never completed, so the order is what the server handed out.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from typing import Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.command.v1 import (
    Command,
    ScheduleActivityTaskCommandAttributes,
)
from temporalio.api.common.v1 import (
    ActivityType,
    Priority,
    WorkflowType,
)
from temporalio.api.enums.v1 import CommandType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskCompletedRequest,
    StartWorkflowExecutionRequest,
    UpdateTaskQueueConfigRequest,
)
from temporalio.client import Client

NAMESPACE = "default"
IDENTITY = "benchmark"
SCHEDULED_TOGETHER = 500
"""Activities of one workflow: a run with many of them open makes each of their polls slower."""
AN_HOUR = Duration(seconds=3600)
CONNECT_SECONDS_MAX = 30.0
WRITTEN_SECONDS_MAX = 60.0
POLL_SECONDS_MAX = 30.0


class Driver:
    """One queue at a time, one poller."""

    def __init__(self, client: Any) -> None:
        self._service = client.workflow_service
        self._numbers = itertools.count(1)
        self._queue = ""
        self._waiting = 0

    async def renew(self) -> None:
        self._queue, self._waiting = f"accuracy-{next(self._numbers)}", 0

    async def enqueue(self, tasks: list[list[Any]]) -> None:
        """Tasks as (key, weight, level); ends when the queue says that it holds them all."""
        for start in range(0, len(tasks), SCHEDULED_TOGETHER):
            await self._schedule(tasks[start : start + SCHEDULED_TOGETHER])
        self._waiting += len(tasks)
        ends_at = time.monotonic() + WRITTEN_SECONDS_MAX
        while await self._backlog() < self._waiting:
            if time.monotonic() > ends_at:
                raise RuntimeError(f"only {await self._backlog()} of {self._waiting} tasks are in the queue")
            await asyncio.sleep(0.05)

    async def _schedule(self, tasks: list[list[Any]]) -> None:
        name = f"{self._queue}-{next(self._numbers)}"
        line = TaskQueue(name=f"{name}-workflow")
        await self._service.start_workflow_execution(
            StartWorkflowExecutionRequest(
                namespace=NAMESPACE,
                workflow_id=name,
                request_id=name,
                workflow_type=WorkflowType(name="fill"),
                task_queue=line,
            )
        )
        polled = await self._service.poll_workflow_task_queue(
            PollWorkflowTaskQueueRequest(namespace=NAMESPACE, task_queue=line, identity=IDENTITY)
        )
        commands = [self._command(f"{name}-{number}", *task) for number, task in enumerate(tasks)]
        await self._service.respond_workflow_task_completed(
            RespondWorkflowTaskCompletedRequest(
                namespace=NAMESPACE, task_token=polled.task_token, identity=IDENTITY, commands=commands
            )
        )

    def _command(self, activity_id: str, key: str, weight: float, level: int) -> Any:
        return Command(
            command_type=CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
            schedule_activity_task_command_attributes=ScheduleActivityTaskCommandAttributes(
                activity_id=activity_id,
                activity_type=ActivityType(name="nothing"),
                task_queue=TaskQueue(name=self._queue),
                start_to_close_timeout=AN_HOUR,
                schedule_to_close_timeout=AN_HOUR,
                priority=Priority(priority_key=level, fairness_key=key, fairness_weight=weight),
            ),
        )

    async def _backlog(self) -> int:
        described = await self._service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=NAMESPACE,
                task_queue=TaskQueue(name=self._queue),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
                report_stats=True,
            )
        )
        return int(described.stats.approximate_backlog_count)

    async def override(self, key: str, weight: float) -> None:
        await self._service.update_task_queue_config(
            UpdateTaskQueueConfigRequest(
                namespace=NAMESPACE,
                identity=IDENTITY,
                task_queue=self._queue,
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
                set_fairness_weight_overrides={key: weight},
            )
        )

    async def take(self, count: int) -> list[str]:
        keys: list[str] = []
        ends_at = time.monotonic() + POLL_SECONDS_MAX
        while len(keys) < count and self._waiting:
            polled = await self._service.poll_activity_task_queue(
                PollActivityTaskQueueRequest(
                    namespace=NAMESPACE, task_queue=TaskQueue(name=self._queue), identity=IDENTITY
                )
            )
            if polled.task_token:
                keys.append(polled.priority.fairness_key)
                self._waiting -= 1
                ends_at = time.monotonic() + POLL_SECONDS_MAX
            elif time.monotonic() > ends_at:
                raise RuntimeError(f"{self._waiting} tasks wait and none is handed out")
        return keys


async def _connected(address: str) -> Any:
    ends_at = time.monotonic() + CONNECT_SECONDS_MAX
    while True:
        try:
            return await Client.connect(address, namespace=NAMESPACE)
        except RuntimeError:
            if time.monotonic() > ends_at:
                raise
            await asyncio.sleep(0.2)


async def main() -> None:
    driver = Driver(await _connected(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, *values = json.loads(line)
        answer = await getattr(driver, verb)(*values)
        print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
