"""Workflow ids and the runs that they name: taking an id for a new run, and finding the runs of a chain.

`instances` holds one row for each workflow id: its newest run, and how many runs it has had. A new id is taken by
inserting that row, so of several starts one inserts and the others find its run. An id whose newest run is closed is
taken again under the lock of that run, the same lock that closing, continuing and pruning take. After waiting for the
lock a start reads the row again: if it names another run by now, the start decides anew about that one. So of any
number of racing starts exactly one replaces a run, on one server or on many: `one-open-run`.

Runs that continue or retry each other form a chain, known by its first run. A workflow id that is used again has
several chains, and the numbers of its runs go on.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from penstock.core.history import lineage
from penstock.core.model import Instance, RetainedRequest, Run, RunId
from penstock.engine.runs.history_writer import to_json
from penstock.errors import Reason, Unavailable
from penstock.ports.store import PageStart, Tx

TRIES: Final = 10
RUNS_AT_ONCE: Final = 100
START: Final = "start"
"""The kind under which the idempotency keys of starts are retained."""
STARTED_NEW: Final = "started_new"


class Replaced(Struct, frozen=True):
    """The newest run of an id, locked, and the number that the next one has."""

    run: Run
    next_number: int


async def newest(tx: Tx, instance: Instance) -> Run | None:
    """Take a new id, or return the newest run of a known one. None: the id is the caller's now."""
    for _ in range(TRIES):
        standing = await tx.runs.reserve(instance)
        if standing.run_id == instance.run_id:
            return None
        run = await tx.runs.get(standing.run_id)
        if run is not None:  # else it was deleted between the two reads, by another server
            return run
    raise busy(instance.workflow_id)


async def lock_newest(tx: Tx, run: Run) -> Replaced | None:
    """Lock a run, if it is still the newest of its id."""
    locked = await tx.runs.lock(run.run_id)
    instance = await tx.runs.instance(run.namespace, run.workflow_id)
    if locked is None or instance is None or instance.run_id != run.run_id:
        return None
    return Replaced(locked, instance.run_count + 1)


def replace_newest(tx: Tx, closed: Run, run_id: RunId, number: int) -> None:
    """Let an id name a new run in place of one that is locked and closed, whose idempotency key is kept."""
    assert not closed.is_open, "one-open-run: a run that is replaced is closed"
    tx.runs.succeed(Instance(closed.namespace, closed.workflow_id, run_id, number))
    retain_start(tx, closed, closed.start_key, STARTED_NEW)


def started_at_ms(replaced: Run | None, now_ms: int) -> int:
    """When a run starts that takes an id: after the run that it replaces, so that the runs of an id have one order.

    A start that waited for the lock of that run has an earlier `now_ms` than the start which it waited for.
    """
    return now_ms if replaced is None else max(now_ms, replaced.started_at_ms + 1)


def busy(workflow_id: str) -> Unavailable:
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        f"The runs of {workflow_id!r} change too fast for this start. Nothing was started. Try again.",
        outcome="none",
        retryable=True,
    )


# ── Idempotency keys ────────────────────────────────────────────────────────────────────────────────────────


async def started_before(tx: Tx, namespace: str, workflow_id: str, key: str) -> tuple[Run, str] | None:
    """The run that answered an earlier start with this key, and the outcome of that start.

    The newest run carries its key itself. Keys of runs that were replaced, and of starts that were answered with an
    existing run, are retained until retention deletes that run.
    """
    retained = await tx.requests.get(namespace, workflow_id, START, key)
    run = None if retained is None else await tx.runs.get(retained.run_id)
    return None if retained is None or run is None else (run, retained.name)


def retain_start(tx: Tx, run: Run, key: str | None, outcome: str) -> None:
    """Remember which run a start with this key was answered with."""
    if key is not None:
        tx.requests.insert(
            RetainedRequest(
                namespace=run.namespace,
                workflow_id=run.workflow_id,
                kind=START,
                request_id=key,
                run_id=run.run_id,
                number=run.last_request,
                name=outcome,
                digest="",
                receipt=to_json({"run_id": run.run_id, "outcome": outcome}),
                at_ms=tx.now_ms,
            )
        )


# ── Chains ──────────────────────────────────────────────────────────────────────────────────────────────────


async def newest_of_chain(tx: Tx, namespace: str, workflow_id: str, member: RunId) -> Run | None:
    """The newest run of the chain that a run belongs to or began, also if that run itself is deleted.

    Usually that is the newest run of the id. Else the id was used again, and its runs are searched.
    """
    found = await tx.runs.named(namespace, workflow_id, None)
    current = None if found is None else found[1]
    if current is None:
        return None
    known = current if current.run_id == member else await tx.runs.get(member)
    if known is not None and (known.namespace, known.workflow_id) != (namespace, workflow_id):
        return None
    first = member if known is None else lineage.first_of(known)
    if lineage.is_in_chain(current, first):
        return current
    return await _last_member(tx, known, namespace, workflow_id, first)


async def _last_member(
    tx: Tx, known: Run | None, namespace: str, workflow_id: str, first: RunId
) -> Run | None:
    """The run with the highest number in a chain that is not the newest one of its id."""
    last = known
    after = None if known is None else PageStart(known.started_at_ms, known.run_id)
    while page := await tx.runs.of_instance(namespace, workflow_id, after, RUNS_AT_ONCE):
        members = [run for run in page if lineage.is_in_chain(run, first)]
        last = max(
            [*members, *([] if last is None else [last])], key=lambda run: run.run_number, default=None
        )
        after = PageStart(page[-1].started_at_ms, page[-1].run_id)
        if last is not None and not members:
            break
    return last
