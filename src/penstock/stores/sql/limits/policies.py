"""Policies of task queues and fairness keys in SQL, and the log of their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.core.limits import windows
from penstock.core.limits.policies import KeySettings, KeyState, Policy, PolicyChange
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.limits.rates import NANO_PER_MS
from penstock.core.limits.windows import Counts
from penstock.core.model import QueueId
from penstock.core.scheduling.backlog import KeyFilter
from penstock.core.scheduling.fairness import LaneState
from penstock.stores.sql.session import Repository


class SqlPolicies(Repository):
    async def key_states(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeyState]:
        rows = await self._session.fetch("key_states", queue_id, _listed(keys))
        return {row[1]: KeyState(*row[1:]) for row in rows}

    async def keys_without_backlog(
        self, queue_id: QueueId, wanted: KeyFilter, after: str, limit: int
    ) -> Sequence[KeyState]:
        rows = await self._session.fetch(
            "keys_without_backlog", queue_id, wanted.search, wanted.key, after, limit
        )
        return [KeyState(*row[1:]) for row in rows]

    async def key_settings(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeySettings]:
        rows = await self._session.fetch("key_settings_of", queue_id, _listed(keys))
        return {row[1]: KeySettings(*row[1:]) for row in rows}

    async def keys_with_settings(self, queue_id: QueueId, limit: int) -> Sequence[KeySettings]:
        rows = await self._session.fetch("keys_with_settings", queue_id, limit)
        return [KeySettings(*row[1:]) for row in rows]

    async def count_keys_with_settings(self, queue_id: QueueId) -> int:
        return int((await self._session.fetch("count_keys_with_settings", queue_id))[0][1])

    async def changes(self, queue_id: QueueId, limit: int) -> Sequence[PolicyChange]:
        rows = await self._session.fetch("policy_changes", queue_id, limit)
        return [PolicyChange(*row[1:]) for row in rows]

    async def newest_changes(
        self, namespace: str, before_ms: int, limit: int
    ) -> Sequence[tuple[str, str, PolicyChange]]:
        rows = await self._session.fetch("newest_policy_changes", namespace, before_ms, limit)
        return [(row[1], row[2], PolicyChange(*row[3:])) for row in rows]

    async def count_leases(self, queue_id: QueueId) -> None:
        await self._session.fetch("mark_leases_counted", queue_id)
        await self._session.fetch("uncount_all_keys", queue_id)
        await self._session.fetch("count_leases_by_key", queue_id)

    async def rank_lanes(self, queue_id: QueueId, *, by_running: bool) -> None:
        await self._session.fetch("rank_lanes_by_running" if by_running else "unrank_lanes", queue_id)

    async def idle_keys(self, now_ms: int, limit: int) -> Sequence[tuple[QueueId, str]]:
        rows = await self._session.fetch("idle_keys", now_ms * NANO_PER_MS, limit)
        return [(QueueId(row[1]), row[2]) for row in rows]

    def save(self, queue_id: QueueId, policy: Policy) -> None:
        self._session.record("save_policy", queue_id, msgspec.json.encode(policy).decode())

    def save_worker_rate(self, queue_id: QueueId, rate: WorkerRate | None) -> None:
        if rate is None:
            self._session.record("save_worker_rate", queue_id, *[None] * 6)
            return
        conflict = None if rate.conflict is None else msgspec.json.encode(rate.conflict).decode()
        self._session.record(
            "save_worker_rate",
            queue_id,
            rate.micro,
            rate.worker_id,
            rate.at_ms,
            rate.until_ms,
            rate.burst_ms,
            conflict,
        )

    def save_key(self, queue_id: QueueId, settings: KeySettings) -> None:
        at_ms = None if settings.is_empty else settings.at_ms
        self._session.record(
            "save_key",
            queue_id,
            settings.key,
            settings.weight_milli,
            settings.rate_micro,
            settings.lease_cap,
            settings.paused,
            settings.author,
            at_ms,
            settings.reason,
        )

    def log(self, queue_id: QueueId, changes: Sequence[PolicyChange]) -> None:
        for number, change in enumerate(changes):
            self._session.record(
                "log_policy_change",
                queue_id,
                change.version,
                number,
                change.at_ms,
                change.author,
                change.setting,
                change.key,
                change.before,
                change.after,
                change.reason,
            )

    def forget_changes(self, queue_id: QueueId, up_to_version: int) -> None:
        self._session.record("forget_policy_changes", queue_id, up_to_version)

    def spend(self, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int) -> None:
        self._session.record("spend_key", queue_id, key, paid_until_ns, leased)

    def settle(self, queue_id: QueueId, paid_until_ns: int, aging_turn: int, window: Counts) -> None:
        self._session.record("settle_queue", queue_id, paid_until_ns, aging_turn, windows.written(window))

    def touch_key(self, queue_id: QueueId, key: str, lane_state: LaneState) -> None:
        self._session.record("mark_lanes", queue_id, key, int(lane_state))

    def rerank_others(self, queue_id: QueueId, level: int, key: str) -> None:
        self._session.record("rerank_other_lanes", queue_id, key, level)

    def reset_lanes(self, queue_id: QueueId, lane_state: LaneState) -> None:
        for state in ("dirty", "throttled", "blocked"):
            self._session.record(f"reset_{state}_lanes", queue_id, int(lane_state))

    def drop_key(self, queue_id: QueueId, key: str) -> None:
        self._session.record("drop_key", queue_id, key, self._session.now_ms * NANO_PER_MS)


def _listed(keys: Sequence[str]) -> str:
    return msgspec.json.encode(list(keys)).decode()
