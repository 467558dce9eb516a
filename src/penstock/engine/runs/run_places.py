"""Places under caps on runs: which caps concern a run, handing its places on, and giving them back when it closes.

The transaction that closes a run locks no scope: it counts the end of its places, as the end of a lease is counted, and
wakes the turn that admits who waits (`engine.workflows.start_caps`). So closing costs the same however many wait, and
a chain of locks from runs to scopes and back to runs cannot form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.history import lineage
from penstock.core.limits import run_caps
from penstock.core.limits.policies import Policy
from penstock.core.limits.run_caps import RunCap, RunScope, RunScopeKind
from penstock.core.model import Run
from penstock.core.operations import journal_lines
from penstock.engine.context import EngineContext
from penstock.ports.store import Tx
from penstock.ports.wakeups import RUN_PLACES_TOPIC

NO_CHANGES: Mapping[str, Policy] = {}


def give_back(ctx: EngineContext, tx: Tx, run: Run) -> None:
    """End the places of a run that closes without a successor; one that waits leaves its line."""
    if not run.waits.to_start and not run.waits.places:
        return
    tx.run_places.drop(run.run_id)
    tx.run_places.end(run.waits.places)
    if run.waits.places and ctx.store.journals:
        tx.journal.append(journal_lines.run_closed(lineage.first_of(run), tx.now_ms))
    tx.wake(RUN_PLACES_TOPIC)


def hand_on(tx: Tx, run: Run, successor: Run) -> Run:
    """The successor of a run, with its places: a chain is one run."""
    if not run.waits.places:
        return successor
    tx.run_places.hand_on(run.run_id, successor.run_id)
    return replace(successor, waits=replace(successor.waits, places=run.waits.places))


async def caps_of(
    tx: Tx, runs: Sequence[Run], changed: Mapping[str, Policy] = NO_CHANGES
) -> Mapping[str, Sequence[RunCap]]:
    """By run id, the caps that are in force for the scopes of some runs.

    Args:
        tx: the transaction.
        runs: the runs.
        changed: by scope, policies that this transaction changes.
    """
    scopes = {run.run_id: _scopes(run) for run in runs}
    names = {scope.name for each in scopes.values() for scope in each}
    names |= {
        RunScope(run.namespace, RunScopeKind.EACH_KEY).name for run in runs if run.lineage.concurrency_key
    }
    policies = {**(await tx.run_places.policies(sorted(names)) if names else {}), **changed}
    return {
        run_id: tuple(
            cap for scope in each if (cap := run_caps.cap_in_force(scope, policies, tx.now_ms)) is not None
        )
        for run_id, each in scopes.items()
    }


def _scopes(run: Run) -> Sequence[RunScope]:
    return run_caps.scopes_of(run.namespace, run.workflow_type, run.task_queue, run.lineage.concurrency_key)
