"""Applies the caps of an app's configuration as live limits of the server, which enforces them for all workers.

A worker sends them when it starts. `core.declared_caps` decides what a start may change: it may set or lower a cap,
raise one with a newer `caps_version`, and never remove one. Each change is a conditional update (`if_version`), so
that two workers that start at the same time decide one after the other. The recorded reason of a change names the app
and its `caps_version`; the change histories of the queue and of the namespace show it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.limits.declared_caps import (
    CapOutcome,
    Declarant,
    LiveCap,
    decide,
    parse_live_cap,
    resolve_claims,
)
from penstock.errors import Reason
from penstock.sdk.app_config.app import AppConfig
from penstock.sdk.clients.client import Client
from penstock.sdk.connection.transport import Transport, route
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.worker.error_policy import log

Json = dict[str, Any]
TRIES = 25
"""A conflict means that another worker made progress, so there are at most as many as distinct configurations."""
LOOK_SECONDS = 10.0
APP_NAME_MAX = 200
"""The recorded length of an app's name."""


@dataclass(frozen=True, slots=True)
class DeclaredCap:
    """One cap: its name in the configuration, and its place at the server."""

    name: str
    wanted: int | None
    path: str
    field: str
    part: str | None = None
    """For a namespace: the kind of task that it limits."""

    def body(self, value: int | str, version: int, reason: str) -> Json:
        about: Json = {"task_queue_type": "activity"} if self.part is None else {"kind": self.part}
        return about | {self.field: value, "reason": reason, "if_version": version}

    def seen(self, response: Json) -> LiveLimit:
        view = response if self.part is None else response.get(self.part) or {}
        limit: Json = (view.get("limits") or {}).get(self.field) or {}
        declared = limit.get("declared")
        value = declared.get("value") if isinstance(declared, dict) else declared
        return LiveLimit(int(view.get("version") or 0), limit.get("live"), value)


@dataclass(frozen=True, slots=True)
class LiveLimit:
    """A limit as the server has it."""

    version: int
    live: Mapping[str, Any] | None
    declared: int | None

    @property
    def value(self) -> int | None:
        return None if self.live is None else self.live.get("value")

    @property
    def description(self) -> str:
        """The value in force, for the message to an app that requested another."""
        if self.live is None and self.declared is not None:
            return f"the server declares {self.declared}, which holds"
        holds = "no cap holds" if self.value is None else f"{self.value} holds"
        return f"{holds} (version {self.version}): it was changed by someone else"

    @property
    def decided_on(self) -> LiveCap | None:
        """The live limit in the form that the decision takes."""
        if self.live is None or self.value is None:
            return None
        return parse_live_cap(self.value, self.live.get("reason"))

    @property
    def set_by(self) -> str:
        """Who set the live limit, for a log line."""
        return "" if self.live is None else str(self.live.get("reason") or self.live.get("updated_by") or "")


@dataclass(frozen=True, slots=True)
class CapNotice:
    """One log line about a cap."""

    message: str
    level: int = logging.WARNING


def caps_of(config: AppConfig, namespace: str) -> list[DeclaredCap]:
    """Return the caps of a configuration: `max_concurrency` of each queue, and `cluster_wide_cap` for all
    activities.
    """
    found = [
        DeclaredCap(
            f"max_concurrency of queue {each.name!r}",
            each.max_concurrency,
            route("task-queues", each.name, "limits"),
            "max_active_leases_per_queue",
        )
        for each in config.queues
    ]
    whole = DeclaredCap(
        "cluster_wide_cap",
        config.cluster_wide_cap,
        route("namespaces", namespace, "limits"),
        "max_active_leases",
        "activity_tasks",
    )
    return [*found, whole]


