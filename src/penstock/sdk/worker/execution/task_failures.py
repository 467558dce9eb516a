"""The failure that a worker reports for a workflow task that it could not decide."""

from __future__ import annotations

from typing import Any

from penstock.sdk.errors.tracebacks import traceback_text
from penstock.sdk.failures import ExternalPayloadError, ServerRefused
from penstock.sdk.replay.errors import NonDeterminismError

CHARS_MAX = 20_000


def task_failure(error: BaseException) -> dict[str, Any]:
    """Return message, type and stack of an error. Non-determinism has the type that servers recognise."""
    return {
        "message": _cut(str(error) or type(error).__name__),
        "type": _type(error),
        "stack_trace": _cut(traceback_text(error)),
    }


def _type(error: BaseException) -> str:
    if isinstance(error, NonDeterminismError):
        return "NonDeterminismError"
    return (
        str(error.reason) if isinstance(error, ServerRefused | ExternalPayloadError) else type(error).__name__
    )


def _cut(text: str) -> str:
    return text if len(text) <= CHARS_MAX else text[: CHARS_MAX - 1] + "…"
