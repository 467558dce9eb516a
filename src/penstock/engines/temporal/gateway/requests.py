"""Parts of requests of Temporal's API, for the fields that the client of temporalio does not let a program set.

Starts and signals are sent as such requests. Their request id makes a repetition harmless, and their answer says
whether a start made a run or found one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Memo, Payloads, SearchAttributes
from temporalio.api.common.v1 import Priority as ProtoPriority
from temporalio.client import Client as TemporalClient
from temporalio.common import TypedSearchAttributes
from temporalio.converter import encode_search_attributes
from temporalio.service import RPCError

from penstock.engines.temporal.gateway.context import Json, priority_of, seconds
from penstock.engines.temporal.payloads import CONVERTER
from penstock.errors import ValidationFailed

PRIORITY_FIELDS: Final = frozenset({"priority", "priority_key", "fairness_key", "fairness_weight"})
ID_FIELDS: Final = frozenset({"duplicate_policy", "id_reuse_policy", "id_conflict_policy", "idempotency_key"})


def id_policies(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return what happens if the id is in use: by a closed run, and by an open one.

    `duplicate_policy` is that of the contract: ids of closed runs are not used again.
    """
    duplicate = str(body.get("duplicate_policy") or "")
    conflict = str(body.get("id_conflict_policy") or duplicate.replace("-", "_") or "fail")
    if duplicate and duplicate.replace("-", "_") != conflict:
        errors = {"id_conflict_policy": [f"contradicts duplicate_policy {duplicate}; send one of them"]}
        raise ValidationFailed(errors)
    is_by_contract = duplicate and body.get("id_conflict_policy") is None
    otherwise = "reject_duplicate" if is_by_contract else "allow_duplicate"
    return str(body.get("id_reuse_policy") or otherwise), conflict


def sent_by(client: TemporalClient, request_id: str | None) -> Json:
    """Return who sends a request, and the id that makes its repetition harmless."""
    return {
        "namespace": client.namespace,
        "identity": client.identity,
        "request_id": request_id or str(uuid.uuid4()),
    }


async def payloads(values: Sequence[Any]) -> Payloads | None:
    return Payloads(payloads=await CONVERTER.encode(values)) if values else None


async def memo(values: Mapping[str, Any] | None) -> Memo | None:
    if values is None:
        return None
    return Memo(fields={name: (await CONVERTER.encode([value]))[0] for name, value in values.items()})


def search_attributes(given: TypedSearchAttributes | None) -> SearchAttributes | None:
    if given is None:
        return None
    found = SearchAttributes()
    encode_search_attributes(given, found)
    return found


def shown_attributes(found: TypedSearchAttributes) -> Json:
    """Return search attributes as our lists and descriptions have them."""
    return {
        pair.key.name: pair.value.isoformat() if isinstance(pair.value, datetime) else pair.value
        for pair in found.search_attributes
    }


def priority(body: Mapping[str, Any]) -> ProtoPriority:
    given = priority_of(body)
    return ProtoPriority(
        priority_key=given.priority_key or 0,
        fairness_key=given.fairness_key or "",
        fairness_weight=given.fairness_weight or 0,
    )


def durations(body: Mapping[str, Any], **fields: str) -> Json:
    """Return the durations of a body that are given, by the names that Temporal has for them.

    Args:
        body: the request of our client.
        fields: the name in the body, by the name in Temporal's request.
    """
    found = {theirs: seconds(body, ours) for theirs, ours in fields.items()}
    return {name: duration(value) for name, value in found.items() if value is not None}


def duration(value: timedelta) -> Duration:
    found = Duration()
    found.FromTimedelta(value)
    return found


def unpacked(error: RPCError, into: Any) -> Any:
    """Return the details of an error if they are of this kind, else None."""
    details = error.grpc_status.details
    return into if details and details[0].Unpack(into) else None
