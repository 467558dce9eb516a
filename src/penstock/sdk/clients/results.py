"""Results of workflows, activities and updates: decoded, or raised as an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.sdk.converters import DataConverter
from penstock.sdk.failures import (
    ActivityFailureError,
    ServerRefused,
    UpdateFailedError,
    WorkflowFailureError,
    error_from,
)


def workflow_result(response: Mapping[str, Any], hint: Any, converter: DataConverter) -> Any:
    """Return the result of a closed workflow, or raise `WorkflowFailureError`."""
    if response["status"] != "completed":
        raise WorkflowFailureError(
            _cause(response, converter), workflow_id=response["workflow_id"], run_id=response["run_id"]
        )
    return converter.decode(
        response["result_envelope"], hint, what=f'the result of workflow "{response["workflow_id"]}"'
    )


def activity_result(response: Mapping[str, Any], hint: Any, converter: DataConverter) -> Any:
    """Return the result of a standalone activity that has ended, or raise `ActivityFailureError`."""
    if response["status"] != "completed":
        raise ActivityFailureError(_cause(response, converter), activity_id=response["activity_id"])
    return converter.decode(
        response["result_envelope"], hint, what=f'the result of activity "{response["activity_id"]}"'
    )


def update_error(refused: ServerRefused, converter: DataConverter) -> ServerRefused:
    """Return the error of a refused update, with the cause decoded by this client's converter."""
    failure = refused.details.get("failure")
    if isinstance(refused, UpdateFailedError) and isinstance(failure, Mapping) and failure:
        refused.__cause__ = converter.failure_converter.from_failure(error_from(failure, converter))
    return refused


def _cause(response: Mapping[str, Any], converter: DataConverter) -> BaseException:
    """Return the cause from the closing event, or one made from the status if there is no event."""
    failure = response.get("failure") or {"message": f"It is {response['status']}"}
    received = error_from(failure, converter, event_type=failure.get("event_type"))
    return converter.failure_converter.from_failure(received)
