"""Rates, exact over every interval: at most burst + rate * t dispatches in any time t.

One moment says all: until when the dispatches so far are paid for. It is kept in whole nanoseconds beside the
row that it limits, so no restart and no second server gives a fresh burst.
"""

from __future__ import annotations

from msgspec import Struct

NANO = 1_000_000_000
NANO_PER_MS = 1_000_000
MICRO = 1_000_000
BURST_DEFAULT_MS = 1_000
RATE_MAX_MICRO = 1_000_000 * MICRO
BURST_MAX_MS = 3_600_000


class Rate(Struct, frozen=True):
    """So many dispatches per million seconds; what was not used waits for up to the burst. Zero closes."""

    micro: int
    burst_ms: int = BURST_DEFAULT_MS

    @property
    def is_closed(self) -> bool:
        return self.micro <= 0

    @property
    def interval_ns(self) -> int:
        """The time that one dispatch pays for, rounded up, so that the rate is never exceeded."""
        return -(-NANO * MICRO // self.micro)

    @property
    def burst(self) -> int:
        """How many may go at once after a rest: at least one."""
        return max(1, -(-self.micro * self.burst_ms // (MICRO * 1_000)))

    def scaled(self, weight_milli: int) -> Rate:
        """The rate of a key of this weight, where this is the rate of weight 1."""
        scaled = self.micro * weight_milli // 1_000
        return Rate(max(1, scaled) if self.micro else 0, self.burst_ms)


class Payment(Struct, frozen=True):
    """What one dispatch has paid, to be returned if its task was never delivered."""

    interval_ns: int
    """The interval of the rate at which it was paid."""
    at_ms: int
    place: int = 0
    """How many dispatches before it the same poll was granted in the same moment, of the same payer."""


def _owed_until(rate: Rate, paid_until_ns: int, now_ns: int) -> int:
    """No debt is larger than a burst and one more: so a new rate, or a clock set back, never closes for long.

    No smaller, either: a rate that goes to and fro would forgive at each turn what it lent at the last.
    """
    burst_ns = max(rate.burst * rate.interval_ns, rate.burst_ms * NANO_PER_MS + rate.interval_ns)
    return min(paid_until_ns, now_ns + burst_ns)


def available(rate: Rate, paid_until_ns: int, now_ms: int) -> int:
    """How many may go now."""
    if rate.is_closed:
        return 0
    now_ns = now_ms * NANO_PER_MS
    owed = _owed_until(rate, paid_until_ns, now_ns)
    return max(0, rate.burst + min(0, (now_ns - owed) // rate.interval_ns))


def paid(rate: Rate, paid_until_ns: int, now_ms: int, count: int) -> int:
    """Until when it is paid after `count` more; after none, how much of the debt still stands."""
    if rate.is_closed:
        return paid_until_ns
    now_ns = now_ms * NANO_PER_MS
    owed = _owed_until(rate, paid_until_ns, now_ns)
    return max(owed, now_ns) + count * rate.interval_ns if count else owed


def returned(rate: Rate, paid_until_ns: int, now_ms: int, payment: Payment) -> int:
    """Until when it is paid once a dispatch that was never delivered is taken back.

    Its slot began at the earliest with its grant, behind those that were granted to the same poll before it. What
    lies before now is not returned: a dispatch that followed it may have used that time. Payments of one poll are
    returned from the last to the first, so that the slots before each are still in place.
    """
    now_ns = now_ms * NANO_PER_MS
    owed = paid_until_ns if rate.is_closed else _owed_until(rate, paid_until_ns, now_ns)
    if rate.is_closed or owed <= now_ns:
        return paid_until_ns
    interval_ns = min(rate.interval_ns, payment.interval_ns)
    ends_ns = payment.at_ms * NANO_PER_MS + (payment.place + 1) * interval_ns
    left_ns = max(0, min(interval_ns, ends_ns - now_ns))
    return max(now_ns, owed - left_ns)


def open_at_ms(rate: Rate, paid_until_ns: int, now_ms: int) -> int | None:
    """When the next one may go; None: not before the rate is changed."""
    if rate.is_closed:
        return None
    owed = _owed_until(rate, paid_until_ns, now_ms * NANO_PER_MS)
    opens_ns = owed - (rate.burst - 1) * rate.interval_ns
    return max(now_ms, -(-opens_ns // NANO_PER_MS))
