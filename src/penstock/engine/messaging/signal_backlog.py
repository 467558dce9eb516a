"""Signals in a history that no wait has taken, for code that waits for signals by name.

Waits take the signals of a name in order of arrival, so the backlog of a name is what was received after the last one
that was applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.core import json_text
from penstock.core.history.events import EventType
from penstock.core.model import Json, Run
from penstock.core.timeline.values import TimelineEvent
from penstock.ports.store import Tx

EVENTS_AT_ONCE = 1_000


async def unapplied(tx: Tx, run: Run, names: Sequence[str]) -> dict[str, list[Json]]:
    """The payloads of the oldest untaken signals: as many of a name as waits for it are opened.

    Args:
        tx: The transaction of the report that opens the waits.
        run: Their run.
        names: The name of each wait.
    """
    backlog: dict[str, list[int]] = {name: [] for name in names}
    after = 0
    while events := await tx.histories.timeline(run.run_id, after, EVENTS_AT_ONCE):
        after = events[-1].sequence
        for event in events:
            _count(backlog, event)
    wanted = Counter(names)
    return {
        name: [await _payload(tx, run, sequence) for sequence in left[: wanted[name]]]
        for name, left in backlog.items()
    }


def _count(backlog: dict[str, list[int]], event: TimelineEvent) -> None:
    left = backlog.get(event.signal_name or "")
    if left is None:
        return
    if event.type == EventType.SIGNAL_RECEIVED:
        left.append(event.sequence)
    elif event.type == EventType.SIGNAL_APPLIED:
        left.pop(0)


async def _payload(tx: Tx, run: Run, sequence: int) -> Json:
    (event,) = await tx.histories.page(run.run_id, sequence - 1, 1)
    payload: Json = json_text.read(event.payload)
    return payload
