"""Events of bridge adapters, and the declared adapters.

A request reaches `webhook` in one of two ways. In the contract's way, an operator's credential sends an event in the
contract's envelope through any adapter name. In the declared way, another system sends its own body, signed; the
receiver (`server.auth.webhooks`) verifies the signature and maps the body to the same envelope. From there on both are
one path, with one vocabulary of outcomes: refusals that concern the event are outcomes too, so that a sender sees
`outcome` and `reason` in every response that is about its event. Errors of the server itself keep their own bodies and
statuses, because a sender should send the event again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core.bridges.outcomes import (
    ADAPTER_MAX,
    ADAPTER_NAME,
    CONTRACT_REASON,
    OUTCOME_STATUS,
    BridgeAction,
    BridgeOutcome,
    workflow_id_of,
)
from penstock.core.model import Blob
from penstock.engine.bridges import events
from penstock.engine.bridges.events import BridgeCommand, BridgeEvent, BridgeResult
from penstock.engine.runs.address import Address
from penstock.errors import InvalidInput, PenstockError, Reason
from penstock.server.endpoints.messaging.signals_and_updates import operation_name
from penstock.server.endpoints.workflows.start_requests import parse_workflow_start
from penstock.server.metrics import Metrics
from penstock.server.operation import OperationCall, Response
from penstock.server.problems import body_of, status_of
from penstock.settings import DeclaredAdapter
from penstock.wire import payloads
from penstock.wire.bridges.outcomes import outcome_body
from penstock.wire.bridges.requests import BridgeEventBody, SignalTarget, StartTarget, UpdateTarget
from penstock.wire.request_parser import UnknownField, parse, unknown_fields, with_warnings
from penstock.wire.requests import RequestModel, StartWorkflow

_STATUSES_OF_OTHERS: Final = frozenset({400, 403, 404, 408, 421, 429})
"""Statuses of errors that are, in general, about the caller's authority or the server."""
_ABOUT_THE_EVENT: Final = frozenset({*CONTRACT_REASON, Reason.UNKNOWN_SIGNAL, Reason.UNKNOWN_UPDATE})
"""Reasons that are about the event, whatever their status."""
_TARGETS: Final[Mapping[BridgeAction, type[RequestModel]]] = {
    BridgeAction.START: StartTarget,
    BridgeAction.SIGNAL: SignalTarget,
    BridgeAction.UPDATE: UpdateTarget,
}


async def webhook(call: OperationCall) -> Response:
    """Carry out an event, and answer with its outcome."""
    adapter = call.path["adapter"]
    try:
        action = _action(adapter, call.body)
        ignored = _ignored(call.body, _TARGETS[action])
        result = await _carry_out(call, BridgeEvent(adapter, call.body.idempotency_key), action)
    except PenstockError as error:
        refused = refusal(error, call.path, call.metrics, call.document)
        if refused is None:
            raise
        return refused
    outcome = BridgeOutcome.DUPLICATE if result.is_duplicate else BridgeOutcome.ACCEPTED
    is_known_start = result.is_duplicate and action is BridgeAction.START
    reason = Reason.DUPLICATE_START.value if is_known_start else None
    body = outcome_body(adapter, outcome, call.document, **_result_fields(result), reason=reason)
    call.metrics.bridge_events.labels(outcome.value, reason or "").inc()
    return Response(with_warnings(body, ignored) if ignored else body, OUTCOME_STATUS[outcome])


def _result_fields(result: BridgeResult) -> dict[str, Any]:
    return {
        "workflow_id": result.workflow_id,
        "run_id": result.run_id,
        "workflow_type": result.workflow_type,
        "control_plane_outcome": result.control_plane_outcome,
    }


