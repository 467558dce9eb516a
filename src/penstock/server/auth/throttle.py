"""Throttles failed authentication per client address.

Only failures are counted and rejected: a valid credential passes regardless of failures from the same address.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

_MINUTE_MS: Final = 60_000


class FailureThrottle:
    """A token bucket of failures per address, in a table of bounded size.

    Stored as one number per address: the time at which its bucket is full again. When the table is full, the
    address that failed longest ago is evicted.
    """

    def __init__(self, *, failures_per_minute: int = 10, addresses_max: int = 10_000) -> None:
        self._interval_ms = _MINUTE_MS // failures_per_minute
        self._burst_ms = self._interval_ms * failures_per_minute
        self._addresses_max = addresses_max
        self._full_again_at_ms: OrderedDict[str, int] = OrderedDict()

    def record_failure(self, address: str, now_ms: int) -> int:
        """Count a failure; return the milliseconds to wait if the address failed too often, else 0."""
        key = _network(address)
        debt_ms = max(self._full_again_at_ms.pop(key, 0) - now_ms, 0)
        # After a clock step backwards an address waits for one full bucket at most.
        debt_ms = min(debt_ms, self._burst_ms)
        wait_ms = max(debt_ms + self._interval_ms - self._burst_ms, 0)
        self._full_again_at_ms[key] = now_ms + debt_ms + (0 if wait_ms else self._interval_ms)
        if len(self._full_again_at_ms) > self._addresses_max:
            self._full_again_at_ms.popitem(last=False)
        return wait_ms

    def __len__(self) -> int:
        return len(self._full_again_at_ms)


def _network(address: str) -> str:
    """The address, or the /64 network of an IPv6 address, which usually belongs to one host."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
    return str(parsed)
