"""Updates by run, in the order of acceptance."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import RunId, Update, UpdateStatus
from penstock.stores.memory.immutable_columns import immutable_columns
from penstock.stores.memory.tables import MemoryRepository

_immutable_columns = immutable_columns(Update, changing=("run_id", "status", "outcome", "closed_at_ms"))


class MemoryUpdates(MemoryRepository):
    async def get(self, update_id: str) -> Update | None:
        return self._tables.updates.get(update_id)

    async def next_accepted(self, run_id: RunId) -> Update | None:
        return next(iter(await self.accepted_of(run_id)), None)

    async def accepted_of(self, run_id: RunId) -> Sequence[Update]:
        return [update for update in await self.all_of(run_id) if update.status is UpdateStatus.ACCEPTED]

    async def all_of(self, run_id: RunId) -> Sequence[Update]:
        found = self._tables.updates_of.of(run_id)
        return [self._tables.updates[found[number]] for number in sorted(found)]

    def insert(self, update: Update) -> None:
        def write() -> None:
            assert update.update_id not in self._tables.updates, f"update {update.update_id} exists"
            self._join(update)
            self._put(update)

        self._changes.record(write)

    def save(self, update: Update) -> None:
        def write() -> None:
            before = self._tables.updates[update.update_id]
            assert _immutable_columns(update) == _immutable_columns(before), (
                "the request of an update is immutable"
            )
            assert before.status is UpdateStatus.ACCEPTED, "late-answers-change-nothing"
            if update.run_id != before.run_id:
                self._changes.remove(self._tables.updates_of, before.run_id, before.number)
                self._join(update)
            self._put(update)

        self._changes.save("update", update.update_id, write)

    def _join(self, update: Update) -> None:
        """Index an update by its run."""
        accepted = self._tables.updates_of.of(update.run_id)
        assert update.number not in accepted, f"{update.run_id} has an update {update.number}"
        self._changes.add(self._tables.updates_of, update.run_id, update.number, update.update_id)

    def _put(self, update: Update) -> None:
        accepted = update.status is UpdateStatus.ACCEPTED
        assert accepted == (update.closed_at_ms is None), "a closed update has a closing time"
        assert not accepted or update.outcome is None, "an outcome closes an update"
        self._changes.put(self._tables.updates, update.update_id, update)
