"""Log lines of a client while no server is reachable."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger("penstock.client")
AGAIN_SECONDS: Final = 10.0
"""Interval of log lines during an outage, however many requests wait."""


def sentence(text: str) -> str:
    """End a text with a full stop, so that another sentence can follow."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


class OutageLog:
    """The outage that all requests of one client share. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._logged_at = 0.0

    def record_failure(self, problem: str, pause_s: float, now: float) -> None:
        """Record that a request found no server and is retried after a pause."""
        if self._since is None:
            self._since = now
        elif now - self._logged_at < AGAIN_SECONDS:
            return
        self._logged_at = now
        lasted = now - self._since
        since = (
            f" (for {lasted:.0f} s now)"
            if lasted >= 1
            else f", then less often; logged every {AGAIN_SECONDS:.0f} s"
        )
        log.warning("%s Trying again in %.1f s%s", sentence(problem), pause_s, since)

    def record_recovery(self, url: str, now: float) -> None:
        """Record a response."""
        if self._since is not None:
            log.info("%s answers again, after %.1f s", url, now - self._since)
            self._since = None
