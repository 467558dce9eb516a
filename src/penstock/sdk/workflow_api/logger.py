"""The logger of workflow code: silent during replay."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from penstock.sdk.workflow_port.port import maybe_current


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Adds the ids of the run to log records, and is silent during replay."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        port = maybe_current()
        if port is None:
            return msg, kwargs
        run = port.info
        extra = dict(kwargs.get("extra") or {})
        extra |= {"workflow_id": run.workflow_id, "run_id": run.run_id, "workflow_type": run.workflow_type}
        kwargs["extra"] = extra
        return f"{msg} (workflow {run.workflow_id}, run {run.run_id})", kwargs

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name that logging has
        port = maybe_current()
        if port is not None and port.is_silent:
            return False
        return super().isEnabledFor(level)


logger = _Logger(logging.getLogger("penstock.workflow"), {})


def _is_first_execution(_: logging.LogRecord) -> bool:
    """Suppress dispatch traces of code that resolves options itself during replay."""
    port = maybe_current()
    return port is None or not port.is_silent


logging.getLogger("penstock.dispatch").addFilter(_is_first_execution)
