"""Schedules that an app declares with `@app.task(schedule=…)` or in its dispatch file, applied when a worker starts.

A declaration has an owner for each part. *When* the task runs and *what* is sent belong to the declaration: a schedule
is changed when they are, and only then. Everything else, as pauses, notes, overlap policy and catch-up window, is live:
an operator changes it with `penstock schedule`, and it survives a deploy. So does a changed expression, until the
declaration changes.

The memo of a schedule names the app that declares it and a digest of the declaration. A schedule of that id without it
was created by others and is left alone. A schedule whose declaration is gone is paused, not deleted, with a note that
says so: a rollback of the deploy brings the declaration back and resumes it, with its counters and its history.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.dispatch import DispatchConfig
from penstock.dispatch.schedules import DeclaredSchedule
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.schedules.actions import (
    ScheduleAction,
    ScheduleActionStartActivity,
    ScheduleActionStartWorkflow,
)
from penstock.sdk.clients.schedules.descriptions import (
    ScheduleDescription,
    ScheduleUpdate,
)
from penstock.sdk.clients.schedules.schedule import Schedule, UnsetFieldError
from penstock.sdk.clients.schedules.spec import ScheduleIntervalSpec, ScheduleSpec
from penstock.sdk.failures import (
    NotOnThisEngineError,
    ScheduleAlreadyRunningError,
    ScheduleNotFoundError,
    ServerRefused,
)
from penstock.sdk.tasks.options import TaskOptions

if TYPE_CHECKING:
    from collections.abc import Callable

TaskSpec: TypeAlias = str | timedelta | ScheduleSpec
"""A cron expression in UTC, an interval, or a whole specification."""
DECLARED_BY: Final = "declared_by"
DIGEST: Final = "declaration"
AGAIN: Final = "declared again"
LOOKED_AT_MAX: Final = 2_000
"""So many of the newest active schedules are searched for ones whose declaration is gone."""


@dataclass(frozen=True, slots=True)
class ScheduleNotice:
    """One log line about a declared schedule."""

    message: str
    level: int = logging.INFO


def task_spec(given: TaskSpec, fn: Callable[..., Any]) -> ScheduleSpec:
    """The specification of a task's schedule; raises `TypeError` for a task that needs arguments."""
    required = [
        each.name
        for each in inspect.signature(fn).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if required:
        raise TypeError(
            f"A task with a schedule is called without arguments, and {fn.__qualname__} needs {', '.join(required)}:"
            " give them defaults, or create the schedule with client.create_schedule"
        )
    match given:
        case ScheduleSpec():
            return given
        case timedelta():
            return ScheduleSpec(intervals=[ScheduleIntervalSpec(every=given)])
        case str():
            return ScheduleSpec(cron_expressions=[given])
        case _:
            raise TypeError(
                f'schedule is a cron expression such as "0 3 * * *", a timedelta or a ScheduleSpec, not {given!r}'
            )


def scheduled_task(name: str, options: TaskOptions, spec: ScheduleSpec) -> Schedule:
    """The schedule that a task declares. `good_until` limits how long a fire waits for a worker."""
    given: dict[str, Any] = dict(options.start(name))
    until = given.pop("good_until", None)
    if isinstance(until, datetime):
        raise TypeError(f'task "{name}": good_until of a task with a schedule is a timedelta')
    if until is not None:
        given["schedule_to_start_timeout"] = until
    return Schedule(action=ScheduleActionStartActivity(name, **given), spec=spec)


def schedules_of_file(config: DispatchConfig) -> dict[str, Schedule]:
    """The schedules that a dispatch file declares, by name. Its routes and options hold for activities."""
    return {name: Schedule(_action(each, config), _spec(each)) for name, each in config.schedules.items()}


def _action(declared: DeclaredSchedule, config: DispatchConfig) -> ScheduleAction:
    queue, args = declared.task_queue, list(declared.args)
    if declared.workflow is not None:
        home = queue or config.worker_config.default_task_queue
        return ScheduleActionStartWorkflow(declared.workflow, args=args, task_queue=home)
    assert declared.activity is not None
    given: Any = {} if queue is None else {"task_queue": queue}
    return ScheduleActionStartActivity(declared.activity, args=args, **given).resolved_by(config)


def _spec(declared: DeclaredSchedule) -> ScheduleSpec:
    return ScheduleSpec(
        cron_expressions=list(declared.cron),
        intervals=[] if declared.every is None else [ScheduleIntervalSpec(declared.every)],
        time_zone_name=declared.timezone,
        jitter=declared.jitter,
    )


class DeclaredSchedules:
    """Applies the schedules that an app declares.

    Args:
        client: client of the app, with permission to change schedules.
        app: name of the app.
        declared: the schedules by task or by name.
    """

    def __init__(self, client: Client, app: str, declared: Mapping[str, Schedule]) -> None:
        self._client, self._app = client, app
        self._declared = {f"{app}.{task}": schedule for task, schedule in declared.items()}

    async def apply(self) -> Sequence[ScheduleNotice]:
        """Create, change, resume and pause schedules, so that they are as declared. Returns the lines to log.

        Raises:
            ServerRefused: for another reason than a missing permission.
            NotOnThisEngineError: schedules are declared, and the client is of another engine.
        """
        engine = getattr(self._client.transport, "engine", None)
        if engine is not None:
            if not self._declared:
                return []
            names = ", ".join(self._declared)
            what = f"a declared schedule ({names})"
            raise NotOnThisEngineError(what, engine=engine.capitalize(), why="use create_schedule")
        try:
            found = [await self._apply(name, schedule) for name, schedule in self._declared.items()]
            return [*(each for each in found if each is not None), *await self._pause_undeclared()]
        except ServerRefused as error:
            if error.status not in (401, 403):
                raise
            if not self._declared:
                return []  # whether there are any of before cannot be found out
            why = f"this worker's token may not change schedules: {error.message}"
            return [ScheduleNotice(f"The schedules of {self._app} were not applied: {why}", logging.WARNING)]

    async def _apply(self, name: str, schedule: Schedule) -> ScheduleNotice | None:
        memo = {DECLARED_BY: self._app, DIGEST: self._digest(schedule)}
        handle = self._client.get_schedule_handle(name)
        try:
            there = await handle.describe()
        except ScheduleNotFoundError:
            try:
                await self._client.create_schedule(name, schedule, memo=memo)
            except ScheduleAlreadyRunningError:
                return None  # another worker, which started at the same time
            return ScheduleNotice(f"Created the schedule {name}")
        if there.memo.get(DECLARED_BY) != self._app:
            problem = "was not created by its declaration, and stays as it is"
            return ScheduleNotice(f"The schedule {name} {problem}", logging.WARNING)
        if there.schedule.state.paused and there.schedule.state.note == self._gone:
            await handle.unpause(note=AGAIN)
            there = await handle.describe()
        if there.memo.get(DIGEST) == memo[DIGEST]:
            return None

        live = there.schedule
        wanted = Schedule(schedule.action, schedule.spec, live.policy, live.state)
        try:
            await handle.update(lambda _: ScheduleUpdate(wanted, memo=memo))
        except UnsetFieldError:  # an option is gone, which an update cannot unset
            await handle.delete()
            await self._client.create_schedule(name, wanted, memo=memo)
        return ScheduleNotice(f"Changed the schedule {name}, whose declaration changed")

    async def _pause_undeclared(self) -> Sequence[ScheduleNotice]:
        found: list[ScheduleNotice] = []
        async for each in self._client.list_schedules(status="active", limit=LOOKED_AT_MAX):
            if self._is_undeclared(each):
                await self._client.get_schedule_handle(each.id).pause(note=self._gone)
                found.append(
                    ScheduleNotice(
                        f"Paused the schedule {each.id}, which {self._app} declares no more", logging.WARNING
                    )
                )
        return found

    def _is_undeclared(self, each: ScheduleDescription) -> bool:
        return each.memo.get(DECLARED_BY) == self._app and each.id not in self._declared

    @property
    def _gone(self) -> str:
        return f"{self._app} declares it no more"

    def _digest(self, schedule: Schedule) -> str:
        """Names the declaration. Arguments are taken as they are: a codec may encode them differently each time."""
        body = schedule.on_the_wire(self._client.data_converter, None)
        action = {name: value for name, value in body["action"].items() if name not in ("input", "dispatch")}
        given = [body["spec"], body["jitter_seconds"], action, list(schedule.action.args)]
        text = json.dumps(given, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
