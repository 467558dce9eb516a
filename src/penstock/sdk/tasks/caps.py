"""The caps of an app's configuration, as live limits of the server, which holds them for all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.models.app import AppConfig
from penstock.sdk.client import Client
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.transport import Transport, route
from penstock.sdk.worker.trouble import log

Json = dict[str, Any]
REASON = "AppConfig of "
"""How a limit begins that comes from a configuration, and not from a person."""
TRIES = 5
LOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Cap:
    """One cap: what the configuration calls it, and where the server keeps it."""

    told: str
    wanted: int | None
    path: str
    field: str
    part: str | None = None
    """Of a namespace: the tasks that it is about."""

    def body(self, value: int | str, version: int, reason: str) -> Json:
        about: Json = {"task_queue_type": "activity"} if self.part is None else {"kind": self.part}
        return about | {self.field: value, "reason": reason, "if_version": version}

    def seen(self, answer: Json) -> Seen:
        view = answer if self.part is None else answer.get(self.part) or {}
        limit: Json = (view.get("limits") or {}).get(self.field) or {}
        declared = limit.get("declared")
        value = declared.get("value") if isinstance(declared, dict) else declared
        return Seen(int(view.get("version") or 0), limit.get("live"), value)


@dataclass(frozen=True, slots=True)
class Seen:
    """How a limit stands at the server."""

    version: int
    live: Mapping[str, Any] | None
    declared: int | None

    @property
    def value(self) -> int | None:
        return None if self.live is None else self.live.get("value")

    @property
    def told(self) -> str:
        """What holds, to somebody who wanted something else."""
        if self.live is None and self.declared is not None:
            return f"the server declares {self.declared}, which holds"
        holds = "no cap holds" if self.value is None else f"{self.value} holds"
        return f"{holds} (version {self.version}): somebody has changed it"

    @property
    def is_by_a_configuration(self) -> bool:
        return self.live is not None and str(self.live.get("reason") or "").startswith(REASON)


def caps_of(config: AppConfig, namespace: str) -> list[Cap]:
    """A queue's `max_concurrency` is its cap of active leases, `cluster_wide_cap` that of all activities here."""
    found = [
        Cap(
            f"max_concurrency of queue {each.name!r}",
            each.max_concurrency,
            route("task-queues", each.name, "limits"),
            "max_active_leases_per_queue",
        )
        for each in config.queues
    ]
    whole = Cap(
        "cluster_wide_cap",
        config.cluster_wide_cap,
        route("namespaces", namespace, "limits"),
        "max_active_leases",
        "activity_tasks",
    )
    return [*found, whole]


class Caps:
    """Sends the caps of an app when its worker starts, and tells when somebody else says otherwise."""

    def __init__(self, client: Client, app: str, config: AppConfig) -> None:
        self._transport: Transport = client.transport
        self._namespace = client.namespace
        self._reason = f"{REASON}{app}"
        self._caps = caps_of(config, client.namespace)
        self._cluster_wide = config.cluster_wide_cap
        self._told: dict[str, Seen] = {}
        """How limits stood when something was said of them."""

    async def send(self) -> list[str]:
        """Set what is not set yet. What is odd about it is returned, and the worker starts all the same.

        The last worker to start is heard; a limit that a person set, or that the server declares, is left in force.
        """
        found: list[str] = []
        for cap in self._caps:
            try:
                found += await self._send(cap)
            except ServerRefused as error:
                if error.status not in (401, 403):
                    raise
                if cap.wanted is not None:
                    why = f"and this worker's token may not set it: {error.message}"
                    found.append(f"{cap.told} is {cap.wanted} here, {why}")
        return found

    async def _send(self, cap: Cap) -> list[str]:
        for _ in range(TRIES):
            seen = cap.seen(await self._read(cap))
            wanted, odd = self._decide(cap, seen)
            if wanted is _NOTHING:
                self._told[cap.path] = seen
                return odd
            assert isinstance(wanted, int | str)
            try:
                await self._transport.control(
                    "PATCH", cap.path, cap.body(wanted, seen.version, self._reason), idempotent=True
                )
            except ServerRefused as error:
                if error.status != 409:
                    raise
            else:
                return odd
        return [f"{cap.told} could not be set: others change it all the time"]

    def _decide(self, cap: Cap, seen: Seen) -> tuple[int | str | object, list[str]]:
        """What to set, if anything, and what to say of it."""
        if cap.wanted is None:
            mine = seen.live is not None and seen.live.get("reason") == self._reason
            return ("default" if mine else _NOTHING), []
        if seen.live is not None and not seen.is_by_a_configuration:
            if seen.value == cap.wanted:
                return _NOTHING, []
            return _NOTHING, [
                f"{cap.told} is {cap.wanted} here; an operator has set {seen.value}"
                f" (version {seen.version}), which stays in force"
            ]
        if seen.declared is not None and seen.declared < cap.wanted:
            return _NOTHING, [
                f"{cap.told} is {cap.wanted} here; the server declares {seen.declared}, which stays in force"
            ]
        if seen.value == cap.wanted:
            return _NOTHING, []
        if seen.live is None:
            return cap.wanted, []
        return cap.wanted, [
            f"{cap.told} is {cap.wanted} here, and was {seen.value} by the configuration of another worker"
            f" (version {seen.version}): {cap.wanted} holds from now on"
        ]

    async def look(self) -> list[str]:
        """What others have changed since; each change is told once."""
        found: list[str] = []
        for cap in self._caps:
            if cap.wanted is None:
                continue
            seen = cap.seen(await self._read(cap))
            if self._told.get(cap.path) == seen:
                continue
            self._told[cap.path] = seen
            if seen.value != cap.wanted:
                found.append(f"{cap.told} is {cap.wanted} here, but {seen.told}")
        return found

    async def watch(self, every_s: float = LOOK_SECONDS) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                for each in await self.look():
                    log.warning("%s", each)
            except (ServerRefused, Unreachable):
                continue  # polls tell of it

    async def cannot_bind(self, processes: int) -> str | None:
        """Why the cap of everything can never count, if it cannot: all workers together run fewer tasks."""
        cap = self._cluster_wide
        if cap is None:
            return None
        query = {"status": "active"}
        try:
            answer = await self._transport.control("GET", "/workers", idempotent=True, query=query)
        except ServerRefused:
            return None  # who may not see the others cannot tell
        total = processes + _slots(answer.get("workers") or [])
        if cap < total:
            return None
        return f"cluster_wide_cap={cap} cannot bind: the workers that are there run {total} tasks at the most"

    async def _read(self, cap: Cap) -> Json:
        query = {"task_queue_type": "activity"} if cap.part is None else None
        return await self._transport.control("GET", cap.path, idempotent=True, query=query)


_NOTHING = object()


def _slots(workers: Sequence[Json]) -> int:
    """What workers run at the most. One that serves several queues is there several times, with the same places."""
    found: dict[object, int] = {}
    for each in workers:
        process = each.get("process_metrics") or {}
        one = (process.get("host"), process.get("process_id"), process.get("process_started_at"))
        key = one if any(one) else each.get("worker_id")
        found[key] = max(found.get(key, 0), int(each.get("max_concurrent_activity_tasks") or 0))
    return sum(found.values())
