"""Task slots: taken before a poll, for as many tasks as the poll may return."""

from __future__ import annotations

import asyncio


class Slots:
    """A counted set of slots. More than `total` are taken only after a resize to fewer slots."""

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

    async def take(self, limit: int = 1) -> int:
        """Take as many slots as are free, up to `limit`, waiting for at least one."""
        while self._free <= 0:
            await self._any_free.wait()
        taken = min(limit, self._free)
        self._free -= taken
        self._changed()
        return taken

    def take_now(self) -> bool:
        """Take one slot if one is free."""
        if self._free <= 0:
            return False
        self._free -= 1
        self._changed()
        return True

    def give_back(self, count: int = 1) -> None:
        if not count:
            return
        self._free += count
        assert self._free <= self.total, "a slot is given back once"
        self._changed()

    def resize(self, total: int) -> None:
        """Change the number of slots. If there are fewer, excess slots disappear when they are given back."""
        self._free += total - self.total
        self.total = total
        self._changed()

    def fitting(self, held: int) -> int:
        """Return how many of the `held` slots still exist after a resize."""
        return max(0, held + min(0, self._free))

    async def all_free(self) -> None:
        """Wait until no slot is taken."""
        await self._all_free.wait()

    def _changed(self) -> None:
        """Wake waiters."""
        _set_event(self._any_free, self._free > 0)
        _set_event(self._all_free, self._free == self.total)


def _set_event(event: asyncio.Event, is_so: bool) -> None:
    if is_so:
        event.set()
    else:
        event.clear()
