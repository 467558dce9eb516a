"""The time series of queues in SQL."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.core.model import QueueId, TaskKind
from penstock.core.series.samples import MeterReading, QueueSample, SeriesResolution
from penstock.ports.tables.series import ActiveQueue
from penstock.stores.sql.session import Repository, Rows

_DECODER = msgspec.json.Decoder(QueueSample)
_ONLY = 1
"""The key of the one row that holds the last step."""


class SqlSeries(Repository):
    async def sampled_at(self) -> int:
        rows = await self._session.fetch("sampled_at", _ONLY)
        return int(rows[0][1]) if rows else 0

    async def advance(self, at_ms: int) -> bool:
        return bool(await self._session.fetch("advance_series", _ONLY, at_ms))

    async def active_queues(self, minute: int, limit: int) -> Sequence[ActiveQueue]:
        rows = await self._session.fetch("active_queues", minute, limit)
        return [ActiveQueue(QueueId(row[1]), row[2], row[3], TaskKind(row[4])) for row in rows]

    async def meters(self, queue_id: QueueId, from_minute: int) -> Sequence[MeterReading]:
        rows = await self._session.fetch("meters_from", queue_id, from_minute)
        return [MeterReading(*(int(each) for each in row[1:])) for row in rows]

    async def at(
        self, queue_ids: Sequence[QueueId], resolution: SeriesResolution, slot: int
    ) -> Sequence[QueueSample | None]:
        rows = await self._session.fetch_each(
            "sample_at", ((queue_id, resolution.step_s, slot) for queue_id in queue_ids)
        )
        return [_sample(each) for each in rows]

    async def latest(
        self, queue_ids: Sequence[QueueId], resolution: SeriesResolution
    ) -> Sequence[QueueSample | None]:
        rows = await self._session.fetch_each(
            "latest_sample", ((queue_id, resolution.step_s) for queue_id in queue_ids)
        )
        return [_sample(each) for each in rows]

    async def between(
        self, queue_id: QueueId, resolution: SeriesResolution, from_ms: int, to_ms: int
    ) -> Sequence[QueueSample]:
        rows = await self._session.fetch("samples_between", queue_id, resolution.step_s, from_ms, to_ms)
        return [_DECODER.decode(row[1]) for row in rows]

    def save(self, queue_id: QueueId, resolution: SeriesResolution, sample: QueueSample) -> None:
        text = msgspec.json.encode(sample).decode()
        slot = resolution.slot(sample.at_ms)
        self._session.record("save_sample", queue_id, resolution.step_s, slot, sample.at_ms, text)


def _sample(rows: Rows) -> QueueSample | None:
    return _DECODER.decode(rows[0][1]) if rows else None