def refusal(
    error: PenstockError, path: Mapping[str, str], metrics: Metrics, document: object = None
) -> Response | None:
    """The outcome of an event that is refused; None if the error is not about the event.

    Args:
        error: Why it is refused.
        path: The parameters of the path.
        metrics: Counts the outcome.
        document: The event in the contract's envelope, if it could be read.
    """
    status = status_of(error)
    is_about_event = error.reason in _ABOUT_THE_EVENT or status not in _STATUSES_OF_OTHERS
    if status >= 500 or error.reason is Reason.UNAUTHORIZED or not is_about_event:
        return None
    reason = CONTRACT_REASON.get(error.reason, error.reason)
    is_unauthentic = reason is Reason.AUTH_FAILED
    outcome = BridgeOutcome.UNAUTHORIZED if is_unauthentic else BridgeOutcome.REJECTED
    said = body_of(error)
    fields = said | {
        "reason": reason.value,
        "rejection_reason": error.reason.value,
        "control_plane_outcome": said.pop("outcome", None),
    }
    body = outcome_body(path.get("adapter", ""), outcome, document) | fields
    metrics.bridge_events.labels(outcome.value, reason.value).inc()
    return Response(body, OUTCOME_STATUS[outcome])


def _action(adapter: str, event: BridgeEventBody) -> BridgeAction:
    if not ADAPTER_NAME.fullmatch(adapter):
        raise InvalidInput(
            Reason.UNSUPPORTED_ROUTING,
            f"An adapter's name is 1 to {ADAPTER_MAX} letters, digits, dots, underscores, colons or dashes.",
        )
    try:
        return BridgeAction(event.action)
    except ValueError:
        known = ", ".join(each.value for each in BridgeAction)
        raise InvalidInput(Reason.UNSUPPORTED_ACTION, f"The action is not one of {known}.") from None


def _ignored(event: BridgeEventBody, shape: type[RequestModel]) -> list[UnknownField]:
    """Fields of the target that the action does not have: ignored, as the contract wants, and named in `warnings`."""
    return unknown_fields(event.target, shape)


async def _carry_out(call: OperationCall, event: BridgeEvent, action: BridgeAction) -> BridgeResult:
    body: BridgeEventBody = call.body
    if action is BridgeAction.START:
        return await _start(call, event, parse(body.target, StartTarget))
    if action is BridgeAction.SIGNAL:
        signal = parse(body.target, SignalTarget)
        command = _command(call, signal.workflow_id, signal.signal_name, "signal_name")
        return await events.signal(call.ctx, event, command)
    update = parse(body.target, UpdateTarget)
    command = _command(call, update.workflow_id, update.update_name, "update_name")
    return await events.update(call.ctx, event, command, call.dispatcher.draining)


async def _start(call: OperationCall, event: BridgeEvent, target: StartTarget) -> BridgeResult:
    request = StartWorkflow(
        workflow_type=target.workflow_type,
        workflow_id=target.workflow_id or workflow_id_of(event.adapter, event.idempotency_key),
        task_queue=target.task_queue,
        business_key=target.business_key,
        input=call.body.input,
        duplicate_policy="fail" if target.duplicate_policy == "reject_duplicate" else "use-existing",
    )
    start = parse_workflow_start(request, {}, call.namespace, None, call.ctx.settings.limits)
    return await events.start(call.ctx, event, start)


def _command(call: OperationCall, workflow_id: str, name: str, field: str) -> BridgeCommand:
    arguments = Blob(payloads.parse(call.body.input, "input").blob)
    return BridgeCommand(Address(call.namespace, workflow_id), operation_name(call, name, field), arguments)


async def list_adapters(call: OperationCall) -> Response:
    """The adapters that the configuration declares for the namespace, without their secrets."""
    settings = call.ctx.settings
    declared = [
        _adapter(each, settings.default_namespace)
        for each in settings.bridge_adapters
        if (each.namespace or settings.default_namespace) == call.namespace
    ]
    return Response({"namespace": call.namespace, "adapters": declared})


def _adapter(adapter: DeclaredAdapter, default_namespace: str) -> dict[str, Any]:
    return {
        "adapter": adapter.name,
        "namespace": adapter.namespace or default_namespace,
        "scheme": adapter.scheme.value,
        "signature_header": adapter.signature_header,
        "secrets": list(adapter.references),
        "tolerance_seconds": adapter.tolerance_ms // 1000,
        "max_bytes": adapter.bytes_max,
        "routes": [
            {
                "action": route.action,
                "when": {path.text: list(allowed) for path, allowed in route.when},
                "target_fields": sorted(route.target),
            }
            for route in adapter.routes
        ],
    }
