"""The current run: its information, time, memo and search attributes, patches, continue-as-new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from penstock.sdk.call_targets import UNSET, CallTarget, checked_name, workflow_target
from penstock.sdk.converters import DataConverter
from penstock.sdk.converters.from_plain import from_plain
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.search_attributes import GivenAttributes, GivenUpdates, attributes_by_name
from penstock.sdk.workflow_api.options import attribute_value
from penstock.sdk.workflow_port.continue_as_new import NextRun
from penstock.sdk.workflow_port.info import Info
from penstock.sdk.workflow_port.port import current, maybe_current
from penstock.sdk.workflows.definitions import WorkflowDefinition


def in_workflow() -> bool:
    """Whether the calling code runs in a workflow."""
    return maybe_current() is not None


def info() -> Info:
    """Return information about this run."""
    return current().info


def instance() -> Any:
    """Return the instance of the workflow class."""
    return current().instance


def now() -> datetime:
    """Return the time of this run: that of the last event."""
    return current().now


def time() -> float:
    """Return the time of this run in seconds since the epoch."""
    return current().now.timestamp()


def time_ns() -> int:
    """Return the time of this run in nanoseconds since the epoch."""
    return round(current().now.timestamp() * 1_000_000) * 1_000


def is_failure_exception(error: BaseException) -> bool:
    """Whether an error that leaves the code would fail the run. Any other is a bug: it fails the workflow task.

    Args:
        error: the error.
    """
    definition = WorkflowDefinition.of(type(current().instance))
    return definition.failure_in(error) is not None


def cancellation_reason() -> str | None:
    """Return the reason with which cancellation of this run was requested; None if it was not."""
    return current().cancellation_reason


def payload_converter() -> DataConverter:
    """Return the data converter of the worker, with `from_payload` for raw values and `to_payload`."""
    return current().converter


def set_current_details(description: str) -> None:
    """Describe what the run does now. `WorkflowHandle.current_details` returns it.

    Args:
        description: text, in Markdown if it is shown to people.
    """
    if not isinstance(description, str):
        raise TypeError(f"The details of a run are text, not {type(description).__name__}")
    port = current()
    port.check_writable("workflow.set_current_details()")
    port.current_details = description


def get_current_details() -> str:
    """Return what `set_current_details` was given last; empty text at first."""
    return current().current_details


def memo() -> Mapping[str, Any]:
    """Return a copy of the memo."""
    return dict(current().memo())


def memo_value(key: str, default: Any = UNSET, *, type_hint: type[Any] | None = None) -> Any:
    """Return one value of the memo.

    Args:
        key: the key in the memo.
        default: returned if the key is missing. Without it, `KeyError` is raised.
        type_hint: type of the value, such as a dataclass; None returns plain data.
    """
    found = current().memo().get(key, UNSET)
    if found is not UNSET:
        return found if type_hint is None else from_plain(found, type_hint)
    if default is UNSET:
        raise KeyError(f"the memo has no {key!r}")
    return default


def upsert_memo(updates: Mapping[str, Any]) -> None:
    """Add to the memo or replace values.

    Args:
        updates: new values by key; None deletes a key.
    """
    current().upsert_memo(dict(updates))


def upsert_search_attributes(attributes: GivenUpdates) -> None:
    """Change the search attributes of this run.

    Args:
        attributes: new values by name, None deletes an attribute; or updates, as `key.value_set(value)`.
    """
    values = {name: attribute_value(value) for name, value in attributes_by_name(attributes).items()}
    current().upsert_search_attributes(values)


def patched(change_id: str) -> bool:
    """Whether this run takes the patched path. Runs that started before the patch keep the old one.

    Args:
        change_id: name of the change.
    """
    return current().patched(change_id, is_deprecated=False)


def deprecate_patch(change_id: str) -> None:
    """Mark a patch as deprecated: no run takes the old path any more.

    Remove the call once all runs that made it are closed.

    Args:
        change_id: name of the change.
    """
    current().patched(change_id, is_deprecated=True)


def continue_as_new(
    arg: Any = UNSET,
    *,
    args: Sequence[Any] = (),
    workflow: Any = None,
    task_queue: str | None = None,
    priority: Priority | None = None,
    run_timeout: timedelta | None = None,
    retry_policy: RetryPolicy | None = None,
    memo: Mapping[str, Any] | None = None,
    search_attributes: GivenAttributes | None = None,
    task_timeout: None = None,
) -> NoReturn:
    """Close this run and continue as a new one with an empty history. No code after this call runs.

    Options that are left out are inherited from this run.

    Args:
        arg: the only argument of the new run.
        args: the arguments, if there are several.
        workflow: another workflow to continue as: its class, its run method or its name.
        task_queue: the task queue of the new run.
        priority: priority level, fairness key and weight of the new run; fields that are None are inherited.
        run_timeout: timeout of the new run. The execution timeout covers the whole chain and stays.
        retry_policy: for a child workflow, how often the new run is retried. Other runs are not retried.
        memo: replaces the memo of this run.
        search_attributes: replace the search attributes of this run.
        task_timeout: not supported; the time for a workflow task is an option of the worker.

    Raises:
        TypeError: an option that this run cannot have. The workflow task fails with it and is retried, as with any
            bug in workflow code.
        ValueError: a name that the server would refuse. The code can catch it.
    """
    port = current()
    if task_timeout is not None:
        raise TypeError(
            "continue_as_new() does not support task_timeout; set the worker's workflow task timeout instead"
        )
    if retry_policy is not None and port.info.parent is None:
        raise TypeError(
            "continue_as_new() supports retry_policy only in child workflows: a run that a client started is not"
            " retried"
        )
    if workflow is None:
        called = CallTarget("workflow", port.info.workflow_type)
    else:
        called = workflow_target(workflow)
    port.continue_as_new(
        NextRun(
            called,
            called.arguments(arg, args),
            checked_name("task_queue", task_queue) if task_queue else None,
            priority,
            run_timeout,
            retry_policy,
            memo,
            attributes_by_name(search_attributes),
        )
    )
