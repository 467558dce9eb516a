"""The outcomes of bridge events, and the words that the contract has for refusals."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from penstock.errors import Reason

ADAPTER_MAX: Final = 64
ADAPTER_NAME: Final = re.compile(rf"[A-Za-z0-9._:-]{{1,{ADAPTER_MAX}}}", re.ASCII)


class BridgeAction(StrEnum):
    """What an event does."""

    START = "start_workflow"
    SIGNAL = "signal_workflow"
    UPDATE = "update_workflow"


class BridgeOutcome(StrEnum):
    """What became of an event."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    UNAUTHORIZED = "unauthorized"


OUTCOME_STATUS: Final[Mapping[BridgeOutcome, int]] = {
    BridgeOutcome.ACCEPTED: 202,
    BridgeOutcome.DUPLICATE: 200,
    BridgeOutcome.REJECTED: 422,
    BridgeOutcome.UNAUTHORIZED: 401,
}

TARGET_FIELDS: Final[Mapping[BridgeAction, tuple[frozenset[str], frozenset[str]]]] = {
    BridgeAction.START: (
        frozenset({"workflow_type"}),
        frozenset({"workflow_id", "task_queue", "business_key", "duplicate_policy"}),
    ),
    BridgeAction.SIGNAL: (frozenset({"workflow_id", "signal_name"}), frozenset()),
    BridgeAction.UPDATE: (frozenset({"workflow_id", "update_name"}), frozenset()),
}
"""The required and the optional fields of a declared target."""

CONTRACT_REASON: Final[Mapping[Reason, Reason]] = {
    Reason.VALIDATION_FAILED: Reason.MALFORMED_PAYLOAD,
    Reason.MALFORMED_JSON: Reason.MALFORMED_PAYLOAD,
    Reason.UNSUPPORTED_MEDIA_TYPE: Reason.MALFORMED_PAYLOAD,
    Reason.UNSUPPORTED_CONTENT_ENCODING: Reason.MALFORMED_PAYLOAD,
    Reason.MAPPING_VALUE_MISSING: Reason.MALFORMED_PAYLOAD,
    Reason.INSTANCE_NOT_FOUND: Reason.UNKNOWN_TARGET,
    Reason.SIGNATURE_INVALID: Reason.AUTH_FAILED,
    Reason.SIGNATURE_STALE: Reason.AUTH_FAILED,
    Reason.SIGNATURE_MISSING: Reason.AUTH_FAILED,
    Reason.SIGNATURE_REPLAYED: Reason.AUTH_FAILED,
}
"""The contract's reason for ours, which `rejection_reason` repeats; other reasons are the same word in both."""

REJECTION_REASONS: Final = (
    Reason.UNKNOWN_TARGET,
    Reason.AUTH_FAILED,
    Reason.MALFORMED_PAYLOAD,
    Reason.DUPLICATE_START,
    Reason.INSTANCE_ALREADY_STARTED,
    Reason.UNSUPPORTED_ROUTING,
    Reason.UNSUPPORTED_ACTION,
    Reason.PAYLOAD_TOO_LARGE,
    Reason.ADAPTER_UNAVAILABLE,
)
"""The contract's reasons that this server gives; a command may also be rejected with a reason of its own route."""


def workflow_id_of(adapter: str, idempotency_key: str) -> str:
    """The workflow id of a start that names none: the same for every delivery of an event."""
    return f"bridge-{adapter}-{hashlib.sha256(idempotency_key.encode()).hexdigest()[:32]}"


def command_key(adapter: str, name: str, idempotency_key: str) -> str:
    """The request id of a command. Ids of two adapters, or of two names of signals, never collide."""
    return json.dumps(["bridge", adapter, name, idempotency_key], ensure_ascii=False)
