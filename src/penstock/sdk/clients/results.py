"""Results of workflows, activities and updates: decoded, or raised as an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.sdk.converters import DataConverter
from penstock.sdk.failures import (
    ActivityFailureError,
    FailureError,
    ServerRefused,
    UpdateFailedError,
    WorkflowFailureError,
    error_from,
)


def workflow_result(answer: Mapping[str, Any], hint: Any, converter: DataConverter) -> Any:
    """Return the result of a closed workflow, or raise `WorkflowFailureError`."""
    if answer["status"] != "completed":
        raise WorkflowFailureError(
            _cause(answer, converter), workflow_id=answer["workflow_id"], run_id=answer["run_id"]
        )
    return converter.decode(
        answer["result_envelope"], hint, what=f'the result of workflow "{answer["workflow_id"]}"'
    )


def activity_result(answer: Mapping[str, Any], hint: Any, converter: DataConverter) -> Any:
    """Return the result of a standalone activity that has ended, or raise `ActivityFailureError`."""
    if answer["status"] != "completed":
        raise ActivityFailureError(_cause(answer, converter), activity_id=answer["activity_id"])
    return converter.decode(
        answer["result_envelope"], hint, what=f'the result of activity "{answer["activity_id"]}"'
    )


def update_error(refused: ServerRefused, converter: DataConverter) -> ServerRefused:
    """Return the error of a refused update, with the cause decoded by this client's converter."""
    failure = refused.details.get("failure")
    if isinstance(refused, UpdateFailedError) and isinstance(failure, Mapping) and failure:
        refused.__cause__ = error_from(failure, converter)
    return refused


def _cause(answer: Mapping[str, Any], converter: DataConverter) -> FailureError:
    """Return the cause from the closing event, or one made from the status if there is no event."""
    failure = answer.get("failure") or {"message": f"It is {answer['status']}"}
    return error_from(failure, converter, event_type=failure.get("event_type"))
