"""The task queues of an app by name."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.schema.nearest import nearest


class UnknownQueueError(ValueError):
    """The app has no such queue; the message suggests the nearest name."""


class AppQueues:
    """Declared and used queues; an app with a configuration has only those that it names."""

    def __init__(
        self, app: str, declared: Iterable[str] = (), *, more_with: str = "Penstock(…, queues=[…])"
    ) -> None:
        self._app, self._more_with = app, more_with
        self._names = dict.fromkeys(declared)

    @property
    def names(self) -> list[str]:
        return list(self._names)

    def use(self, name: str) -> None:
        self._names.setdefault(name)

    def check(self, name: str, task: str | None = None) -> None:
        """Refuse a queue that no worker of the app would serve."""
        if name in self._names:
            return
        near = nearest(name, self._names)
        known = ", ".join(self._names) or "none"
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"It has {known}."
        whose = f'task "{task}": ' if task else ""
        raise UnknownQueueError(
            f"{whose}{self._app} has no queue {name!r}. {hint} More are declared with {self._more_with}."
        )
