"""How many functions one poll visits: a reader must be able to follow the way of a task.

Counted are the functions of Penstock with a name of their own that one poll of a task calls, from the ASGI
application to the commit on SQLite and back, after some tasks went the same way. A function counts if each of several
polls calls it: sweepers and recorders run beside some of them. When a better design needs fewer, the ceiling is
lowered.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock import assembly
from penstock.settings import load
from tests.speed.edge_work import EdgeWork
from tests.support import live

TIMES, WARM_UP = 10, 3
FUNCTIONS_MAX, MODULES_MAX = 175, 44
CLAIM_FUNCTIONS_MAX = 70
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


async def activity_poll(work: EdgeWork) -> Visited:
    await work.start()
    with visited() as found:
        await work.poll()
    return found


async def workflow_poll(work: EdgeWork) -> Visited:
    await work.start_workflow()
    with visited() as found:
        await work.poll_workflow_task()
    return found


@pytest.mark.parametrize("poll", [activity_poll, workflow_poll])
async def test_a_poll_visits_few_functions(poll: Callable[[EdgeWork], Awaitable[Visited]], tmp_path: Path):
    settings = load(live.TOKENS | {"DW_DATABASE_URL": f"sqlite:///{tmp_path}/penstock.db"})
    async with assembly.assembled(settings) as server:
        work = EdgeWork(server.application)
        await work.register()
        for _ in range(WARM_UP):
            await poll(work)
        polls = [await poll(work) for _ in range(TIMES)]
    found = set[tuple[str, str]].intersection(*polls)
    modules = {module for module, _ in found}
    claim = [each for each in found if each[0].startswith(CLAIM)]
    figures = f"{len(found)} functions in {len(modules)} modules, {len(claim)} of them for the claim"
    assert len(found) <= FUNCTIONS_MAX, figures
    assert len(modules) <= MODULES_MAX, figures
    assert len(claim) <= CLAIM_FUNCTIONS_MAX, figures
