"""Bodies of bridge outcomes, and the manifest that describes them in `cluster/info`."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.bridges.outcomes import (
    OUTCOME_STATUS,
    REJECTION_REASONS,
    TARGET_FIELDS,
    BridgeAction,
    BridgeOutcome,
)
from penstock.core.bridges.signatures import SignatureScheme

SCHEMA: Final = "durable-workflow.v2.bridge-adapter-outcome.contract"
VERSION: Final = 1
_SHOWN_OF_TARGET: Final = (
    "workflow_id",
    "workflow_type",
    "signal_name",
    "update_name",
    "task_queue",
    "business_key",
)
_TEXT_MAX: Final = 255


def outcome_body(
    adapter: str, outcome: BridgeOutcome, document: object = None, **fields: Any
) -> dict[str, Any]:
    """The body of a response: every field of the contract, null where it does not apply.

    Args:
        adapter: The adapter that the request named.
        outcome: What became of the event.
        document: The event in the contract's envelope, if it could be read. Its `input` is never repeated.
        fields: What is known beside the event: `reason`, `workflow_id`, `run_id` and others.
    """
    event = document if isinstance(document, dict) else {}
    target, correlation = event.get("target"), event.get("correlation")
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "adapter": adapter[:_TEXT_MAX],
        "action": _text(event.get("action")),
        "accepted": outcome is BridgeOutcome.ACCEPTED,
        "outcome": outcome.value,
        "reason": None,
        "idempotency_key": _text(event.get("idempotency_key")),
        "target": _shown_target(target) if isinstance(target, dict) else None,
        "correlation": correlation if isinstance(correlation, dict) else None,
        "workflow_id": None,
        "run_id": None,
        "workflow_type": None,
        "control_plane_outcome": None,
        "rejection_reason": None,
        **fields,
    }


def _shown_target(target: dict[str, Any]) -> dict[str, str]:
    """The fields that are safe to repeat; others may hold what the sender did not mean to publish."""
    texts = ((name, _text(target.get(name))) for name in _SHOWN_OF_TARGET)
    return {name: text for name, text in texts if text}


def _text(value: object) -> str | None:
    return value[:_TEXT_MAX] if isinstance(value, str) else None


def _target_fields(action: BridgeAction) -> dict[str, str]:
    required, optional = TARGET_FIELDS[action]
    return dict.fromkeys(sorted(required), "required") | dict.fromkeys(sorted(optional), "optional")


_COMMANDS: Final = [each.value for each in BridgeAction]
_PATH: Final = "/api/bridge-adapters/webhook/{adapter}"

MANIFEST: Final[dict[str, Any]] = {
    "schema": SCHEMA,
    "version": VERSION,
    "boundary": {
        "role": "bounded_ingress_or_handoff",
        "not_a_workflow_runtime": True,
        "allowed_actions": _COMMANDS,
        "forbidden_responsibilities": [
            "workflow_replay",
            "event_history_interpretation",
            "workflow_state_transition_authority",
        ],
    },
    "patterns": {
        "webhook_receiver": {
            "description": "An HTTP event, authenticated by a role or by the signature of a declared adapter, becomes "
            "one command.",
            "allowed_actions": _COMMANDS,
            "signature_schemes": [each.value for each in SignatureScheme],
        }
    },
    "idempotency": {
        "required": True,
        "key_sources": ["explicit_idempotency_key", "provider_event_id", "adapter_generated_stable_hash"],
        "duplicate_policy": {
            "start_workflow": ["reject_duplicate", "use_existing"],
            "signal_workflow": ["record_duplicate_without_redelivery"],
            "update_workflow": ["record_duplicate_without_redelivery"],
        },
        "retention": "as long as the run that the event acted on",
    },
    "visibility": {
        "outcome_fields": [*outcome_body("", BridgeOutcome.ACCEPTED), "message"],
        "redaction": {
            "never_echo": ["authorization", "signature", "token", "secret", "raw_payload"],
            "safe_references": ["credential_ref", "profile", "namespace", "target"],
        },
    },
    "outcomes": {
        each.value: {
            "http_status": status,
            "retriable": False,
            "terminal": each is not BridgeOutcome.ACCEPTED,
        }
        for each, status in OUTCOME_STATUS.items()
    },
    "rejection_reasons": [each.value for each in REJECTION_REASONS],
    "reference_journeys": {
        "incident_webhook_signals_workflow": {
            "pattern": "webhook_receiver",
            "request": {
                "method": "POST",
                "path_template": _PATH,
                "action": BridgeAction.SIGNAL.value,
                "idempotency_key_source": "provider_event_id",
                "target": _target_fields(BridgeAction.SIGNAL),
            },
            "expected_outcomes": {
                "first_delivery": {"http_status": 202, "outcome": "accepted", "reason": None},
                "redelivery": {
                    "http_status": 200,
                    "outcome": "duplicate",
                    "control_plane_outcome": "deduped_existing_command",
                },
                "missing_workflow": {"http_status": 422, "outcome": "rejected", "reason": "unknown_target"},
            },
            "visibility": {"redacted_target_fields": ["workflow_id", "signal_name"]},
        },
        "commerce_event_starts_workflow": {
            "pattern": "webhook_receiver",
            "request": {
                "method": "POST",
                "path_template": _PATH,
                "action": BridgeAction.START.value,
                "idempotency_key_source": "provider_event_id",
                "target": _target_fields(BridgeAction.START)
                | {"duplicate_policy": ["reject_duplicate", "use_existing"]},
            },
            "expected_outcomes": {
                "first_delivery": {
                    "http_status": 202,
                    "outcome": "accepted",
                    "control_plane_outcome": "started_new",
                },
                "redelivery": {
                    "http_status": 200,
                    "outcome": "duplicate",
                    "reason": "duplicate_start",
                    "control_plane_outcome": "returned_existing_active",
                },
            },
            "visibility": {
                "redacted_target_fields": ["workflow_id", "workflow_type", "task_queue", "business_key"]
            },
        },
    },
}
"""What this server does of the contract: no hand-off of external tasks, and no refusal of queues that drain."""
