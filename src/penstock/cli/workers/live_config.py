"""Applies configuration changes to a running worker: slots and rates at once, the rest after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.cli.workers.plan import WorkerPlan
from penstock.cli.workers.worker_profile import WorkerConfigErrors, worker_profile_from
from penstock.dispatch import DispatchConfig
from penstock.sdk.worker import Worker

log = logging.getLogger("penstock.worker")
LIVE = (
    "max_concurrent_workflow_tasks",
    "max_concurrent_activities",
    "max_concurrent_local_activities",
    "max_activities_per_second",
    "graceful_shutdown_timeout",
)
"""Options that a running worker can change."""
QUEUE_CAP = "max_task_queue_activities_per_second"
BURST = "queue_rate_burst_seconds"

Values = Mapping[str, Any]


class LiveConfigUpdater:
    """Applies each new configuration to one worker."""

    def __init__(self, plan: WorkerPlan, worker: Worker, *, is_live: bool = True) -> None:
        self._plan, self._worker, self._may_adjust = plan, worker, is_live
        self._loop = asyncio.get_running_loop()
        self._began, self._now = _values(plan), _values(plan)
        self._last_reported: list[str] = []
        self._at_work: set[asyncio.Task[None]] = set()

    def on_config_change(self, _old: DispatchConfig, new: DispatchConfig) -> None:
        """Callback of the watcher, called from another thread."""
        self._loop.call_soon_threadsafe(self._begin, new)

    def _begin(self, config: DispatchConfig) -> None:
        task = asyncio.ensure_future(self.apply(config))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def apply(self, config: DispatchConfig) -> None:
        """Apply a configuration as far as a running worker can."""
        wanted = self._values_for(config)
        if wanted is None:
            return
        before = self._now
        changed = _differing(before, wanted) if self._may_adjust else []
        live = {name: wanted[name] for name in changed if _is_live(name, before, wanted)}
        self._now = {**before, **live}
        if live:
            await self._adjust(live)
            log.info("The worker applied the new configuration: %s", "; ".join(_changes(before, live)))
        waits = {name: wanted.get(name) for name in _differing(self._now, wanted)}
        self._report_pending_restart(_changes(self._began, waits))

    def _values_for(self, config: DispatchConfig) -> Values | None:
        """The options of a worker started with this configuration; None if it would be refused."""
        what = self._plan.profile
        assert what is not None
        try:
            anew = worker_profile_from(config, what.sources, what.words)
        except WorkerConfigErrors as problem:
            log.error("The worker keeps its configuration; the new one is invalid: %s", problem.message)
            return None
        return _values(replace(self._plan, profile=anew))

    async def _adjust(self, live: Values) -> None:
        by_configuration = (QUEUE_CAP, BURST)
        numbers: Any = {name: value for name, value in live.items() if name not in by_configuration}
        try:
            await self._worker.adjust(**numbers)
        except Exception:
            log.exception("Cannot report the new options to the server; the next heartbeat will")

    def _report_pending_restart(self, waits: list[str]) -> None:
        """Log the changes that need a restart, once."""
        if waits and waits != self._last_reported:
            log.warning("Restart the worker to apply: %s", "; ".join(waits))
        self._last_reported = waits


def _values(plan: WorkerPlan) -> Values:
    """The worker's options, by their names in the configuration."""
    what, options = plan.profile, plan.options()
    assert what is not None
    found = {name: value for name, value in options.items() if name != "claiming"}
    return found | {
        "max_activities_per_second": what.profile.max_activities_per_second,
        "task_queue": what.task_queue,
        "scope": what.scope,
        "auto_heartbeat": what.config.auto_heartbeat,
        "task_timeout": what.config.worker_config.task_timeout,
        QUEUE_CAP: what.queue_cap,
        BURST: what.config.queue_rate_burst_seconds,
    }


def _differing(before: Values, after: Values) -> list[str]:
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def _is_live(name: str, before: Values, after: Values) -> bool:
    """Slot counts that become zero, or cease to be zero, change the registration and need a restart."""
    if name.startswith("max_concurrent"):
        return name in LIVE and bool(before.get(name)) == bool(after.get(name))
    if name in (QUEUE_CAP, BURST):  # they are those of the queue that it serves
        return bool(before["task_queue"] == after["task_queue"])
    return name in LIVE


def _changes(before: Values, after: Values) -> list[str]:
    return [f"{name}: {_shown(before.get(name))} -> {_shown(value)}" for name, value in after.items()]


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    return str(getattr(value, "name", value))
