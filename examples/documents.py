"""Document pipeline: pages go to the language model that fits them, and no model is asked for more than it bears.

The code names a model by a handle ("quick", "careful"), never by a vendor's name or a queue. Which queue a handle
means, how long a model may take, how often it is tried and how much its workers do at once stands in documents.toml,
and is changed there. Each model has a worker process of its own, started as operators do:

    penstock worker documents:app --config documents.toml -t documents     --profile desk    --scope desk
    penstock worker documents:app --config documents.toml -t model-quick   --profile quick   --scope runner-model
    penstock worker documents:app --config documents.toml -t model-careful --profile careful --scope runner-model

When the careful model says "too many requests", its page rests and is tried again, without a charge against its
attempts; the quick model goes on meanwhile.

    python examples/documents.py
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from _stage import fresh, stage, tell

from penstock import Penstock, activity, workflow
from penstock.dispatch import load_dispatch

HERE = Path(__file__).parent
FILE = HERE / "documents.toml"
WORKERS = (
    ("documents", "desk", "desk"),
    ("model-quick", "quick", "runner-model"),
    ("model-careful", "careful", "runner-model"),
)
"""Queue, profile and scope of each worker."""


@dataclass
class Page:
    number: int
    text: str
    handle: str
    """Which model is to read it."""


@dataclass
class Summary:
    text: str
    handle: str
    at_once: int
    """How many pages the model's worker had in hand by then."""


@activity.defn(pack="desk")
async def split(document: str) -> list[Page]:
    texts = document.split("\n\n")
    tell(f"the document has {len(texts)} pages")
    return [Page(number, text, handle_for(text)) for number, text in enumerate(texts, 1)]


def handle_for(text: str) -> str:
    """Long pages go to the careful model."""
    return "careful" if len(text) > 60 else "quick"


class Model:
    """The model of this worker process: it only counts. No network is used."""

    running = asked = 0


@activity.defn(routing_key="handle", tags={"model"})
async def summarise(page: Page) -> Summary:
    Model.asked += 1
    if page.handle == "careful" and Model.asked == 3:
        tell(f"{page.handle}: too many requests; page {page.number} rests for half a second")
        activity.throttled(retry_after=timedelta(seconds=0.5))
    Model.running += 1
    at_once = Model.running
    await asyncio.sleep(0.05 if page.handle == "quick" else 0.2)
    Model.running -= 1
    tell(f"{page.handle}: page {page.number} is done")
    return Summary(f"{page.number}. {page.text.split('.')[0]}. ({page.handle})", page.handle, at_once)


@workflow.defn(pack="desk")
class Summarise:
    @workflow.run
    async def run(self, document: str) -> list[Summary]:
        pages = await workflow.execute_activity(split, document)
        calls = [workflow.execute_activity(summarise, page, summary=f"page {page.number}") for page in pages]
        return list(await asyncio.gather(*calls))


app = Penstock("documents", queue="documents")
app.add(workflows=[Summarise], activities=[split, summarise])

DOCUMENT = "\n\n".join(
    f"Chapter {number} is short." if number % 2 else f"Chapter {number} is long. " + "It goes on and on. " * 4
    for number in range(1, 13)
)


@contextlib.contextmanager
def workers() -> Iterator[None]:
    """The three worker processes. They stop with the example, and their logs are not shown."""
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as ending, contextlib.ExitStack() as told:
        for queue, profile, scope in WORKERS:
            command = [sys.executable, "-m", "penstock", "worker", "documents:app", "--config", str(FILE)]
            command += ["--task-queue", queue, "--profile", profile, "--scope", scope]
            process = subprocess.Popen(command, cwd=HERE, stderr=log)
            ending.callback(process.wait)
            told.callback(process.terminate)
        try:
            yield
        except TimeoutError:
            log.seek(0)
            raise SystemExit(f"Nothing happens. The workers say:\n{log.read().decode()}") from None


async def main() -> None:
    config = load_dispatch(FILE)
    async with stage() as client:
        with workers():
            handle = await client.start_workflow(
                Summarise.run, DOCUMENT, id=fresh("document"), task_queue="documents"
            )
            pages = await handle.result(timeout=timedelta(seconds=60))
    tell("The summary, in the order of the pages:")
    print("\n".join(page.text for page in pages))
    for model in ("quick", "careful"):
        most = max(page.at_once for page in pages if page.handle == model)
        bears = config.profile(model).max_concurrent_activities
        tell(f"{model}: at most {most} at once, of {bears} that it bears")


if __name__ == "__main__":
    asyncio.run(main())
