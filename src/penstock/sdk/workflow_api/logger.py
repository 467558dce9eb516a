"""The logger of workflow code: silent during replay."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from penstock.sdk.replay.runtime import maybe_current


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Adds the ids of the run to log records, and is silent during replay."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        runtime = maybe_current()
        if runtime is None:
            return msg, kwargs
        run = runtime.info
        extra = dict(kwargs.get("extra") or {})
        extra |= {"workflow_id": run.workflow_id, "run_id": run.run_id, "workflow_type": run.workflow_type}
        kwargs["extra"] = extra
        return f"{msg} (workflow {run.workflow_id}, run {run.run_id})", kwargs

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name that logging has
        runtime = maybe_current()
        if runtime is not None and runtime.is_silent:
            return False
        return super().isEnabledFor(level)


logger = _Logger(logging.getLogger("penstock.workflow"), {})


def _is_first_execution(_: logging.LogRecord) -> bool:
    """Suppress dispatch traces of code that resolves options itself during replay."""
    runtime = maybe_current()
    return runtime is None or not runtime.is_silent


logging.getLogger("penstock.dispatch").addFilter(_is_first_execution)
