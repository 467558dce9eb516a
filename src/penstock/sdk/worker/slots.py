"""Room for tasks of one kind: what is taken before a poll is what the poll may bring."""

from __future__ import annotations

import asyncio


class Slots:
    """A fixed number of places. Nothing is held beyond them."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._room = asyncio.Event()
        self._rest = asyncio.Event()
        self._rest.set()
        if total:
            self._room.set()

    @property
    def free(self) -> int:
        return self._free

    @property
    def taken(self) -> int:
        return self.total - self._free

    async def take(self, most: int = 1) -> int:
        """Take as many places as there are, up to `most`; wait until there is at least one."""
        while not self._free:
            await self._room.wait()
        taken = min(most, self._free)
        self._free -= taken
        self._rest.clear()
        if not self._free:
            self._room.clear()
        return taken

    def take_now(self) -> bool:
        """Take one place if there is one."""
        if not self._free:
            return False
        self._free -= 1
        self._rest.clear()
        if not self._free:
            self._room.clear()
        return True

    def give_back(self, places: int = 1) -> None:
        if not places:
            return
        self._free += places
        assert self._free <= self.total, "a place is given back once"
        self._room.set()
        if self._free == self.total:
            self._rest.set()

    async def all_free(self) -> None:
        """Wait until nothing is held."""
        await self._rest.wait()
