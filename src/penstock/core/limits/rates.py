"""Rate limits by GCRA, exact over every interval.

Theory of operation
-------------------
The generic cell rate algorithm (ITU-T I.371; "leaky bucket as a meter") needs one number per limit: the *theoretical
arrival time* (TAT), here `paid_until_ns`. Each dispatch advances the TAT by one emission interval (1 / rate). A
dispatch is allowed while the TAT is at most burst - 1 intervals ahead of now.

Why GCRA and not a token bucket with a refill timer:

- one integer per limit, so it is stored in the row it limits and updated in the transaction that grants;
- no background refill, so a restart or another server cannot mint a fresh burst;
- exact in integers: nanoseconds, with the interval rounded up so that the rate is never exceeded.

Invariant `budget-never-overspent`: in any interval of t seconds at most burst + rate * t dispatches.

Three deviations from the textbook, all deliberate:

- a TAT that is more than `CLOCK_SKEW_NS` beyond one burst plus one interval ahead of now is capped at that
  (`_capped_tat`): after a rate was raised or the clock stepped backwards, a limit recovers within that time instead of
  staying closed for the length of the step. A smaller excess is believed: servers read the database's clock over
  connections of different speed, and one whose clock is a little behind must not forgive what another has granted;
- a rate of zero is closed, not unlimited;
- a dispatch that never reached its worker is refunded (`returned`): the part of its interval that still lies ahead of
  now, and no more, because a later dispatch may have used the rest.

Rejected: sliding-window counters (two numbers, approximate at the edges) and fixed windows (twice the limit at the
turn). Windows are used only for limits that the contract defines per calendar minute (`windows.py`).
"""

from __future__ import annotations

from msgspec import Struct

NANO = 1_000_000_000
NANO_PER_MS = 1_000_000
MICRO = 1_000_000
BURST_DEFAULT_MS = 1_000
RATE_MAX_MICRO = 1_000_000 * MICRO
BURST_MAX_MS = 3_600_000
CLOCK_SKEW_NS = NANO // 4
"""Clocks of servers usually differ by less; a larger difference is a step of the clock, or another rate."""


class Rate(Struct, frozen=True):
    """A rate in dispatches per million seconds, with a burst for capacity that was not used. Zero is closed."""

    micro: int
    burst_ms: int = BURST_DEFAULT_MS

    @property
    def is_closed(self) -> bool:
        return self.micro <= 0

    @property
    def interval_ns(self) -> int:
        """The emission interval, rounded up so that the rate is never exceeded."""
        return -(-NANO * MICRO // self.micro)

    @property
    def burst(self) -> int:
        """How many dispatches may go at once after an idle period: at least one."""
        return max(1, -(-self.micro * self.burst_ms // (MICRO * 1_000)))

    def scaled(self, weight_milli: int) -> Rate:
        """The rate of a key of this weight, where this is the rate of weight 1."""
        scaled = self.micro * weight_milli // 1_000
        return Rate(max(1, scaled) if self.micro else 0, self.burst_ms)


class Payment(Struct, frozen=True):
    """What one dispatch advanced the TAT by, to be refunded if its task is never delivered."""

    interval_ns: int
    """The emission interval at the time of the dispatch."""
    at_ms: int
    earlier: int = 0
    """The number of dispatches charged to the same limit before this one, in the same grant."""


def _capped_tat(rate: Rate, paid_until_ns: int, now_ns: int) -> int:
    """The TAT; one burst plus one interval ahead of now if it is further ahead than clocks differ.

    The cap bounds how long a new rate or a clock step backwards can keep the limit closed. It must not be lower: a
    rate that is switched back and forth would forgive part of the debt at every switch.
    """
    burst_ns = max(rate.burst * rate.interval_ns, rate.burst_ms * NANO_PER_MS + rate.interval_ns)
    capped_ns = now_ns + burst_ns
    return capped_ns if paid_until_ns > capped_ns + CLOCK_SKEW_NS else paid_until_ns


def available(rate: Rate, paid_until_ns: int, now_ms: int) -> int:
    """How many dispatches are allowed now."""
    if rate.is_closed:
        return 0
    now_ns = now_ms * NANO_PER_MS
    tat_ns = _capped_tat(rate, paid_until_ns, now_ns)
    return max(0, rate.burst + min(0, (now_ns - tat_ns) // rate.interval_ns))


def paid(rate: Rate, paid_until_ns: int, now_ms: int, count: int) -> int:
    """The TAT after `count` more dispatches; with none, the capped TAT."""
    if rate.is_closed:
        return paid_until_ns
    now_ns = now_ms * NANO_PER_MS
    tat_ns = _capped_tat(rate, paid_until_ns, now_ns)
    return max(tat_ns, now_ns) + count * rate.interval_ns if count else tat_ns


def returned(rate: Rate, paid_until_ns: int, now_ms: int, payment: Payment) -> int:
    """The TAT after the refund of a dispatch that was never delivered.

    Its interval began no earlier than its grant, behind the dispatches of the same grant before it. The part before
    now is not refunded: a later dispatch may have used that time. Payments of one grant are refunded from the last to
    the first, so that the intervals before each are still in place.
    """
    now_ns = now_ms * NANO_PER_MS
    tat_ns = paid_until_ns if rate.is_closed else _capped_tat(rate, paid_until_ns, now_ns)
    if rate.is_closed or tat_ns <= now_ns:
        return paid_until_ns
    interval_ns = min(rate.interval_ns, payment.interval_ns)
    ends_ns = payment.at_ms * NANO_PER_MS + (payment.earlier + 1) * interval_ns
    left_ns = max(0, min(interval_ns, ends_ns - now_ns))
    return max(now_ns, tat_ns - left_ns)


def open_at_ms(rate: Rate, paid_until_ns: int, now_ms: int) -> int | None:
    """When the next dispatch is allowed; None: not before the rate is changed."""
    if rate.is_closed:
        return None
    tat_ns = _capped_tat(rate, paid_until_ns, now_ms * NANO_PER_MS)
    opens_ns = tat_ns - (rate.burst - 1) * rate.interval_ns
    return max(now_ms, -(-opens_ns // NANO_PER_MS))
