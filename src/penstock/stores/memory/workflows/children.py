"""Child runs by parent."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import ChildRun, ChildState, RunId
from penstock.stores.memory.immutable_columns import immutable_columns
from penstock.stores.memory.tables import MemoryRepository

_immutable_columns = immutable_columns(ChildRun, changing=("state",))


class MemoryChildren(MemoryRepository):
    async def get(self, parent_run_id: RunId, step: int) -> ChildRun | None:
        return self._tables.children.of(parent_run_id).get(step)

    async def open_of(self, parent_run_id: RunId) -> Sequence[ChildRun]:
        return [child for child in await self.all_of(parent_run_id) if child.state is ChildState.OPEN]

    async def all_of(self, parent_run_id: RunId) -> Sequence[ChildRun]:
        found = self._tables.children.of(parent_run_id)
        return [found[step] for step in sorted(found)]

    def insert(self, child: ChildRun) -> None:
        def write() -> None:
            siblings = self._tables.children.of(child.parent_run_id)
            assert child.step not in siblings, f"{child.parent_run_id} has a child of step {child.step}"
            self._put(child)

        self._changes.record(write)

    def save(self, child: ChildRun) -> None:
        def write() -> None:
            before = self._tables.children.of(child.parent_run_id)[child.step]
            assert _immutable_columns(child) == _immutable_columns(before), (
                "only the state of a child changes"
            )
            assert before.state is ChildState.OPEN or child.state is not ChildState.OPEN, "it opens once"
            self._put(child)

        self._changes.save("child", (child.parent_run_id, child.step), write)

    def _put(self, child: ChildRun) -> None:
        self._changes.add(self._tables.children, child.parent_run_id, child.step, child)
