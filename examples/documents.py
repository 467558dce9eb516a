"""Document pipeline: pages go to the language model that fits them, and no model is asked for more than it bears.

The code names a model by a handle ("quick", "careful"), never by a vendor's name. Behind each handle is a queue, and
behind the queue are workers that hold the connection to one model and know how much it bears. Which model a handle
means is changed in one place. When the careful model says "too many requests", its page rests and is tried again,
without a charge against its attempts; the quick model goes on meanwhile.

    python examples/documents.py
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from _stage import fresh, stage, tell

from penstock import Client, RetryPolicy, Worker, activity, workflow

DESK = "documents"
HANDLES = {"quick": "model-quick", "careful": "model-careful"}
"""Handle → queue. Nothing else in this file knows where a model lives."""
SLOTS = {"quick": 4, "careful": 2}
"""What each model bears at once."""


@dataclass
class Page:
    number: int
    text: str


@activity.defn
async def split(document: str) -> list[Page]:
    pages = [Page(number, text) for number, text in enumerate(document.split("\n\n"), 1)]
    tell(f"the document has {len(pages)} pages")
    return pages


class Model:
    """One model, with what its workers need: here nothing but a way to count. No network is used."""

    def __init__(self, handle: str) -> None:
        self.handle = handle
        self.running = self.most = self.asked = 0

    @activity.defn
    async def summarise(self, page: Page) -> str:
        self.asked += 1
        if self.handle == "careful" and self.asked == 3:
            tell(f"{self.handle}: too many requests; page {page.number} rests for half a second")
            activity.throttled(retry_after=timedelta(seconds=0.5))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.05 if self.handle == "quick" else 0.2)
        self.running -= 1
        tell(f"{self.handle}: page {page.number} is done")
        return f"{page.number}. {page.text.split('.')[0]}. ({self.handle})"


def handle_for(page: Page) -> str:
    """Long pages are worth the careful model."""
    return "careful" if len(page.text) > 60 else "quick"


@workflow.defn
class Summarise:
    @workflow.run
    async def run(self, document: str) -> str:
        pages = await workflow.execute_activity(split, document, start_to_close_timeout=timedelta(seconds=10))
        return "\n".join(await asyncio.gather(*(self.one(page) for page in pages)))

    async def one(self, page: Page) -> str:
        return await workflow.execute_activity(
            Model.summarise,
            page,
            task_queue=HANDLES[handle_for(page)],
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=3),
            summary=f"page {page.number}",
        )


def worker(client: Client, model: Model) -> Worker:
    return Worker(
        client,
        task_queue=HANDLES[model.handle],
        activities=[model.summarise],
        max_concurrent_activity_tasks=SLOTS[model.handle],
    )


DOCUMENT = "\n\n".join(
    f"Chapter {number} is short." if number % 2 else f"Chapter {number} is long. " + "It goes on and on. " * 4
    for number in range(1, 13)
)


async def main() -> None:
    quick, careful = Model("quick"), Model("careful")
    async with (
        stage() as client,
        Worker(client, task_queue=DESK, workflows=[Summarise], activities=[split]),
        worker(client, quick),
        worker(client, careful),
    ):
        summary = await client.execute_workflow(
            Summarise.run, DOCUMENT, id=fresh("document"), task_queue=DESK
        )
        tell("The summary, in the order of the pages:")
        print(summary)
        for model in (quick, careful):
            tell(f"{model.handle}: at most {model.most} at once, of {SLOTS[model.handle]} that it bears")


if __name__ == "__main__":
    asyncio.run(main())
