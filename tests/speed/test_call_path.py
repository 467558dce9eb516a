"""How many functions one poll visits: who reads the way of a task must be able to follow it.

Counted are the functions of Penstock with a name of their own that one poll of an activity task calls, from the ASGI
application to the commit on SQLite and back, after some tasks went the same way. A ceiling that is met by a better
design is lowered.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from penstock import assembly
from penstock.settings import load
from tests.speed.edge_work import EdgeWork
from tests.support import live

TIMES = 5
FUNCTIONS_MAX, MODULES_MAX = 267, 60
CLAIM_FUNCTIONS_MAX = 113
"""Of the functions, those that decide and record: `core/scheduling` and `engine/matching`."""
PACKAGE = str(Path(assembly.__file__).parent)
CLAIM = ("core/scheduling/", "engine/matching/")

Visited = set[tuple[str, str]]


@contextmanager
def visited() -> Iterator[Visited]:
    """The functions that are called inside the block, in any thread that begins there, by module and name."""
    found: Visited = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            found.add((code.co_filename.removeprefix(PACKAGE).strip("/"), code.co_qualname))

    profile: Callable[..., None] = note
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def poll(work: EdgeWork) -> Visited:
    await work.start()
    with visited() as found:
        await work.poll()
    return found


async def test_a_poll_visits_few_functions(tmp_path: Path):
    settings = load(live.TOKENS | {"DW_DATABASE_URL": f"sqlite:///{tmp_path}/penstock.db"})
    async with assembly.assembled(settings) as server:
        work = EdgeWork(server.application)
        await work.register()
        for _ in range(3):
            await work.task()
        polls = [await poll(work) for _ in range(TIMES)]
    found = min(polls, key=len)  # sweepers and the backstop may run beside one of them
    modules = {module for module, _ in found}
    claim = [each for each in found if each[0].startswith(CLAIM)]
    told = f"{len(found)} functions in {len(modules)} modules, {len(claim)} of them for the claim"
    assert len(found) <= FUNCTIONS_MAX, told
    assert len(modules) <= MODULES_MAX, told
    assert len(claim) <= CLAIM_FUNCTIONS_MAX, told
