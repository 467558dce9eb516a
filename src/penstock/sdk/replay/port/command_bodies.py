"""Options of workflow code as the fields of commands."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec

from penstock.sdk.activity import COST_MAX
from penstock.sdk.clients.interceptors import OnLostLease
from penstock.sdk.dispatch_options import ResolvedOptions
from penstock.sdk.id_policies import WorkflowIDReusePolicy
from penstock.sdk.priority import priority_fields
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.workflow_port.handles import ParentClosePolicy
from penstock.sdk.workflow_port.port import Options

_DEFAULT_RETRY = RetryPolicy()


def activity_body(
    name: str, arguments: Mapping[str, str], options: Options, resolved: ResolvedOptions
) -> dict[str, Any]:
    """Return the command for an activity whose options are resolved."""
    body: dict[str, Any] = {
        "activity_type": name,
        "arguments": arguments,
        "retry_policy": (resolved.retry_policy or _DEFAULT_RETRY).on_the_wire(),
        **_timeouts(resolved.clocks),
        **priority_fields(options.get("priority")),
        **_start_options(options),
    }
    fields = {
        "queue": resolved.task_queue,
        "summary": options.get("summary"),
        "routing_key": resolved.routing_key,
        "dispatch": resolved.provenance,
    }
    return body | {name: value for name, value in fields.items() if value is not None}


def child_body(name: str, child_id: str, arguments: Mapping[str, str], options: Options) -> dict[str, Any]:
    """Return the command for a child workflow."""
    retry_policy, delay = options.get("retry_policy"), options.get("start_delay")
    body: dict[str, Any] = {
        "workflow_type": name,
        "workflow_id": child_id,
        "id_reuse_policy": WorkflowIDReusePolicy(
            options.get("id_reuse_policy", WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        ).value,
        "arguments": arguments,
        "parent_close_policy": ParentClosePolicy(
            options.get("parent_close_policy", ParentClosePolicy.TERMINATE)
        ).value,
        **whole_seconds(
            execution_timeout_seconds=options.get("execution_timeout"),
            run_timeout_seconds=options.get("run_timeout"),
        ),
        **priority_fields(options.get("priority")),
        **memo_and_attributes(options.get("memo"), options.get("search_attributes")),
    }
    fields = {
        "queue": options.get("task_queue"),
        "retry_policy": None if retry_policy is None else retry_policy.on_the_wire(),
        "business_key": options.get("business_key"),
        "build_id": options.get("build_id"),
        "start_delay_ms": None if delay is None else _delay_ms(delay),
    }
    return body | {name: value for name, value in fields.items() if value is not None}


def whole_seconds(**given: timedelta | None) -> dict[str, int]:
    return {name: _ceil(name, value) for name, value in given.items() if value is not None}


def memo_and_attributes(
    memo: Mapping[str, Any] | None, search_attributes: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Return memo and search attributes of a run to start. The server stores both as plain JSON."""
    fields: dict[str, dict[str, Any]] = {}
    if memo is not None:
        fields["memo"] = msgspec.to_builtins(dict(memo), str_keys=True)
    if search_attributes is not None:
        fields["search_attributes"] = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in search_attributes.items()
        }
    return fields


def _ceil(name: str, value: timedelta) -> int:
    if value <= timedelta(0):
        raise ValueError(f"{name.removesuffix('_seconds')} must be positive, not {value}")
    return -(-value // timedelta(seconds=1))


def _timeouts(given: Mapping[str, Any]) -> dict[str, int]:
    fields: dict[str, int] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, timedelta) or value <= timedelta(0):
            raise ValueError(f"{name} must be a positive timedelta, not {value!r}")
        milliseconds = max(1, round(value / timedelta(milliseconds=1)))
        fields[name] = -(-milliseconds // 1000)
        fields[f"{name}_ms"] = milliseconds
    return fields


def _start_options(options: Options) -> dict[str, Any]:
    """Return the options of a call beyond its dispatch, as fields of a standalone start."""
    fields: dict[str, Any] = {}
    if options.get("cost_estimate") is not None:
        fields["cost_estimate"] = _cost(options["cost_estimate"])
    if options.get("start_delay") is not None:
        fields["start_delay_ms"] = _delay_ms(options["start_delay"])
    if options.get("good_until") is not None:
        fields |= _good_until(options["good_until"])
    if options.get("on_lost_lease") is not None:
        fields["on_lost_lease"] = _one_of("on_lost_lease", options["on_lost_lease"], get_args(OnLostLease))
    if options.get("build_id") is not None:
        fields["build_id"] = options["build_id"]
    return fields


def _cost(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= COST_MAX:
        raise ValueError(f"cost_estimate must be a whole number from 0 to {COST_MAX}, not {given!r}")
    return given


def _good_until(given: Any) -> dict[str, Any]:
    if isinstance(given, timedelta) and given > timedelta(0):
        return {"good_for_ms": -(-given // timedelta(milliseconds=1))}
    if isinstance(given, datetime) and given.tzinfo is not None:
        return {"good_until": given.astimezone(UTC).isoformat()}
    raise ValueError(f"good_until must be a positive timedelta or a datetime with a time zone, not {given!r}")


def _one_of(name: str, given: Any, known: tuple[str, ...]) -> Any:
    if given not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {given!r}")
    return given


def _delay_ms(given: Any) -> int:
    if not isinstance(given, timedelta) or given < timedelta(0):
        raise ValueError(f"start_delay must be a timedelta that is not negative, not {given!r}")
    return -(-given // timedelta(milliseconds=1))
