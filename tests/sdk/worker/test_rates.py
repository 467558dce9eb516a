"""The activity rate of a worker: the pure token bucket, and waiting for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sdk.worker.error_policy import ErrorPolicy
from penstock.sdk.worker.matching.poller import PollContext, Poller
from penstock.sdk.worker.matching.rate_limiter import RateLimiter
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.matching.token_bucket import NANO, TokenBucket
from penstock.sdk.worker.metrics import NullMetrics

Json = dict[str, Any]

rates = st.one_of(
    st.floats(0.1, 2_000, allow_nan=False), st.sampled_from([1, 5, 9.9, 10, 10.1, 15, 100, 1_000])
)
MS = NANO // 1_000


@given(
    rate=rates,
    polls=st.lists(
        st.tuples(
            st.integers(0, 1_500).map(lambda ms: ms * MS),
            st.integers(1, 40),
            st.integers(0, 40),
            st.booleans(),
        ),
        max_size=40,
    ),
)
def test_in_no_span_of_time_do_more_start_than_the_burst_and_what_the_rate_gives(
    rate: float, polls: list[tuple[int, int, int, bool]]
) -> None:
    """Polls that return immediately, late or never, in any order."""
    bucket, now = TokenBucket(rate), 0
    open_polls: list[int] = []
    started: list[tuple[int, int]] = []
    for after_ns, most, brought, answers_first in polls:
        now += after_ns
        if answers_first and open_polls:
            taken = open_polls.pop(0)
            bucket.settle(taken, min(taken, brought), now)
            started.append((now, min(taken, brought)))
        got = bucket.take(most, now)
        open_polls += [got] if got else []
        assert 0 <= bucket.taken <= bucket.burst
    for first, (since, _) in enumerate(started):
        total = 0
        for at, count in started[first:]:
            total += count
            assert total <= bucket.burst + (at - since) // bucket.interval_ns


@given(rate=rates, most=st.integers(1, 500), now=st.integers(0, 10**15))
def test_a_rested_worker_asks_for_a_tenth_of_a_second_at_most_and_for_one_at_least(
    rate: float, most: int, now: int
) -> None:
    bucket = TokenBucket(rate)
    assert bucket.take(most, now) == min(most, bucket.burst)
    assert max(1, rate / 10) <= bucket.burst < rate / 10 + 1


@given(rate=rates, times=st.integers(1, 200))
def test_polls_that_bring_nothing_cost_nothing(rate: float, times: int) -> None:
    bucket = TokenBucket(rate)
    for _ in range(times):
        taken = bucket.take(7, 0)
        assert taken == min(7, bucket.burst)
        bucket.settle(taken, 0, 0)


@given(rate=rates, rounds=st.integers(1, 50))
def test_the_rate_is_reached_by_whoever_asks_when_a_token_is_there(rate: float, rounds: int) -> None:
    bucket, now, started = TokenBucket(rate), 0, 0
    for _ in range(rounds * bucket.burst):
        while not (taken := bucket.take(1, now)):
            opens = bucket.opens_at_ns()
            assert opens is not None
            assert bucket.take(1, opens - 1) == 0
            now = opens
        bucket.settle(taken, 1, now)
        started += taken
    assert started == rounds * bucket.burst
    assert now == (started - bucket.burst) * bucket.interval_ns


def test_while_every_token_is_with_a_poll_no_moment_brings_another() -> None:
    bucket = TokenBucket(10)
    assert bucket.take(5, 0) == 1
    assert bucket.opens_at_ns() is None
    assert bucket.take(1, 3_600 * NANO) == 0


def test_a_poll_that_waited_long_saved_nothing_up() -> None:
    bucket = TokenBucket(20)
    held = bucket.take(2, 0)
    bucket.settle(held, 2, 60 * NANO)
    assert bucket.take(2, 60 * NANO) == 0
    assert bucket.take(2, 60 * NANO + NANO // 20) == 1


@dataclass
class Clock:
    now_ns: int = 0

    def __call__(self) -> int:
        return self.now_ns


async def test_a_worker_without_a_rate_takes_what_it_asks_for() -> None:
    assert await RateLimiter(None).take(70) == 70


async def test_a_token_that_comes_back_unspent_is_for_the_next_poll_at_once() -> None:
    rate_limiter = RateLimiter(0.001, Clock())
    assert await rate_limiter.take(3) == 1
    waiting = asyncio.ensure_future(rate_limiter.take(3))
    await asyncio.sleep(0)
    assert not waiting.done()
    rate_limiter.settle(1, 0)
    assert await waiting == 1


async def test_a_token_that_was_spent_is_there_again_when_its_time_has_passed() -> None:
    clock = Clock()
    rate_limiter = RateLimiter(1_000, clock)
    assert await rate_limiter.take(1_000) == 100
    rate_limiter.settle(100, 100)
    waiting = asyncio.ensure_future(rate_limiter.take(1_000))
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.now_ns += 5 * MS
    assert await waiting == 5


async def test_a_task_that_came_late_is_started_only_if_a_token_is_free() -> None:
    clock = Clock()
    rate_limiter = RateLimiter(15, clock)
    assert await rate_limiter.take(1) == 1
    assert [rate_limiter.spend_now(), rate_limiter.spend_now()] == [True, False]
    rate_limiter.settle(1, 1)
    clock.now_ns += NANO // 15
    assert not rate_limiter.spend_now(), "a token pays for a bit more than a fifteenth, rounded up"
    clock.now_ns += 1
    assert rate_limiter.spend_now()
    assert RateLimiter(None).spend_now()


@pytest.mark.parametrize("polls", [2, 5])
async def test_all_polls_of_a_worker_share_its_tokens(polls: int) -> None:
    rate_limiter = RateLimiter(30, Clock())
    asking = [asyncio.ensure_future(rate_limiter.take(1)) for _ in range(polls)]
    await asyncio.sleep(0)
    assert sum(each.done() for each in asking) == min(polls, 3)
    for each in asking:
        each.cancel()


async def test_a_poll_asks_for_no_more_tasks_than_there_are_tokens_and_empty_polls_cost_none() -> None:
    """At 25 per second a tenth of a second holds three; the clock stands still."""
    asked: list[int] = []
    spent = asyncio.Event()

    async def ask(most: int, _: str) -> list[Json]:
        asked.append(most)
        await asyncio.sleep(0)
        if len(asked) == 9:
            spent.set()
            return [{"n": number} for number in range(most)]
        return []

    async def register() -> None: ...

    started: list[Json] = []
    poll_context = PollContext(register, ErrorPolicy("w"), NullMetrics())
    slots = Slots(10)
    poller = Poller(
        "activity",
        ask,
        started.append,
        slots,
        poll_context,
        polls=1,
        batch_max=100,
        rate_limiter=RateLimiter(25, Clock()),
    )
    running = asyncio.ensure_future(poller.run())
    await spent.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert asked == [3] * 9, "no further poll is sent before a token is there"
    assert len(started) == 3
    running.cancel()
    await asyncio.wait({running})
    assert slots.free == 7
