"""Plug-ins: one object that configures clients, workers and replayers, such as tracing, encryption or a tenant context.

A client applies its plug-ins before it connects, in order. Its workers apply those of the client first, and then their
own; so it is enough to give a plug-in to the client. The same holds for interceptors of a client that have links for
workflows or activities as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypedDict

from penstock.sdk.converters import DataConverter
from penstock.sdk.dispatch_options import Dispatch


class ClientConfig(TypedDict):
    """What plug-ins may change of a client."""

    data_converter: DataConverter
    interceptors: Sequence[Any]
    dispatch: Dispatch | None


class WorkerParts(TypedDict):
    """What plug-ins may change of a worker or a replayer. A replayer has no activities."""

    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]
    interceptors: Sequence[Any]


class Plugin:
    """Base class of plug-ins: `Client.connect(plugins=[…])`, `Worker(plugins=[…])`. Override what it changes."""

    def name(self) -> str:
        """Return the name of the plug-in, for messages."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """Return the configuration of a client, changed.

        Args:
            config: what `connect` was given, and what earlier plug-ins made of it.
        """
        return config

    def configure_worker(self, config: WorkerParts) -> WorkerParts:
        """Return the configuration of a worker, changed.

        Args:
            config: what the worker was given, and what earlier plug-ins made of it.
        """
        return config

    def configure_replayer(self, config: WorkerParts) -> WorkerParts:
        """Return the configuration of a replayer, changed; by default as that of a worker.

        Args:
            config: what the replayer was given, and what earlier plug-ins made of it.
        """
        return self.configure_worker(config)

    async def run_worker(self, worker: Any, next: Callable[[Any], Awaitable[None]]) -> None:  # noqa: A002
        """Run a worker: what is to be open while it runs goes around `await next(worker)`.

        Args:
            worker: the `Worker`.
            next: runs it, inside of the plug-ins that follow.
        """
        await next(worker)


class SimplePlugin(Plugin):
    """A plug-in made of its parts.

    Args:
        name: its name, for messages.
        data_converter: the converter of clients; None leaves it alone.
        interceptors: appended to those of clients, and through them of workers. Each may have links for clients,
            workflows and activities.
        workflows: added to workers.
        activities: added to workers.
    """

    def __init__(
        self,
        name: str,
        *,
        data_converter: DataConverter | None = None,
        interceptors: Sequence[Any] = (),
        workflows: Sequence[type] = (),
        activities: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self._name, self._converter = name, data_converter
        self._interceptors = tuple(interceptors)
        self._workflows, self._activities = tuple(workflows), tuple(activities)

    def name(self) -> str:
        return self._name

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        return {
            "data_converter": self._converter or config["data_converter"],
            "interceptors": merged(config["interceptors"], self._interceptors),
            "dispatch": config["dispatch"],
        }

    def configure_worker(self, config: WorkerParts) -> WorkerParts:
        return {
            "workflows": merged(config["workflows"], self._workflows),
            "activities": merged(config["activities"], self._activities),
            "interceptors": merged(config["interceptors"], self._interceptors),
        }


def merged(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return two lists as one, without those of the second that the first has already."""
    return [*first, *(each for each in second if not any(each is other for other in first))]


def configured_client(
    plugins: Sequence[Plugin],
    data_converter: DataConverter,
    interceptors: Sequence[Any],
    dispatch: Dispatch | None,
) -> ClientConfig:
    """Return the configuration of a client after its plug-ins."""
    config: ClientConfig = {
        "data_converter": data_converter,
        "interceptors": interceptors,
        "dispatch": dispatch,
    }
    for each in checked_plugins(plugins):
        config = each.configure_client(config)
    return config


def checked_plugins(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Return plug-ins; raise `TypeError` for anything else, before it is used."""
    for each in plugins:
        if not isinstance(each, Plugin):
            raise TypeError(f"{each!r} is not a plug-in: derive {type(each).__name__} from penstock.Plugin")
    return tuple(plugins)


def of_workers(client_interceptors: Sequence[Any]) -> list[Any]:
    """Return the interceptors of a client that have links for workflows or activities."""
    return [each for each in client_interceptors if any(hasattr(each, link) for link in _LINKS)]


_LINKS = ("intercept_activity", "intercept_workflow", "workflow_interceptor_class")
