"""Loads of which replications can be run: those of a model, and those that were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.simulator.changes import Change, changed
from penstock.simulator.model_file import ModelFile, generate
from penstock.simulator.workload import Workload


class LoadSource(Protocol):
    """A load as it is, or with changes."""

    @property
    def is_random(self) -> bool:
        """Whether replications differ from each other."""
        ...

    @property
    def time_factor(self) -> float:
        """What times of its runs are to be multiplied by: more than 1 where the load was shrunk in time."""
        ...

    @property
    def facts(self) -> Any:
        """Everything that its workloads depend on, apart from the seed."""
        ...

    def with_changes(self, changes: Sequence[Change]) -> LoadSource:
        """The load with changes. Raises `InvalidInput` for a queue or key that it does not have."""
        ...

    def workload(self, seed: int, tasks_max: int) -> Workload:
        """One replication. Raises `InvalidInput` if it has more than `tasks_max` tasks."""
        ...


class ModelLoad(Struct, frozen=True):
    """The load of a model."""

    model: ModelFile

    @property
    def is_random(self) -> bool:
        return True

    @property
    def time_factor(self) -> float:
        return 1.0

    @property
    def facts(self) -> Any:
        return self.model

    def with_changes(self, changes: Sequence[Change]) -> ModelLoad:
        return ModelLoad(changed(self.model, changes))

    def workload(self, seed: int, tasks_max: int) -> Workload:
        return generate(self.model, seed, tasks_max)
