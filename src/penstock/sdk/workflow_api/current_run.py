"""The current run: its information, time, randomness, memo and search attributes, patches, continue-as-new."""

from __future__ import annotations

import random as random_module
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from penstock.sdk.call_targets import UNSET, CallTarget, workflow_target
from penstock.sdk.converters import DEFAULT as PLAIN
from penstock.sdk.priority import Priority, priority_fields
from penstock.sdk.replay.commands import CommandKind
from penstock.sdk.replay.continue_as_new import ContinueAsNewError
from penstock.sdk.replay.errors import ReadOnlyError
from penstock.sdk.replay.events import DEPRECATED, PATCHED
from penstock.sdk.replay.info import Info
from penstock.sdk.replay.runtime import current, maybe_current
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.workflow_api.options import attribute_value, memo_and_attributes, whole_seconds


def in_workflow() -> bool:
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
    return round(current().now.timestamp() * 1_000_000) * 1_000


def random() -> random_module.Random:
    """Return a random number generator that gives the same numbers in every replay."""
    runtime = current()
    runtime.check_writable("workflow.random()")
    return runtime.random


def uuid4() -> uuid.UUID:
    return current().uuid4()


def memo() -> Mapping[str, Any]:
    return dict(current().memo)


def memo_value(key: str, default: Any = UNSET) -> Any:
    """Return one value of the memo.

    Args:
        key: the key in the memo.
        default: returned if the key is missing. Without it, `KeyError` is raised.
    """
    found = current().memo.get(key, default)
    if found is UNSET:
        raise KeyError(f"the memo has no {key!r}")
    return found


def upsert_memo(updates: Mapping[str, Any]) -> None:
    """Add to the memo or replace values.

    Args:
        updates: new values by key; None deletes a key.
    """
    runtime = current()
    entries = dict(updates)
    runtime.issue(CommandKind.MEMO, {"entries": PLAIN.encode(entries, "memo")})
    _merge(runtime.memo, entries)


def upsert_search_attributes(attributes: Mapping[str, Any]) -> None:
    """Change the search attributes of this run.

    Args:
        attributes: new values by name; None deletes an attribute.
    """
    runtime = current()
    values = {name: attribute_value(value) for name, value in attributes.items()}
    runtime.issue(CommandKind.SEARCH_ATTRIBUTES, {"attributes": values})
    _merge(runtime.search_attributes, values)


def _merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    into.update(changes)
    for name in [name for name, value in into.items() if value is None]:
        del into[name]


def patched(change_id: str) -> bool:
    """Whether this run takes the patched path. Runs that started before the patch keep the old one.

    Args:
        change_id: name of the change.
    """
    return current().patched(change_id, PATCHED)


def deprecate_patch(change_id: str) -> None:
    """Mark a patch as deprecated: no run takes the old path any more.

    Remove the call once all runs that made it are closed.

    Args:
        change_id: name of the change.
    """
    current().patched(change_id, DEPRECATED)


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
    search_attributes: Mapping[str, Any] | None = None,
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
    """
    runtime = current()
    if runtime.is_read_only is not None:
        raise ReadOnlyError(f"{runtime.is_read_only} must not end the run.")
    if task_timeout is not None:
        raise TypeError(
            "continue_as_new() does not support task_timeout; set the worker's workflow task timeout instead"
        )
    if retry_policy is not None and runtime.info.parent is None:
        raise TypeError(
            "continue_as_new() supports retry_policy only in child workflows: a run that a client started is not"
            " retried"
        )
    if workflow is None:
        called = CallTarget("workflow", runtime.info.workflow_type)
    else:
        called = workflow_target(workflow)
    arguments = called.arguments(arg, args)
    body: dict[str, Any] = {
        "arguments": runtime.converter.encode_arguments(arguments, f'workflow "{called.name}"'),
        "queue": task_queue or runtime.info.task_queue,
        "workflow_type": called.name,
        **whole_seconds(run_timeout_seconds=run_timeout),
        **priority_fields(priority),
        **memo_and_attributes(memo, search_attributes),
    }
    if retry_policy is not None:
        body["retry_policy"] = retry_policy.on_the_wire()
    raise ContinueAsNewError(body)
