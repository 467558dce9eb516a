"""One order to a client process, and what it says when it is done: plain values that travel as JSON."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Kind(StrEnum):
    """What a client process drives."""

    WORKFLOWS = "workflows"
    """Start, two workflow tasks and one activity task each; in flight until the run is closed."""
    ACTIVITIES = "activities"
    """Standalone activities: start, poll, complete; in flight until the completion is acknowledged."""
    FILL = "fill"
    """Starts only: the tasks wait."""
    DRAIN = "drain"
    """Polls and completions only, until nothing waits; `count` does not matter."""
    REQUESTS = "requests"
    """One request over and over."""


class Order(Struct, frozen=True):
    """What to drive, how much of it, and whose CPU time to count meanwhile."""

    kind: Kind
    url: str
    count: int
    in_flight: int = 100
    batch: int = 0
    """0: one task per request. Else: as many as there are, up to this, in one request."""
    queue: str = "bench"
    name: str = "bench"
    """Prefix of ids, so that two orders to one server do not meet."""
    pids: dict[str, int] = {}
    request: str = ""
    """For `REQUESTS`: a key of `driving.REQUESTS`."""


class Outcome(Struct, frozen=True):
    """What one order took. `count` is what was really done, counted by the client."""

    count: int
    seconds: float
    requests: int
    cpu_seconds: dict[str, float]
    """By process: `client`, and what the order named."""
    latencies_ms: tuple[float, float] | None
    """Median and 99th percentile from the start's sending to the last acknowledgement."""
    load: float
