"""Chains of runs: continue-as-new, and retries of children."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text, waits
from penstock.core.history.commands import ContinueAsNew
from penstock.core.history.routing_keys import without_keys
from penstock.core.model import Lineage, Run, RunId, RunStatus
from penstock.core.timestamps import earliest


def first_of(run: Run) -> RunId:
    """The first run of a run's chain, which identifies the chain."""
    return run.lineage.first_run_id or run.run_id


def is_in_chain(run: Run, first: RunId) -> bool:
    """Whether a run belongs to the chain that began with `first`.

    A continuing run without `first_run_id` predates the field, when a workflow id had only one chain.
    """
    origin = run.lineage
    if origin.first_run_id is None and (origin.continued_from or origin.retried_from):
        return True
    return (origin.first_run_id or run.run_id) == first


class Successor(Struct, frozen=True):
    """The next run of a chain, and when it starts."""

    run: Run
    at_ms: int


def continued(run: Run, run_id: RunId, command: ContinueAsNew, now_ms: int) -> Successor:
    """The next run of the same workflow id after continue-as-new.

    Missing fields of the command are inherited: the priority field by field, memo and search attributes as a whole. The
    execution timeout belongs to the chain and stays.
    """
    queue = command.task_queue or run.task_queue
    lineage = replace(
        run.lineage,
        continued_from=run.run_id,
        retried_from=None,
        attempt=1,
        first_run_id=first_of(run),
        copies=(),
    )
    if command.retry is not None:
        lineage = replace(lineage, retry=command.retry)
    priority = command.priority.over(run.priority)
    return Successor(
        _next(
            replace(
                run,
                run_id=run_id,
                workflow_type=command.workflow_type or run.workflow_type,
                task_queue=queue,
                compatibility=run.compatibility if queue == run.task_queue else None,
                input=command.arguments,
                level=priority.level,
                key=priority.key,
                weight_milli=priority.weight_milli,
                run_timeout_s=run.run_timeout_s if command.run_timeout_s is None else command.run_timeout_s,
                memo=run.memo if command.memo is None else json_text.written(command.memo),
                search_attributes=run.search_attributes
                if command.search_attributes is None
                else json_text.written(command.search_attributes),
            ),
            run,
            lineage,
            now_ms,
            now_ms,
        ),
        now_ms,
    )


def retried(
    run: Run, run_id: RunId, error_types: tuple[str, ...], non_retryable: bool, now_ms: int
) -> Successor | None:
    """The next attempt of a failed child; None if there is none."""
    lineage = run.lineage
    policy = lineage.retry
    hopeless = non_retryable or any(each in policy.non_retryable_error_types for each in error_types)
    if not lineage.is_child or not policy.given or hopeless or lineage.attempt >= policy.max_attempts:
        return None
    at_ms = now_ms + policy.pause_ms(lineage.attempt)
    if run.execution_deadline_at_ms is not None and run.execution_deadline_at_ms <= at_ms:
        return None
    again = replace(
        lineage,
        retried_from=run.run_id,
        continued_from=None,
        attempt=lineage.attempt + 1,
        copies=(),
        first_run_id=first_of(run),
    )
    return Successor(_next(replace(run, run_id=run_id), run, again, now_ms, at_ms), at_ms)


def _next(run: Run, before: Run, lineage: Lineage, now_ms: int, at_ms: int) -> Run:
    deadline = None if run.run_timeout_s is None else at_ms + run.run_timeout_s * 1000
    waiting = waits.NEW_RUN_DELIVERING_CANCEL if before.waits.receives_cancel else waits.NEW_RUN
    asked = before.waits.undelivered  # a request goes on to the run whose code can receive it
    if asked is not None:
        waiting = replace(waiting, cancellation=replace(asked, event=0, asked=()))
    if before.waits.paused is not None:
        waiting = replace(waiting, paused=before.waits.paused)
    ends = (run.execution_deadline_at_ms, deadline, None if asked is None else asked.deadline_at_ms)
    return Run(
        run_id=run.run_id,
        namespace=run.namespace,
        workflow_id=run.workflow_id,
        run_number=before.run_number + 1,
        host=run.host,
        workflow_type=run.workflow_type,
        task_queue=run.task_queue,
        business_key=run.business_key,
        level=run.level,
        key=run.key,
        weight_milli=run.weight_milli,
        compatibility=run.compatibility,
        input=run.input,
        memo=run.memo,
        search_attributes=without_keys(run.search_attributes),
        execution_timeout_s=run.execution_timeout_s,
        run_timeout_s=run.run_timeout_s,
        execution_deadline_at_ms=run.execution_deadline_at_ms,
        run_deadline_at_ms=deadline,
        started_at_ms=max(
            now_ms, before.started_at_ms
        ),  # monotonic after a clock step: chains are ordered by it
        start_key=run.start_key,
        status=RunStatus.PENDING,
        last_progress_at_ms=now_ms,
        deadline_at_ms=earliest(*ends),
        lineage=lineage,
        waits=waiting,
    )
