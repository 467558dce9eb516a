"""The time series of a task queue over HTTP, on every store."""

from __future__ import annotations

import asyncio
import itertools

from penstock.core.series.samples import SeriesMetric
from tests.server.client import Client
from tests.support.patience import PATIENCE_S

NUMBERS = itertools.count()
TARGET = "/api/metrics/series"


async def test_a_waiting_task_appears_in_the_series_of_its_queue(everywhere: Client) -> None:
    name = f"series-{next(NUMBERS)}"
    body = {"activity_id": name, "activity_type": "charge", "task_queue": name}
    (await everywhere.post("/api/activities", body)).expect(201)

    async def sampled() -> bool:
        found = (await everywhere.get(f"{TARGET}?queue={name}&metric=ready")).expect(200).json
        assert list(found["metrics"]) == ["ready"]
        return bool(found["metrics"]["ready"][0]["points"])

    async with asyncio.timeout(PATIENCE_S):
        while not await sampled():
            await asyncio.sleep(0.1)
    found = (await everywhere.get(f"{TARGET}?queue={name}")).expect(200).json
    assert set(found["metrics"]) == {each.value for each in SeriesMetric}
    assert found["metrics"]["ready"][0]["points"][-1][1] == 1
    assert found["resolution_seconds"] == 10
    day = (await everywhere.get(f"{TARGET}?queue={name}&from=2020-01-01T00:00:00Z")).expect(200).json
    assert day["resolution_seconds"] == 300
    assert sum(value for _, value in day["metrics"]["added_per_second"][0]["points"]) > 0


async def test_bad_parameters_are_refused_and_an_unknown_queue_is_empty(everywhere: Client) -> None:
    (await everywhere.get(TARGET)).refused_fields("queue")
    (await everywhere.get(f"{TARGET}?queue=q&from=yesterday")).refused_fields("from")
    (await everywhere.get(f"{TARGET}?queue=q&metric=happiness")).refused_fields("metric")
    span = "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"
    (await everywhere.get(f"{TARGET}?queue=q&{span}")).refused_fields("to")
    found = (await everywhere.get(f"{TARGET}?queue=never-used")).expect(200).json
    assert found["metrics"]["ready"] == [{"points": []}]
