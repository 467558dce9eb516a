"""The queues of an app with an `AppConfig`, and the checks of its tasks against them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import ConfigurationError
from penstock.sdk.app_config.app import DEFAULT_QUEUE, AppConfig
from penstock.sdk.app_config.queues import QueueMode
from penstock.sdk.tasks.queues import AppQueues, UnknownQueueError


def checked_config(config: object, *, queue: str | None, queues: Sequence[str]) -> AppConfig | None:
    """Validate the configuration. Queues must not be given both in it and beside it."""
    if config is None:
        return None
    if not isinstance(config, AppConfig):
        raise TypeError(f"config is an AppConfig(…), not {type(config).__name__}")
    if queue is not None or queues:
        raise ConfigurationError("An app with a config gets its queues from it: leave queue= and queues= out")
    return config


def home_queue(config: AppConfig | None, queue: str | None) -> str:
    """Return the queue of tasks that name none."""
    if config is None:
        return DEFAULT_QUEUE if queue is None else queue
    return config.queues[0].name


def queues_of(app: str, config: AppConfig | None, declared: Sequence[str]) -> AppQueues:
    if config is None:
        return AppQueues(app, declared)
    names = [each.name for each in config.queues]
    return AppQueues(app, names, more_with="AppConfig(queue_mode=QueueMode.CUSTOM, custom_queues=[…])")


def server_url(config: AppConfig | None, url: str | Sequence[str] | None) -> str | Sequence[str] | None:
    """Return the server address; that of the app takes precedence over that of its broker."""
    return url if url is not None or config is None or config.broker is None else config.broker.server_url


def check_task_queue(
    config: AppConfig, app: str, fn: Callable[..., Any], name: str | None, queue: str | None
) -> None:
    """Refuse a task whose queue does not fit its app, at its definition."""
    whose = f'task "{name or getattr(fn, "__name__", "?")}" ({_place(fn)})'
    if config.queue_mode is QueueMode.DEFAULT:
        if queue is not None:
            raise ConfigurationError(
                f"{whose} names the queue {queue!r}, and the app {app!r} is in DEFAULT mode: leave queue= out,"
                " or set queue_mode=QueueMode.CUSTOM"
            )
        return
    known = ", ".join(each.name for each in config.queues)
    if queue is None:
        raise ConfigurationError(
            f"{whose} names no queue, and the app {app!r} is in CUSTOM mode: pass queue=…, one of {known}"
        )
    try:
        queues_of(f"the app {app!r}", config, ()).check(queue)
    except UnknownQueueError as error:
        raise ConfigurationError(f"{whose}: {error}") from None


def _place(fn: Any) -> str:
    code = getattr(fn, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "?"
