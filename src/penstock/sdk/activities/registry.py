"""The activities of a worker by name."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schema.nearest import nearest
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.failures import ApplicationError


class ActivityRegistry:
    def __init__(self, definitions: Sequence[ActivityDefinition]) -> None:
        self._by_name: dict[str, ActivityDefinition] = {}
        self._dynamic: ActivityDefinition | None = None
        for each in definitions:
            self._add(each)

    def found(self, name: str) -> ActivityDefinition:
        """Return the activity for a name. Raises an `ApplicationError` that lists the registered names."""
        found = self._by_name.get(name, self._dynamic)
        if found is None:
            raise ApplicationError(self._unknown(name), type="NotFoundError")
        return found

    def _add(self, definition: ActivityDefinition) -> None:
        if definition.dynamic or definition.name is None:
            if self._dynamic is not None:
                raise ValueError(
                    "A worker has one dynamic activity at most: it runs for all names that are left"
                )
            self._dynamic = definition
        elif definition.name in self._by_name:
            raise ValueError(
                f'Two activities are named "{definition.name}": use @activity.defn(name=…) for one'
            )
        else:
            self._by_name[definition.name] = definition

    def _unknown(self, name: str) -> str:
        names = sorted(self._by_name)
        if not names:
            return f'This worker does not run activity "{name}": it has no activities'
        close = nearest(name, names)
        meant = f' Did you mean "{close[0]}"?' if close else ""
        return f'This worker does not run activity "{name}", but {", ".join(names)}.{meant}'
