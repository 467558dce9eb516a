"""Room for tasks of one kind: what is taken before a poll is what the poll may bring."""

from __future__ import annotations

import asyncio


class Slots:
    """A number of places. Nothing is held beyond them, unless there were more of them when it was taken."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._any_free = asyncio.Event()
        self._all_free = asyncio.Event()
        self._changed()

    @property
    def free(self) -> int:
        return max(0, self._free)

    @property
    def taken(self) -> int:
        return self.total - self._free

    async def take(self, most: int = 1) -> int:
        """Take as many places as there are, up to `most`; wait until there is at least one."""
        while self._free <= 0:
            await self._any_free.wait()
        taken = min(most, self._free)
        self._free -= taken
        self._changed()
        return taken

    def take_now(self) -> bool:
        """Take one place if there is one."""
        if self._free <= 0:
            return False
        self._free -= 1
        self._changed()
        return True

    def give_back(self, places: int = 1) -> None:
        if not places:
            return
        self._free += places
        assert self._free <= self.total, "a place is given back once"
        self._changed()

    def resize(self, total: int) -> None:
        """Have more places from now on, or fewer as soon as what is too many was given back."""
        self._free += total - self.total
        self.total = total
        self._changed()

    def fitting(self, held: int) -> int:
        """How many of the places that somebody holds are still there: some may be too many by now."""
        return max(0, held + min(0, self._free))

    async def all_free(self) -> None:
        """Wait until nothing is held."""
        await self._all_free.wait()

    def _changed(self) -> None:
        """Tell those who wait."""
        _set_event(self._any_free, self._free > 0)
        _set_event(self._all_free, self._free == self.total)


def _set_event(event: asyncio.Event, is_so: bool) -> None:
    if is_so:
        event.set()
    else:
        event.clear()
