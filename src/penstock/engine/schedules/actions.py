"""What a fire starts: a workflow or a standalone activity, stored as the start that it becomes."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.history.commands import ScheduleActivity
from penstock.core.id_policies import IdReusePolicy
from penstock.core.identifiers import WORKFLOW_ID_MAX
from penstock.core.schedules.record import SCHEDULED_BY_ID, SCHEDULED_START_TIME, FireKey, ScheduleRecord
from penstock.core.timestamps import iso
from penstock.engine.context import EngineContext
from penstock.engine.workflows.starts import Start, StartResult, activity_start, workflow_start
from penstock.ports.store import Transaction


class StoredAction(Struct, frozen=True, omit_defaults=True):
    """The start of each fire, and the action as its owner wrote it, without its input."""

    start: Start
    shown: dict[str, Any]
    command: ScheduleActivity | None = None
    """Of a standalone activity."""

    @property
    def type(self) -> str:
        return self.start.workflow_type if self.command is None else self.command.activity_type


_decode = msgspec.json.Decoder(StoredAction).decode


def encode(action: StoredAction) -> str:
    return json_text.written(action)


@lru_cache(maxsize=1024)
def decode(text: str) -> StoredAction:
    return _decode(text)


def start_of_fire(ctx: EngineContext, record: ScheduleRecord, fire: FireKey) -> Transaction[StartResult]:
    """The start that a fire makes: an ordinary one, with its priority, fairness key and cost."""
    action = decode(record.action)
    nominal = iso(fire.nominal_at_ms)
    attributes = _merged(record.search_attributes, action.start.search_attributes)
    attributes |= {SCHEDULED_START_TIME: nominal, SCHEDULED_BY_ID: record.schedule_id}
    request = replace(
        action.start,
        namespace=record.namespace,
        workflow_id=workflow_id_of(record, fire),
        memo=json_text.written(_merged(record.memo, action.start.memo)),
        search_attributes=json_text.written(attributes),
        id_reuse_policy=IdReusePolicy.ALLOW_DUPLICATE,
        fire=fire,
    )
    if action.command is None:
        return workflow_start(ctx, request)
    return activity_start(ctx, request, action.command)


def workflow_id_of(record: ScheduleRecord, fire: FireKey) -> str:
    """The id of the run that a fire starts: schedule and nominal moment, to the millisecond where it has any."""
    moment = iso(fire.nominal_at_ms).replace(".000Z", "Z")
    named, room = record.schedule_id, WORKFLOW_ID_MAX - len(moment) - 1
    if len(named) > room:
        named = f"{named[: room - 9]}~{hashlib.sha256(named.encode()).hexdigest()[:8]}"
    return f"{named}-{moment}"


def _merged(*texts: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for text in texts:
        merged |= json_text.read(text)
    return merged
