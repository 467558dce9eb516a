"""Workflow ids: reserving an id for a new run, and finding the runs of a chain.

Theory of operation
-------------------
`instances` holds one row per workflow id: its newest run and its run count. A new id is reserved by inserting that row
(insert-or-read), so of several racing starts one inserts and the others read the winner's run.

An id whose newest run is closed is reused under the row lock of that run, the same lock that closing, continue-as-new
and pruning take. After acquiring the lock a start reads the row again (double-checked locking): if it names another
run by now, the start decides again about that one. So of any number of racing starts exactly one replaces a run, on
one server or on many. Invariant: `one-open-run`.

Runs that continue or retry each other form a chain, identified by its first run. A reused workflow id has several
chains; run numbers continue across them.

Rejected: a lock per workflow id (an extra row and lock for every start, though ids are rarely contended), and a unique
index on open runs (races become errors of the losing transaction instead of an answer).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from penstock.core.history import lineage
from penstock.core.model import Instance, RetainedRequest, Run, RunId
from penstock.engine.runs.history_writer import to_json
from penstock.errors import Reason, Unavailable
from penstock.ports.store import Tx
from penstock.ports.tables.visibility import PageStart

TRIES: Final = 10
RUNS_AT_ONCE: Final = 100
START: Final = "start"
"""The kind under which the idempotency keys of starts are retained."""
STARTED_NEW: Final = "started_new"


class Replaced(Struct, frozen=True):
    """The newest run of an id, locked, and the number of the next run."""

    run: Run
    next_number: int


async def newest(tx: Tx, instance: Instance) -> Run | None:
    """Reserve a new id and return None, or return the newest run of an id that is taken."""
    for _ in range(TRIES):
        reserved = await tx.runs.reserve(instance)
        if reserved.run_id == instance.run_id:
            return None
        run = await tx.runs.get(reserved.run_id)
        if run is not None:  # else another server deleted it between the two reads
            return run
    raise busy(instance.workflow_id)


async def lock_newest(tx: Tx, run: Run) -> Replaced | None:
    """Lock a run; None if it is no longer the newest of its id."""
    locked = await tx.runs.lock(run.run_id)
    instance = await tx.runs.instance(run.namespace, run.workflow_id)
    if locked is None or instance is None or instance.run_id != run.run_id:
        return None
    return Replaced(locked, instance.run_count + 1)


def replace_newest(tx: Tx, closed: Run, run_id: RunId, number: int) -> None:
    """Point an id at a new run in place of a locked, closed one, and retain the idempotency key of that one."""
    assert not closed.is_open, "one-open-run: a run that is replaced is closed"
    tx.runs.succeed(Instance(closed.namespace, closed.workflow_id, run_id, number))
    retain_start(tx, closed, closed.start_key, STARTED_NEW)


def started_at_ms(replaced: Run | None, now_ms: int) -> int:
    """The start time of a run: later than that of the run it replaces, so that the runs of an id are ordered.

    A start that waited for that run's lock may have an earlier `now_ms` than the start it waited for.
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
    """The run returned by an earlier start with this key, and the outcome of that start.

    The newest run holds its key itself. Keys of replaced runs, and of starts that returned an existing run, are
    retained until retention deletes that run.
    """
    retained = await tx.requests.get(namespace, workflow_id, START, key)
    run = None if retained is None else await tx.runs.get(retained.run_id)
    return None if retained is None or run is None else (run, retained.name)


def retain_start(tx: Tx, run: Run, key: str | None, outcome: str) -> None:
    """Retain which run a start with this key returned."""
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
    """The newest run of the chain that a run belongs to or began, even if that run itself was deleted.

    Usually that is the newest run of the id; if the id was reused, its runs are searched.
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
    """The run with the highest number in a chain that is not the newest of its id."""
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
