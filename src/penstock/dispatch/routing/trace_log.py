"""The trace of a resolution: which layer each value of a dispatch comes from."""

from __future__ import annotations

import logging

from penstock.dispatch.options import DispatchOptions

logger = logging.getLogger("penstock.dispatch")
_NOT_IN_BLOCK = {"retry.initial_interval", "retry.backoff_coefficient", "retry.maximum_interval"}
_WIDTH = 38


def block(activity_name: str, routing_key: str | None, options: DispatchOptions) -> str:
    """One line per value with its source in parentheses."""
    lines = [f"dispatch  {_on_one_line(activity_name)}  routing_key={_on_one_line(str(routing_key))}"]
    for name, value in options.shown_values().items():
        if name not in _NOT_IN_BLOCK:
            cell = f"{name}={value}"
            padded = cell.ljust(_WIDTH) if len(cell) <= _WIDTH - 2 else f"{cell}  "
            lines.append(f"        {padded}({options.provenance.get(name, 'unknown')})")
    return "\n".join(lines)


def _on_one_line(text: str) -> str:
    """Keys come from arguments: escape line breaks, so that none can forge a log line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def emit(
    activity_name: str, routing_key: str | None, options: DispatchOptions, fingerprint: str | None = None
) -> None:
    """Log the block, with every value as structured data. Replays are not traced: they decide nothing."""
    if logger.isEnabledFor(logging.INFO):
        logger.info(
            "%s",
            block(activity_name, routing_key, options),
            extra={"dispatch": structured(activity_name, routing_key, options, fingerprint)},
        )


def structured(
    activity_name: str, routing_key: str | None, options: DispatchOptions, fingerprint: str | None
) -> dict[str, object]:
    """The trace as data: all values, their sources and the configuration's fingerprint."""
    values: dict[str, object] = dict(options.shown_values())
    values["task_queue"] = options.task_queue
    policy = options.retry_policy
    values["retry.backoff_coefficient"] = policy.backoff_coefficient
    values["retry.maximum_attempts"] = policy.maximum_attempts or "unlimited"
    values["retry.non_retryable"] = list(policy.non_retryable_error_types or ())
    return {
        "activity": activity_name,
        "routing_key": routing_key,
        "values": values,
        "sources": dict(options.provenance),
        "fingerprint": fingerprint,
    }
