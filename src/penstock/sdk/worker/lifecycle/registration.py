"""Worker registration: register, send heartbeats, deregister."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from penstock.errors import Reason
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.worker.error_policy import ErrorPolicy, is_fatal, is_transient, retry_after_s
from penstock.sdk.worker.lifecycle import process_info
from penstock.sdk.worker.matching.backoff import Backoff
from penstock.sdk.worker.worker_api import WorkerApi

Json = dict[str, Any]
INTERVAL_S = 20.0
"""Heartbeat interval until the server has set one."""
LEAVE_SECONDS = 5.0


class WorkerRegistration:
    """The registration of one worker. It registers again whenever the server no longer knows it."""

    def __init__(
        self,
        api: WorkerApi,
        registration_body: Callable[[], Json],
        slots: Callable[[], Json],
        error_policy: ErrorPolicy,
        *,
        unused_kinds: tuple[str, ...] = (),
        reported_rates: Callable[[], Json],
    ) -> None:
        """`reported_rates` is repeated with every heartbeat, because a worker whose slots stay full does not poll."""
        self._api, self._registration_body, self._slots, self._error_policy = (
            api,
            registration_body,
            slots,
            error_policy,
        )
        self._offered_slots: Json = {f"max_concurrent_{kind}_tasks": 0 for kind in unused_kinds}
        self._reported_rates = reported_rates
        self._interval_s = INTERVAL_S
        self._registering = asyncio.Lock()
        self.server_capabilities: Json = {}
        self.asks_source_lines = False
        """Whether the server wants the source lines around the frames of failures."""

    async def register(self) -> None:
        """Register, retrying with backoff while the server is unreachable. Other refusals are raised."""
        pauses = Backoff()
        async with self._registering:
            while True:
                try:
                    await self._register_once()
                except (ServerRefused, Unreachable) as error:
                    if is_fatal(error) or not is_transient(error):
                        raise
                    self._error_policy.report_error(error)
                    await asyncio.sleep(pauses.pause_s(retry_after_s(error)))
                else:
                    self._error_policy.report_recovery()
                    return

    async def _register_once(self) -> None:
        response = await self._api.register(
            self._registration_body() | self._reported_rates() | self._status()
        )
        self._apply_settings(response)
        if (
            self._offered_slots
        ):  # a registration must offer at least one slot of each kind; a heartbeat may offer none
            self._apply_settings(await self._api.heartbeat(self._offered_slots | self._status()))

    async def send_heartbeats(self) -> None:
        """Send heartbeats at the server's interval until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self._send_heartbeat()

    async def report_slots(self, **slots: int) -> None:
        """Report new slot counts immediately. Kinds that this worker does not run keep zero slots."""
        changed = {f"max_concurrent_{kind}_tasks": total for kind, total in slots.items()}
        self._offered_slots = changed | {name: 0 for name, total in self._offered_slots.items() if not total}
        await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        try:
            self._apply_settings(
                await self._api.heartbeat(self._offered_slots | self._reported_rates() | self._status())
            )
        except (ServerRefused, Unreachable) as error:
            if isinstance(error, ServerRefused) and error.reason == Reason.WORKER_NOT_REGISTERED:
                await self.register()
            elif is_fatal(error):
                raise
            else:
                self._error_policy.report_error(error)

    async def deregister(self) -> None:
        """Deregister, so that tasks leased to this worker are redelivered immediately.

        If the server is unreachable or the client is closed, the registration expires on its own.
        """
        with contextlib.suppress(ServerRefused, Unreachable, TimeoutError, RuntimeError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._api.deregister()

    def _status(self) -> Json:
        return {"task_slots": self._slots(), "process_metrics": process_info.metrics()}

    def _apply_settings(self, response: Json) -> None:
        seconds = response.get("heartbeat_interval_seconds")
        if isinstance(seconds, int | float) and seconds > 0:
            self._interval_s = float(seconds)
        self.asks_source_lines = response.get("source_lines") is True
        capabilities = response.get("server_capabilities")
        if isinstance(capabilities, dict):
            self.server_capabilities = capabilities
