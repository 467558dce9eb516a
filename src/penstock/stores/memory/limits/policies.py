"""Policies of task queues and fairness keys, and the log of their changes."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from penstock.core.limits.policies import KeySettings, KeyState, Policy, PolicyChange
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.limits.rates import NANO_PER_MS
from penstock.core.limits.windows import Counts
from penstock.core.model import QueueId
from penstock.core.scheduling.fairness import LaneState, rank
from penstock.stores.memory.changes import Phase
from penstock.stores.memory.tables import KeyRow, MemoryRepository
from penstock.stores.memory.tasks import fairness_keys as key_rows
from penstock.stores.memory.tasks import lanes


class MemoryPolicies(MemoryRepository):
    async def key_states(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeyState]:
        rows = self._tables.keys.of(queue_id)
        return {key: _state(rows[key]) for key in keys if key in rows}

    async def key_settings(self, queue_id: QueueId, keys: Sequence[str]) -> Mapping[str, KeySettings]:
        found = {settings.key: settings for settings in self._settings(queue_id)}
        return {key: found[key] for key in keys if key in found}

    async def keys_with_settings(self, queue_id: QueueId, limit: int) -> Sequence[KeySettings]:
        return heapq.nsmallest(limit, self._settings(queue_id), key=lambda settings: settings.key)

    async def count_keys_with_settings(self, queue_id: QueueId) -> int:
        return len(self._settings(queue_id))

    async def changes(self, queue_id: QueueId, limit: int) -> Sequence[PolicyChange]:
        log = self._tables.policy_changes.of(queue_id)
        newest = heapq.nsmallest(limit, log, key=lambda entry_id: (-entry_id[0], entry_id[1]))
        return [log[entry_id] for entry_id in newest]

    async def count_leases(self, queue_id: QueueId) -> None:
        self._changes.allow()
        tables = self._tables
        leases = [tables.tasks[task_id] for task_id in tables.tasks_leased.of(queue_id)]
        for task in leases:
            self._changes.put(tables.tasks, task.task_id, replace(task, counted=1))
        key_rows.recount(tables, self._changes, queue_id, Counter(task.key for task in leases))

    async def rank_lanes(self, queue_id: QueueId, *, by_running: bool) -> None:
        self._changes.allow()
        if by_running:
            self._rank_busy(queue_id)
        else:
            self._unrank(queue_id)

    async def idle_keys(self, now_ms: int, limit: int) -> Sequence[tuple[QueueId, str]]:
        now_ns = now_ms * NANO_PER_MS
        idle = [
            (queue_id, key)
            for queue_id, rows in self._tables.keys.groups.items()
            for key, row in rows.items()
            if key_rows.tells_nothing(row, now_ns)
        ]
        return idle[:limit]

    def save(self, queue_id: QueueId, policy: Policy) -> None:
        self._change_queue(queue_id, policy=policy)

    def save_worker_rate(self, queue_id: QueueId, rate: WorkerRate | None) -> None:
        self._change_queue(queue_id, worker_rate=rate)

    def settle(self, queue_id: QueueId, paid_until_ns: int, aging_turn: int, window: Counts) -> None:
        self._change_queue(queue_id, paid_until_ns=paid_until_ns, aging_turn=aging_turn, window=window)

    def save_key(self, queue_id: QueueId, settings: KeySettings) -> None:
        write = partial(key_rows.save, self._tables, self._changes, queue_id, settings)
        self._changes.record(write, Phase.KEYS)

    def spend(self, queue_id: QueueId, key: str, paid_until_ns: int | None, leased: int) -> None:
        write = partial(key_rows.spend, self._tables, self._changes, queue_id, key, paid_until_ns, leased)
        self._changes.record(write, Phase.KEYS)

    def log(self, queue_id: QueueId, changes: Sequence[PolicyChange]) -> None:
        def write() -> None:
            log = self._tables.policy_changes
            for number, change in enumerate(changes):
                entry_id = (change.version, number)
                assert entry_id not in log.of(queue_id), f"version {change.version} is in the log"
                self._changes.add(log, queue_id, entry_id, change)

        self._changes.record(write)

    def forget_changes(self, queue_id: QueueId, up_to_version: int) -> None:
        def write() -> None:
            log = self._tables.policy_changes
            for entry_id in [entry_id for entry_id in log.of(queue_id) if entry_id[0] <= up_to_version]:
                self._changes.remove(log, queue_id, entry_id)

        self._changes.record(write, Phase.FORGET)

    def touch_key(self, queue_id: QueueId, key: str, lane_state: LaneState) -> None:
        write = partial(lanes.touch, self._tables, self._changes, queue_id, key, lane_state)
        self._changes.record(write, Phase.TOUCH_LANES)

    def rerank_others(self, queue_id: QueueId, level: int, key: str) -> None:
        write = partial(lanes.rerank_others, self._tables, self._changes, queue_id, level, key)
        self._changes.record(write, Phase.TOUCH_LANES)

    def reset_lanes(self, queue_id: QueueId, lane_state: LaneState) -> None:
        write = partial(lanes.stir, self._tables, self._changes, queue_id, lane_state)
        self._changes.record(write, Phase.TOUCH_LANES)

    def drop_key(self, queue_id: QueueId, key: str) -> None:
        def write() -> None:
            row = self._tables.keys.of(queue_id).get(key)
            if row is not None and key_rows.tells_nothing(row, self._now_ms * NANO_PER_MS):
                self._changes.remove(self._tables.keys, queue_id, key)

        self._changes.record(write, Phase.FORGET)

    def _settings(self, queue_id: QueueId) -> Sequence[KeySettings]:
        rows = self._tables.keys.of(queue_id).values()
        return [row.settings for row in rows if row.settings.at_ms is not None]

    def _rank_busy(self, queue_id: QueueId) -> None:
        for lane_id, lane in lanes.busy(self._tables, queue_id):
            running = key_rows.row(self._tables, queue_id, lane.key).running
            ranked = replace(lane, rank=rank(running, lane.weight_milli))
            lanes.put(self._tables, self._changes, lane_id, ranked)

    def _unrank(self, queue_id: QueueId) -> None:
        ranked = [
            (lane_id, lane)
            for lane_id, lane in self._tables.lanes.items()
            if lane_id[0] == queue_id and lane.rank
        ]
        for lane_id, lane in ranked:
            lanes.put(self._tables, self._changes, lane_id, replace(lane, rank=0))

    def _change_queue(self, queue_id: QueueId, **values: Any) -> None:
        def write() -> None:
            queue = self._tables.queues[queue_id]
            self._changes.put(self._tables.queues, queue_id, replace(queue, **values))

        self._changes.record(write)


def _state(row: KeyRow) -> KeyState:
    settings = row.settings
    return KeyState(
        settings.key,
        settings.weight_milli,
        settings.rate_micro,
        settings.lease_cap,
        settings.paused,
        row.paid_until_ns,
        row.running,
    )
