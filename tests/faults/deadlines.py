"""Waits for an event with a deadline; a timeout names what did not happen."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from tests.support.patience import PATIENCE_S

T = TypeVar("T")
LOOK_AGAIN_S = 0.02


class DidNotHappen(AssertionError):
    """The awaited event did not happen in time."""


@overload
async def until(what: str, look: Callable[[], Awaitable[T | None]], *, within_s: float = ...) -> T: ...
@overload
async def until(what: str, look: Callable[[], T | None], *, within_s: float = ...) -> T: ...
async def until(what: str, look: Callable[[], Any], *, within_s: float = PATIENCE_S) -> Any:
    """Poll until the function returns something true, and return it."""
    ends_at = time.monotonic() + within_s
    while True:
        seen = look()
        found = await seen if inspect.isawaitable(seen) else seen
        if found:
            return found
        if time.monotonic() > ends_at:
            raise DidNotHappen(f"not within {within_s} s: {what}")
        await asyncio.sleep(LOOK_AGAIN_S)
