"""Which run of a workflow a request is about: the newest, the newest of a chain, or the one that its path names."""

from __future__ import annotations

from penstock.core.model import RunId
from penstock.engine.runs.address import Address
from penstock.server.operation import OperationCall, text_path
from penstock.wire.fields import WORKFLOW_ID_MAX
from penstock.wire.request_parser import field_error

CHAIN = "first_execution_run_id"


def address(call: OperationCall) -> Address:
    """The address in the path, with the chain that the query names, if any."""
    named = RunId(text_path(call, "run_id")) if "run_id" in call.path else None
    chain = getattr(call.query, CHAIN, None)
    if named is not None and chain is not None:
        raise field_error(CHAIN, "leave it out: the path names a run already")
    return Address(call.namespace, workflow_id(call), named, chain=None if chain is None else RunId(chain))


def workflow_id(call: OperationCall) -> str:
    return text_path(call, "workflow_id", WORKFLOW_ID_MAX)


def scope(meant: Address) -> str:
    """The contract's word for what was addressed."""
    return "instance" if meant.run_id is None else "run"
