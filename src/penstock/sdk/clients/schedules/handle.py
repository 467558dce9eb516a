"""Handle of a schedule."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from penstock.dispatch import DispatchConfig
from penstock.errors import Reason
from penstock.sdk.clients.handles import ClientContext
from penstock.sdk.clients.schedules.descriptions import (
    ScheduleActionResult,
    ScheduleDescription,
    ScheduleTriggerResult,
    ScheduleUpdate,
    ScheduleUpdateInput,
    ScheduleWarning,
    read_trigger,
)
from penstock.sdk.clients.schedules.schedule import (
    ScheduleBackfill,
    ScheduleOverlapPolicy,
    changes,
    overlap_field,
)
from penstock.sdk.clients.schedules.spec import Json
from penstock.sdk.connection.transport import route_of
from penstock.sdk.errors.server_errors import ServerRefused
from penstock.sdk.search_attributes import attributes_by_name

Updater = Callable[[ScheduleUpdateInput], ScheduleUpdate | Awaitable[ScheduleUpdate | None] | None]
EVENTS_PAGE: Final = 500
UPDATES_MAX: Final = 5
"""How often an update is tried while others update the schedule, too."""
BACKFILL_SECONDS: Final = 120.0
"""A backfill may start 10,000 runs."""


class ScheduleHandle:
    """A schedule that was created or looked up."""

    def __init__(
        self,
        context: ClientContext,
        id: str,  # noqa: A002 - the word of the API
        dispatch: Callable[[], DispatchConfig | None],
        warnings: Sequence[ScheduleWarning] = (),
    ) -> None:
        self._context = context
        self._dispatch = dispatch
        self.id = id
        self.warnings = tuple(warnings)
        """What the server warned of when this handle's call created the schedule."""

    def __repr__(self) -> str:
        return f"ScheduleHandle({self.id!r})"

    async def describe(self) -> ScheduleDescription:
        """Return the schedule, its counters, its latest fires and its next moments.

        Raises:
            ScheduleNotFoundError: there is no such schedule.
        """
        return ScheduleDescription.read(await self._send("GET", idempotent=True), self._context.converter)

    async def update(self, updater: Updater) -> None:
        """Change the schedule.

        By a new specification it fires from now on: moments in the past are not caught up. Only what the function
        changed is sent. If somebody else updates the schedule in the meantime, the function is called again with the
        new description.

        Args:
            updater: function, async or not, that receives the description and returns the schedule as it is to be.
                It may change and return the schedule of the description. With None nothing is changed.
        """
        for attempt in range(UPDATES_MAX):
            try:
                return await self._update(updater)
            except ServerRefused as refused:
                if refused.reason != Reason.SCHEDULE_VERSION_CONFLICT or attempt == UPDATES_MAX - 1:
                    raise
        return None

    async def _update(self, updater: Updater) -> None:
        description = await self.describe()
        schedule, config, converter = description.schedule, self._dispatch(), self._context.converter
        fires, was_paused = description.info.num_actions, schedule.state.paused
        before = schedule.on_the_wire(converter, config, fires)
        found = updater(ScheduleUpdateInput(description))
        update = await found if inspect.isawaitable(found) else found
        if update is None:
            return
        body = changes(before, update.schedule.on_the_wire(converter, config, fires))
        attributes = attributes_by_name(update.search_attributes)
        for name, value in (("memo", update.memo), ("search_attributes", attributes)):
            if value is not None:
                body[name] = dict(value)
        if body:
            # not idempotent: a repeated one would find the version that it made itself
            body["if_version"] = description.version
            await self._send("PUT", body=body, idempotent=False)
        if update.schedule.state.paused != was_paused:
            change = self.pause if update.schedule.state.paused else self.unpause
            await change(note=update.schedule.state.note)

    async def pause(self, *, note: str | None = None) -> None:
        """Pause the schedule. Runs that it started go on.

        Args:
            note: why, for people.
        """
        await self._send("POST", "pause", body=_noted(note), idempotent=True)

    async def unpause(self, *, note: str | None = None) -> None:
        """Resume the schedule at its next moment. Moments during the pause are not caught up.

        Args:
            note: why, for people.
        """
        await self._send("POST", "resume", body=_noted(note), idempotent=True)

    async def trigger(self, *, overlap: ScheduleOverlapPolicy | None = None) -> ScheduleTriggerResult:
        """Fire the schedule now, also if it is paused.

        Args:
            overlap: overlap policy for this fire; None is that of the schedule.
        """
        return read_trigger(
            await self._send("POST", "trigger", body=overlap_field(overlap), idempotent=False)
        )

    async def backfill(
        self, *backfill: ScheduleBackfill, dry_run: bool = False
    ) -> Sequence[ScheduleActionResult]:
        """Fire the schedule now for each of its moments in past periods, and return what became of each.

        A moment that was backfilled before is not started again.

        Args:
            backfill: the periods, with at most 10,000 moments each.
            dry_run: only return the moments.
        """
        if not backfill:
            raise ValueError("A backfill has at least one period: ScheduleBackfill(start_at=…, end_at=…)")
        found: list[ScheduleActionResult] = []
        for each in backfill:
            body = each.on_the_wire() | ({"dry_run": True} if dry_run else {})
            response = await self._send(
                "POST", "backfill", body=body, idempotent=True, timeout_s=BACKFILL_SECONDS
            )
            found += [ScheduleActionResult.read(result) for result in response["results"]]
        return found

    async def delete(self) -> None:
        """Delete the schedule. Runs that it started go on; its events can still be read."""
        await self._send("DELETE", idempotent=False)

    async def fetch_history_events(self, *, after_sequence: int = 0) -> AsyncIterator[Json]:
        """Yield the events of the schedule, oldest first: changes, fires, and fires that were skipped, with reasons.

        Args:
            after_sequence: only events after the one with this number.
        """
        seen: int | None = after_sequence
        while seen is not None:
            query = {"limit": EVENTS_PAGE, "after_sequence": seen}
            page = await self._send("GET", "history", idempotent=True, query=query)
            for event in page["events"]:
                yield event
            seen = page["next_cursor"]

    async def _send(
        self,
        method: str,
        *action: str,
        idempotent: bool,
        body: Json | None = None,
        query: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        path = route_of("schedules", self.id, *action)
        return await self._context.transport.control(
            method, path, body, idempotent=idempotent, query=query, timeout_s=timeout_s
        )


def _noted(note: str | None) -> Json:
    return {} if note is None else {"note": note}
