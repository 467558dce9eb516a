"""The run that a request addresses: the current one, the current one of a chain, or the one in its path."""

from __future__ import annotations

from penstock.core.model import RunId
from penstock.engine.runs.address import Address
from penstock.server.operation import OperationCall, text_path
from penstock.wire.fields import WORKFLOW_ID_MAX
from penstock.wire.request_parser import field_error

CHAIN = "first_execution_run_id"


def address(call: OperationCall) -> Address:
    """The run that the path and the query parameter `first_execution_run_id` address."""
    run_id = RunId(text_path(call, "run_id")) if "run_id" in call.path else None
    chain = getattr(call.query, CHAIN, None)
    if run_id is not None and chain is not None:
        raise field_error(CHAIN, "must be left out if the path names a run")
    return Address(call.namespace, workflow_id(call), run_id, chain=None if chain is None else RunId(chain))


def workflow_id(call: OperationCall) -> str:
    return text_path(call, "workflow_id", WORKFLOW_ID_MAX)


def scope(target: Address) -> str:
    """The `target_scope` of the contract: `instance` or `run`."""
    return "instance" if target.run_id is None else "run"
