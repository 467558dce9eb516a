"""Nondeterminism: where workflow code and history diverge, with both sides for diagnosis."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct

from penstock.core.model import RecordedEvent, ReplayBlock, Run, WorkerRecord
from penstock.core.timestamps import iso

_TYPES = frozenset({"NonDeterministicReplayError", "NonDeterminismError", "nondeterminism"})
_SAID = re.compile(
    r"at workflow sequence (?P<step>\d+) recorded (?P<recorded>\[.*?\]), "
    r"but the current workflow yielded (?P<yielded>.+?)\.(?:\s|$)",
    re.DOTALL,
)
CHARS_MAX = 2_000


class Divergence(Struct, frozen=True):
    """A divergence that a worker reported."""

    step: int | None
    recorded: tuple[str, ...]
    """Types of the events that the history has at that step."""
    yielded: str | None
    """What the code did there instead."""
    message: str


def of(failure_type: str | None, message: str) -> Divergence | None:
    """The divergence in a reported failure; None if the failure is of another kind."""
    if failure_type not in _TYPES:
        return None
    said = _SAID.search(message)
    if said is None:
        return Divergence(None, (), None, message[:CHARS_MAX])
    types = tuple(re.findall(r"\w+", said["recorded"]))
    return Divergence(int(said["step"]), types, said["yielded"][:CHARS_MAX], message[:CHARS_MAX])


def first(events: Sequence[RecordedEvent], parted: Divergence) -> RecordedEvent | None:
    """The first event of the step at which they diverge."""
    if parted.step is None:
        return None
    wanted = f'"sequence":{parted.step}'
    candidates = (event for event in events if wanted in event.payload)
    return next(
        (each for each in candidates if json.loads(each.payload).get("sequence") == parted.step), None
    )


def replay_block(
    parted: Divergence, event: RecordedEvent | None, run: Run, worker: WorkerRecord | None, now_ms: int
) -> ReplayBlock:
    """What is stored with a run while it is blocked; `since` is kept from the first report."""
    return ReplayBlock(
        sequence=parted.step,
        event_sequence=None if event is None else event.sequence,
        event_type=None if event is None else event.type,
        recorded=parted.recorded,
        yielded=parted.yielded,
        message=parted.message,
        worker_id=None if worker is None else worker.worker_id,
        build_id=None if worker is None else worker.build_id,
        fingerprint=None if worker is None else worker.fingerprints.get(run.workflow_type),
        since=(run.blocked.since if run.blocked is not None else None) or iso(now_ms),
    )


def may_fit(block: ReplayBlock, workflow_type: str, worker: WorkerRecord) -> bool:
    """Whether a worker has other code than the one that diverged."""
    other = (block.build_id, block.fingerprint) != (worker.build_id, worker.fingerprints.get(workflow_type))
    return worker.knows(workflow_type) and (other or not block.fingerprint)
