"""Being known to the server: registering, being heard regularly, leaving."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from penstock.errors import Reason
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.worker import process
from penstock.sdk.worker.backoff import Backoff
from penstock.sdk.worker.plane import Plane
from penstock.sdk.worker.trouble import Trouble, asked_s, is_fatal, is_passing

Json = dict[str, Any]
INTERVAL_S = 20.0
"""Until the server has said how often it wants to hear of us."""
LEAVE_SECONDS = 5.0


class Presence:
    """The registration of one worker. What it said last is said again whenever the server has forgotten it."""

    def __init__(
        self,
        plane: Plane,
        said: Callable[[], Json],
        slots: Callable[[], Json],
        trouble: Trouble,
        *,
        silent_kinds: tuple[str, ...] = (),
        repeated: Callable[[], Json],
    ) -> None:
        """`repeated` is said with every heartbeat again: a worker whose slots are full for long does not poll."""
        self._plane, self._said, self._slots, self._trouble = plane, said, slots, trouble
        self._offered: Json = {f"max_concurrent_{kind}_tasks": 0 for kind in silent_kinds}
        self._repeated = repeated
        self._interval_s = INTERVAL_S
        self._registering = asyncio.Lock()
        self.server_capabilities: Json = {}

    async def register(self) -> None:
        """Register, waiting for a server that is away; a refusal that no waiting heals is raised."""
        pauses = Backoff()
        async with self._registering:
            while True:
                try:
                    await self._once()
                except (ServerRefused, Unreachable) as error:
                    if is_fatal(error) or not is_passing(error):
                        raise
                    self._trouble.met(error)
                    await asyncio.sleep(pauses.pause_s(asked_s(error)))
                else:
                    self._trouble.over()
                    return

    async def _once(self) -> None:
        answer = await self._plane.register(self._said() | self._repeated() | self._standing())
        self._hear(answer)
        if self._offered:  # a registration offers at least one slot of each kind; a heartbeat may offer none
            self._hear(await self._plane.heartbeat(self._offered | self._standing()))

    async def keep(self) -> None:
        """Be heard, as often as the server asks, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self._beat()

    async def tell(self, **slots: int) -> None:
        """Say at once how many slots there are from now on; those of a kind that is not run stay none."""
        changed = {f"max_concurrent_{kind}_tasks": total for kind, total in slots.items()}
        self._offered = changed | {name: 0 for name, total in self._offered.items() if not total}
        await self._beat()

    async def _beat(self) -> None:
        try:
            self._hear(await self._plane.heartbeat(self._offered | self._repeated() | self._standing()))
        except (ServerRefused, Unreachable) as error:
            if isinstance(error, ServerRefused) and error.reason == Reason.WORKER_NOT_REGISTERED:
                await self.register()
            elif is_fatal(error):
                raise
            else:
                self._trouble.met(error)

    async def leave(self) -> None:
        """Have the server forget this worker; what it holds waits for others at once.

        If the server is away, or the client is closed, it will find out by itself.
        """
        with contextlib.suppress(ServerRefused, Unreachable, TimeoutError, RuntimeError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._plane.deregister()

    def _standing(self) -> Json:
        return {"task_slots": self._slots(), "process_metrics": process.metrics()}

    def _hear(self, answer: Json) -> None:
        seconds = answer.get("heartbeat_interval_seconds")
        if isinstance(seconds, int | float) and seconds > 0:
            self._interval_s = float(seconds)
        capabilities = answer.get("server_capabilities")
        if isinstance(capabilities, dict):
            self.server_capabilities = capabilities
