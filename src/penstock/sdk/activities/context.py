"""The context of a running activity, available through `penstock.activity`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from penstock.sdk.activities.info import ActivityInfo
from penstock.sdk.activities.one_shot_event import OneShotEvent
from penstock.sdk.activities.thread_interrupt import ThreadInterrupt
from penstock.sdk.converters import DataConverter


@dataclass(frozen=True)
class ActivityCancellationDetails:
    """Why an attempt was asked to stop."""

    not_found: bool = False
    """The lease of the attempt was lost: another attempt may run already, and the result is dropped."""
    cancel_requested: bool = False
    """The workflow, or a client, cancelled the activity."""
    timed_out: bool = False
    """A timeout of the attempt expired."""
    worker_shutdown: bool = False
    """The worker shuts down, and its grace period is over."""


@dataclass(slots=True)
class ActivityContext:
    info: ActivityInfo
    heartbeat: Callable[[tuple[Any, ...]], None]
    cancelled: OneShotEvent = field(default_factory=OneShotEvent)
    worker_shutdown: OneShotEvent = field(default_factory=OneShotEvent)
    interruption: ThreadInterrupt | None = None
    """None for activities that run in the event loop."""
    cost: int | None = None
    shown_info: Callable[[], ActivityInfo] | None = None
    """Returns the info that interceptors show to the code; None shows `info`."""
    paused: OneShotEvent = field(default_factory=OneShotEvent)
    converter: DataConverter | None = None
    """The converter of the worker."""
    client: Any = None
    """The `Client` of the worker; None in processes and on other engines."""
    stopped: ActivityCancellationDetails | None = None
    """Why the attempt was asked to stop; None if it was not."""
    no_async_completion: str | None = None
    """Why the activity cannot be completed from outside its worker; None if it can."""

    def shield(self) -> AbstractContextManager[None]:
        return nullcontext() if self.interruption is None else self.interruption.shield()


CURRENT: ContextVar[ActivityContext | None] = ContextVar("penstock_activity", default=None)


def current() -> ActivityContext:
    """Return the context of the activity that calls this. Raises `RuntimeError` outside of activities."""
    found = CURRENT.get()
    if found is None:
        raise RuntimeError(
            "Not inside of an activity. A thread started by an activity has its context only if it is started by "
            "contextvars.copy_context().run; a test runs activities with ActivityEnvironment"
        )
    return found
