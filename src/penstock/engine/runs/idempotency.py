"""Request ids: a request sent again gets the receipt of the first and has no second effect."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import payload_codec
from penstock.core.call_headers import blob_without_headers
from penstock.core.external_payloads import content_of, reference_of
from penstock.core.history import lineage
from penstock.core.messaging import contracts
from penstock.core.messaging.contracts import MessageContracts
from penstock.core.model import Blob, RetainedRequest, Run, WorkerRecord, WorkerStatus
from penstock.core.scheduling.cohorts import status_now
from penstock.engine.context import EngineContext
from penstock.engine.runs.address import Address, find, rejected
from penstock.engine.runs.history_writer import to_json
from penstock.errors import Conflict, InvalidInput, NotFound, PenstockError, Reason
from penstock.ports.store import Tx


class IdempotentRequest(Struct, frozen=True):
    """A request to a run, identified by its caller's request id. `digest` detects reuse of an id."""

    kind: str
    name: str
    arguments: Blob
    request_id: str | None = None

    @property
    def digest(self) -> str:
        content = content_of(
            blob_without_headers(self.arguments)
        )  # a caller that asks again may trace it anew
        return hashlib.sha256(f"{self.name}\x1f{content}".encode()).hexdigest()


async def retained(
    tx: Tx, namespace: str, workflow_id: str, request: IdempotentRequest, bound_to: Run | None = None
) -> dict[str, Any] | None:
    """The receipt of the same request, if it was accepted before.

    Request ids are unique per workflow id, across its runs. Raises `Conflict` if the id was used for a different
    request, or, when the caller addressed `bound_to`, by a run of another chain.
    """
    if request.request_id is None:
        return None
    before = await tx.requests.get(namespace, workflow_id, request.kind, request.request_id)
    if before is None:
        return None
    receipt: dict[str, Any] = json.loads(before.receipt)
    if before.digest != request.digest:
        differs = "name" if before.name != request.name else "input"
        raise _used_before(before, request, receipt, differs, f"another {request.kind}")
    if bound_to is not None and before.run_id != bound_to.run_id:
        accepted_by = await tx.runs.get(before.run_id)
        if accepted_by is not None and not lineage.is_in_chain(accepted_by, lineage.first_of(bound_to)):
            used_for = f"a {request.kind} to run {before.run_id}, which is not of the same start"
            raise _used_before(before, request, receipt, "run", used_for)
    return receipt


def _used_before(
    before: RetainedRequest, request: IdempotentRequest, receipt: dict[str, Any], differs: str, used_for: str
) -> Conflict:
    return Conflict(
        Reason.REQUEST_ID_CONFLICT,
        f"The request id {request.request_id!r} was used for {used_for}. Use a new id.",
        workflow_id=before.workflow_id,
        retained_run_id=before.run_id,
        retained_command_type=request.kind,
        retained_command_id=receipt.get("command_id"),
        retained_outcome=receipt.get("outcome"),
        conflict=[differs],
        **rejected(Reason.REQUEST_ID_CONFLICT),
    )


async def retained_by_older_run(
    ctx: EngineContext, address: Address, request: IdempotentRequest, refusal: Conflict
) -> tuple[Run, dict[str, Any]]:
    """The receipt of a request that addressed a run which has continued as new since. Raises `refusal` if none."""
    if refusal.reason is not Reason.HISTORICAL_RUN_COMMAND_REJECTED:
        raise refusal

    async def operation(tx: Tx) -> tuple[Run, dict[str, Any]] | None:
        receipt = await retained(tx, address.namespace, address.workflow_id, request)
        return None if receipt is None else (await find(tx, replace(address, run_id=None)), receipt)

    found = await ctx.store.read(operation)
    if found is None:
        raise refusal
    return found


def retain(tx: Tx, run: Run, request: IdempotentRequest, receipt: dict[str, Any]) -> None:
    """Store the receipt under the request id, if the request has one."""
    if request.request_id is not None:
        tx.requests.insert(
            RetainedRequest(
                namespace=run.namespace,
                workflow_id=run.workflow_id,
                kind=request.kind,
                request_id=request.request_id,
                run_id=run.run_id,
                number=run.last_request,
                name=request.name,
                digest=request.digest,
                receipt=to_json(receipt),
                at_ms=tx.now_ms,
            )
        )


async def contracts_of(ctx: EngineContext, tx: Tx, run: Run) -> MessageContracts:
    """The signals and updates that the registered workers declare for the run's workflow type."""
    stale_after_ms = ctx.settings.polls.worker_stale_after_ms
    workers = await tx.workers.list(run.namespace, run.task_queue)
    present: list[WorkerRecord] = []
    absent: list[WorkerRecord] = []
    for each in workers:
        active = status_now(each, tx.now_ms, stale_after_ms) is WorkerStatus.ACTIVE
        (present if active else absent).append(each)
    return contracts.of_type(present, run.workflow_type, absent)


_UNKNOWN = {"signal": Reason.UNKNOWN_SIGNAL, "update": Reason.UNKNOWN_UPDATE}
_INVALID_ARGUMENTS = {
    "signal": Reason.INVALID_SIGNAL_ARGUMENTS,
    "query": Reason.INVALID_QUERY_ARGUMENTS,
    "update": Reason.INVALID_UPDATE_ARGUMENTS,
}


def check_contract(found: MessageContracts, run: Run, request: IdempotentRequest) -> None:
    """Reject a signal or update that the workers do not declare, or whose arguments do not match the declaration."""
    names = found.names(request.kind)
    if names is not None and request.name not in names:
        listed = ", ".join(sorted(names)) or "none"
        raise NotFound(
            _UNKNOWN[request.kind],
            f"{run.workflow_type!r} has no {request.kind} {request.name!r}. It has: {listed}.",
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            outcome=f"rejected_unknown_{request.kind}",
            **rejected(_UNKNOWN[request.kind]),
        )
    check_arguments(found, run, request)


def check_arguments(found: MessageContracts, run: Run, request: IdempotentRequest) -> None:
    """Reject a message whose arguments do not match the declaration of the workers, if all of them declare it."""
    problem = None if found.names(request.kind) is None else _problem(found, request)
    if problem is not None:
        raise InvalidInput(
            _INVALID_ARGUMENTS[request.kind],
            f"{request.kind} {request.name!r} {problem}.",
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            outcome="rejected_invalid_arguments",
            **rejected(_INVALID_ARGUMENTS[request.kind]),
            errors={"input": [problem]},
            validation_errors={"input": [problem]},
        )


def _problem(found: MessageContracts, request: IdempotentRequest) -> str | None:
    """What is wrong with the arguments. Those in external storage are not fetched for this: the workflow reads them."""
    if reference_of(request.arguments) is not None:
        return None
    try:
        values = payload_codec.decode(request.arguments)
    except PenstockError:
        return "has arguments that cannot be read"
    return found.problem(request.kind, request.name, values)
