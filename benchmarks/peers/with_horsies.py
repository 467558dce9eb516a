"""Horsies: `with_horsies client URL` is asked; its worker is its own command, with the app of `tasks_horsies`."""

from __future__ import annotations

import asyncio
from typing import Any

from horsies import is_ok  # type: ignore[import-not-found]

from benchmarks.peers.exchange import answer_questions
from benchmarks.peers.tasks_horsies import CONNECTIONS, nothing, sequences, ticks

RESULT_MS_MAX = 120_000


class Asked:
    sends_at_once = CONNECTIONS
    workflows_at_once = 100

    async def send(self) -> None:
        _ok(await nothing.send_async())

    async def ask(self) -> float:
        handle = _ok(await nothing.send_async())
        return float(_ok(await handle.get_async(timeout_ms=RESULT_MS_MAX)))

    async def workflow(self, steps: int) -> None:
        handle = _ok(await sequences[steps].start_async())
        _ok(await handle.get_async(timeout_ms=RESULT_MS_MAX))


def _ok(result: Any) -> Any:
    if not is_ok(result):
        raise RuntimeError(f"it was refused: {result}")
    return result.ok_value


if __name__ == "__main__":
    asyncio.run(answer_questions(Asked(), ticks))
