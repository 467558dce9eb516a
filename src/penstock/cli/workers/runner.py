"""Runs the workers of a plan until they are stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.cli.workers.plan import WorkerPlan

if TYPE_CHECKING:
    import asyncio
    from signal import Signals

    from penstock.dispatch.watcher import WatchedDispatch
    from penstock.sdk.app import Penstock
    from penstock.sdk.clients.client import Client
    from penstock.sdk.worker import Worker

ANSWER_SECONDS = 3.0


class WorkerRunner:
    """The workers of a plan, and the background tasks beside them."""

    def __init__(self, plan: WorkerPlan, on_start: Callable[[], None]) -> None:
        self._plan, self._on_start = plan, on_start
        self._workers: list[Worker] = []
        self._background: set[asyncio.Task[None]] = set()

    def run(self) -> Signals | None:
        """Run until stopped; returns the signal that forced the exit, if any."""
        from penstock.sdk.worker import run_worker

        groups = [list(self._plan.queues)] if self._plan.is_one else [[each] for each in self._plan.queues]
        return run_worker(*[partial(self._worker, group, group is groups[0]) for group in groups])

    @property
    def killed(self) -> int:
        return sum(each.killed for each in self._workers)

    async def _worker(self, queues: list[str], is_first: bool) -> Worker:
        from penstock.cli.workers.live_config import LiveConfigUpdater
        from penstock.sdk.worker import Worker

        plan = self._plan
        if is_first:
            await plan.app.clients.check(timedelta(seconds=ANSWER_SECONDS))
        client = await plan.app.client()
        if is_first:
            self._on_start()
            if plan.engine is None:
                await self._send_caps(client)
                await self._apply_schedules()
        chosen = plan.chosen
        name = plan.flags.name
        watched = self._watched()
        worker = Worker(
            client,
            task_queues=queues,
            workflows=plan.app.workflows if chosen is None else chosen.workflows,
            activities=_all_activities(plan.app) if chosen is None else chosen.activities,
            identity=name if name is None or plan.is_one else f"{name}/{queues[0]}",
            dispatch=watched or (None if plan.profile is None else plan.profile.config),
            **plan.options(),
        )
        self._workers.append(worker)
        if watched is not None:
            watched.on_change(LiveConfigUpdater(plan, worker, is_live=plan.engine is None).on_config_change)
            self._run_in_background(watched.watch())
        return worker

    def _watched(self) -> WatchedDispatch | None:
        """The configuration, reloaded when its files change."""
        what = self._plan.profile
        return None if what is None else what.sources.watched(what.config)

    async def _send_caps(self, client: Client) -> None:
        from penstock.sdk.tasks.declared_caps import DeclaredCaps
        from penstock.sdk.worker.error_policy import log

        plan = self._plan
        if plan.in_processes or plan.app.config is not None:
            log.info("%s", plan.concurrency_line())
        if plan.app.config is None:
            return
        for each in _unused(plan.app):
            log.info("%s", each)
        caps = DeclaredCaps(client, plan.app.name, plan.app.config)
        for outcome in await caps.send():
            log.log(outcome.level, "%s", outcome.message)
        notice = await caps.cannot_bind(plan.slots) if plan.app.config.cluster_wide_cap else None
        if notice is not None:
            log.warning("%s", notice)
        self._run_in_background(caps.watch())

    async def _apply_schedules(self) -> None:
        from penstock.sdk.worker.error_policy import log

        profile = self._plan.profile
        for notice in await self._plan.app.apply_schedules(None if profile is None else profile.config):
            log.log(notice.level, "%s", notice.message)

    def _run_in_background(self, work: Awaitable[None]) -> None:
        import asyncio

        task = asyncio.ensure_future(work)
        self._background.add(task)  # it ends with the loop


def _all_activities(app: Penstock) -> list[Callable[..., Any]]:
    return [*app.tasks.values(), *app.activities]


def _unused(app: Penstock) -> list[str]:
    """Settings of the app's configuration that workers ignore, as log lines."""
    config = app.config
    if config is None or config.broker is None or not config.broker.unused:
        return []
    return [
        "PostgresConfig: not used by workers, the server has the database: " + ", ".join(config.broker.unused)
    ]
