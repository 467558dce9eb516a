"""App-style tasks: functions that are sent to a worker, without a workflow around them.

For users of Celery, Procrastinate or horsies: an app, a decorator, `send`. Tasks are as durable, retried, limited and
explained as everything else on the server.

    python examples/app_tasks.py

Worker and senders share a process here. To separate them, with the two variables set that `penstock dev` prints:

    cd examples && penstock worker app_tasks:app
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from _stage import stage, tell

from penstock import Penstock, RetryPolicy, TaskExpired, TaskFailed, activity

app = Penstock("mailroom", queue="mailroom")
asleep = "mailroom-asleep"


@app.task
async def add(a: int, b: int) -> int:
    return a + b


@app.task(retry=RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=4))
def post(letter: str) -> str:
    """A sync function runs in a thread. The post office is closed at first."""
    attempt = activity.info().attempt
    if attempt < 3:
        raise ConnectionError(f"the post office is closed (attempt {attempt})")
    tell(f"{letter} is posted (attempt {attempt})")
    return f"{letter}, stamped"


@app.task(runs_in="process")
def count_primes(below: int) -> int:
    """CPU-bound work runs in a process of its own."""
    return sum(all(number % divisor for divisor in range(2, number)) for number in range(2, below))


@app.task
async def send_to(name: str) -> None:
    raise ValueError(f"nobody is called {name}")


@app.task(queue=asleep, good_until=timedelta(seconds=0.3))
async def breaking_news(text: str) -> str:
    """Yesterday's news is not worth sending. No worker serves this queue."""
    return text


async def main() -> None:
    async with stage() as client, app, app.worker(client, concurrency=4):
        tell(f"called: {await add(1, 2)}; sent to a worker: {await (await add.send(1, 2)).result()}")

        letter, primes = await post.send("a letter"), await count_primes.send(2_000)
        later = await add.schedule(timedelta(seconds=0.5), 20, 22)
        many = await add.send_many([(number, number) for number in range(20)])
        tell(
            f"{len(many)} more sent with one request; together: {sum([await each.result() for each in many])}"
        )
        tell(f"there are {await primes.result()} primes below 2,000; and {await letter.result()}")
        tell(f"half a second later: {await later.result()}")

        try:
            await (await send_to.send("Nemo")).result()
        except TaskFailed as error:
            tell(f"failed: {error.cause}")
        try:
            await (await breaking_news.send("It rains.")).result()
        except TaskExpired:
            tell("expired: the news was not begun while it was news, and now is not any more")


if __name__ == "__main__":
    asyncio.run(main())
