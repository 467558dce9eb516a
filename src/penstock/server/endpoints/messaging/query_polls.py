"""Polls for query tasks and update validations, and what happens to one that is not delivered."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.model import TaskKind
from penstock.core.scheduling.polls import Poll
from penstock.engine.matching import query_tasks
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.server.operation import OperationCall
from penstock.wire.requests import PollTasks


def query_poll(call: OperationCall, request: PollTasks) -> Poll:
    """A poll for query tasks or update validations."""
    return Poll(call.namespace, request.worker_id, request.task_queue, TaskKind.WORKFLOW, request.build_id)


def requeue_query(call: OperationCall, leased: LeasedQuery) -> Callable[[], None]:
    """The callback that requeues a leased query task if its response could not be delivered."""
    return lambda: call.dispatcher.run_in_background(query_tasks.hand_back(call.ctx, leased))
