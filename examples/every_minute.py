"""Every minute, forever: a loop that continues as new, so that its history stays short.

A workflow reads a meter at fixed times. A history that grew with every reading would be slow to replay after years,
so after a few readings the run ends and a new one continues under the same workflow id. The worker is stopped in the
middle and another one takes over; no reading is skipped. A signal ends it. (The minute is half a second here.)

    python examples/every_minute.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from _stage import fresh, stage, tell

from penstock import Client, Worker, activity, workflow

QUEUE = "meters"
MINUTE = timedelta(seconds=0.5)
READINGS_PER_RUN = 3


@dataclass
class Meter:
    """The state that one run passes to the next."""

    name: str
    due: datetime | None = None
    readings: list[int] = field(default_factory=list)
    runs: int = 1


@activity.defn
async def read_meter(name: str, reading: int) -> int:
    watts = 100 + 7 * reading
    tell(f"reading {reading + 1} of {name}: {watts} W")
    return watts


@workflow.defn
class EveryMinute:
    def __init__(self) -> None:
        self.stopped = False

    @workflow.signal
    def stop(self) -> None:
        self.stopped = True

    @workflow.run
    async def run(self, meter: Meter) -> Meter:
        for _ in range(READINGS_PER_RUN):
            await self.wait_until(meter)
            if self.stopped:
                return meter
            count = len(meter.readings)
            watts = await workflow.execute_activity(
                read_meter, args=[meter.name, count], start_to_close_timeout=timedelta(seconds=10)
            )
            meter.readings.append(watts)
        if self.stopped:  # a signal that came during the last reading: the next run would not know of it
            return meter
        meter.runs += 1
        workflow.continue_as_new(meter)

    async def wait_until(self, meter: Meter) -> None:
        """Sleep until the next reading. It is counted from the last one, not from now, so that nothing drifts."""
        meter.due = (meter.due or workflow.now()) + MINUTE
        left = max(meter.due - workflow.now(), timedelta(0))
        try:
            await workflow.wait_condition(lambda: self.stopped, timeout=left)
        except TimeoutError:
            pass


def worker(client: Client) -> Worker:
    return Worker(client, task_queue=QUEUE, workflows=[EveryMinute], activities=[read_meter])


async def main() -> None:
    async with stage() as client:
        async with worker(client):
            handle = await client.start_workflow(
                EveryMinute.run, Meter("the meter in the cellar"), id=fresh("meter"), task_queue=QUEUE
            )
            await asyncio.sleep(2.2)
            tell("The worker stops. The loop does not notice:")
        async with worker(client):
            await asyncio.sleep(2.2)
            await handle.signal(EveryMinute.stop)
            meter = await handle.result()
        events = len((await handle.fetch_history()).events)
        tell(f"{len(meter.readings)} readings in {meter.runs} runs of one workflow; no run is long.")
        tell(f"The last run's history has {events} events, whatever the age of the loop.")


if __name__ == "__main__":
    asyncio.run(main())
