"""The system's clock and random numbers, as implementations of the ports."""

from __future__ import annotations

import os
import secrets
import time


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemEntropy:
    """Ids that sort by time, also within one millisecond of a process; unguessable tokens."""

    def __init__(self) -> None:
        self._last_ms = 0
        self._count = 0

    def new_id(self) -> str:
        now_ms = max(time.time_ns() // 1_000_000, self._last_ms)
        self._count = self._count + 1 if now_ms == self._last_ms else 0
        self._last_ms = now_ms
        return f"{now_ms:012x}{self._count & 0xFFFF:04x}{os.urandom(6).hex()}"

    def token(self) -> str:
        return secrets.token_urlsafe(16)