class DeclaredCaps:
    """Sends the caps of an app when its worker starts, and reports changes by others."""

    def __init__(self, client: Client, app: str, config: AppConfig) -> None:
        self._transport: Transport = client.transport
        self._namespace = client.namespace
        self._by = Declarant(app[:APP_NAME_MAX], config.caps_version)
        self._caps = caps_of(config, client.namespace)
        self._cluster_wide = config.cluster_wide_cap
        self._logged: dict[str, LiveLimit] = {}
        """The limits at the time of the last log line about each."""

    async def send(self) -> list[CapNotice]:
        """Change what `core.declared_caps` allows. Returns the lines to log; the worker starts in any case.

        Raises:
            ServerRefused: for another reason than a missing permission or approval.
        """
        found: list[CapNotice] = []
        for cap in self._caps:
            try:
                found += await self._send(cap)
            except ServerRefused as error:
                if error.status not in (401, 403) and error.reason != Reason.CHANGE_NEEDS_APPROVAL:
                    raise
                if cap.wanted is not None:
                    why = f"and this worker may not set it: {error.message}"
                    found.append(CapNotice(f"{cap.name} is {cap.wanted} here, {why}"))
        return found

    async def _send(self, cap: DeclaredCap) -> list[CapNotice]:
        for _ in range(TRIES):
            seen = cap.seen(await self._read(cap))
            outcome = decide(cap.wanted, self._by, seen.decided_on, seen.declared)
            notices = _notices(cap, seen, outcome, self._by)
            if not outcome.is_change:
                self._logged[cap.path] = seen
                return notices
            assert cap.wanted is not None, "a change has a value"
            after = resolve_claims(cap.wanted, self._by, seen.decided_on)
            body = cap.body(after.value, seen.version, after.reason)
            if outcome is CapOutcome.HANDED_BACK:
                body = cap.body("default", seen.version, self._by.reason)
            try:
                response = await self._transport.control("PATCH", cap.path, body, idempotent=True)
            except ServerRefused as error:
                if error.status != 409 or error.reason == Reason.CHANGE_NEEDS_APPROVAL:
                    raise
            else:
                self._logged[cap.path] = cap.seen(response)
                return notices
        return [CapNotice(f"{cap.name} could not be set: others changed it {TRIES} times meanwhile")]

    async def look(self) -> list[str]:
        """Return log lines about changes by others since the last call."""
        found: list[str] = []
        for cap in self._caps:
            if cap.wanted is None:
                continue
            seen = cap.seen(await self._read(cap))
            if self._logged.get(cap.path) == seen:
                continue
            self._logged[cap.path] = seen
            if seen.value != cap.wanted:
                found.append(f"{cap.name} is {cap.wanted} here, but {seen.description}")
        return found

    async def watch(self, every_s: float = LOOK_SECONDS) -> None:
        """Check for changes periodically until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                for each in await self.look():
                    log.warning("%s", each)
            except (ServerRefused, Unreachable):
                continue  # polls report it

    async def cannot_bind(self, processes: int) -> str | None:
        """Return why the cluster-wide cap has no effect, if all workers together run fewer tasks."""
        cap = self._cluster_wide
        if cap is None:
            return None
        query = {"status": "active"}
        try:
            response = await self._transport.control("GET", "/workers", idempotent=True, query=query)
        except ServerRefused:
            return None  # without permission to list workers it cannot be determined
        total = processes + _slots(response.get("workers") or [])
        if cap < total:
            return None
        return f"cluster_wide_cap={cap} cannot bind: the workers that are there run {total} tasks at the most"

    async def _read(self, cap: DeclaredCap) -> Json:
        query = {"task_queue_type": "activity"} if cap.part is None else None
        return await self._transport.control("GET", cap.path, idempotent=True, query=query)


def _notices(cap: DeclaredCap, seen: LiveLimit, outcome: CapOutcome, by: Declarant) -> list[CapNotice]:
    """Return the log lines about a decision, if there is anything to report."""
    if outcome is CapOutcome.UNNAMED:
        if seen.value is None:
            return []
        text = f"{cap.name} is not set here; {seen.value} stays in force ({seen.set_by})"
        return [CapNotice(text, logging.INFO)]
    template = _TEMPLATES.get(outcome)
    if template is None or cap.wanted is None:
        return []
    after = cap.wanted
    if outcome is CapOutcome.RAISED:
        after = resolve_claims(cap.wanted, by, seen.decided_on).value
        template += (
            "" if after == cap.wanted else "; {wanted} is wanted here, and the cap of another app is lower"
        )
    text = template.format(
        name=cap.name,
        wanted=cap.wanted,
        after=after,
        now=seen.value,
        version=seen.version,
        declared=seen.declared,
        set_by=seen.set_by,
        mine=by.version,
    )
    is_quiet = outcome in (CapOutcome.SET, CapOutcome.CONFIRMED)
    return [CapNotice(text, logging.INFO if is_quiet else logging.WARNING)]


_LIFT = "an operator can change it with `penstock task-queue limits set` or `penstock namespace limits set`"
_OTHER_APP = "{name} is {wanted} here; {now} stays in force, which another app has set ({set_by}): " + _LIFT
_TEMPLATES = {
    CapOutcome.SET: "{name} is set to {wanted}",
    CapOutcome.LOWERED: "{name} is lowered from {now} ({set_by}) to {wanted}",
    CapOutcome.RAISED: "{name} is raised from {now} ({set_by}) to {after} by caps_version {mine}",
    CapOutcome.CONFIRMED: "{name} stays {now}, now by caps_version {mine}",
    CapOutcome.HANDED_BACK: "{name} is {wanted} here; the server declares {declared}, which is in force from now on"
    " instead of {now} ({set_by})",
    CapOutcome.KEPT_OPERATOR: "{name} is {wanted} here; an operator has set {now} (version {version}),"
    " which stays in force",
    CapOutcome.KEPT_SERVER: "{name} is {wanted} here; the server declares {declared}, which stays in force",
    CapOutcome.RECORDED: _OTHER_APP,
    CapOutcome.KEPT_OTHER_APP: _OTHER_APP,
    CapOutcome.KEPT_NEWER: "{name} is {wanted} here, by caps_version {mine}; {now} stays in force, which a newer"
    " configuration has set ({set_by})",
    CapOutcome.KEPT_LOWER: "{name} is {wanted} here; {now} stays in force ({set_by}): a worker raises a cap only with a"
    " higher caps_version in its AppConfig, and " + _LIFT,
}


def _slots(workers: Sequence[Json]) -> int:
    """Return the total slots of workers. A worker of several queues is listed several times with the same slots."""
    found: dict[object, int] = {}
    for each in workers:
        process = each.get("process_metrics") or {}
        one = (process.get("host"), process.get("process_id"), process.get("process_started_at"))
        key = one if any(one) else each.get("worker_id")
        found[key] = max(found.get(key, 0), int(each.get("max_concurrent_activity_tasks") or 0))
    return sum(found.values())
