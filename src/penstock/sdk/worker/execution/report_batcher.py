"""Reports on tasks: those that are ready together travel together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from penstock.sdk.errors.tracebacks import without_tracebacks
from penstock.sdk.failures import refusal
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import is_transient, retry_after_s
from penstock.sdk.worker.matching.backoff import Backoff
from penstock.sdk.worker.metrics import WorkerMetrics
from penstock.sdk.worker.worker_api import WorkerApi

Json = dict[str, Any]
ITEMS_MAX = 100
HAND_BACK = "hand_back"
"""The report that a task is not going to be done here: it waits again, and no attempt is charged."""
REQUESTS_MAX = 4
"""Requests with reports that are open at a time; meanwhile the next ones gather."""
RETRY_SECONDS = 120.0
"""How long a report is tried while the server is away; after that the lease ends by itself."""


@dataclass(eq=False, slots=True)
class _PendingReport:
    item: Json
    answer: asyncio.Future[Json]
    gives_up_at: float
    batched: bool = False
    """To be sent in a batch, also alone: it was before, and the server knows it by its form; or it has no other."""


class ReportBatcher:
    """Takes reports on tasks of one kind, sends them, and gives each its answer.

    The same report is sent again with the same content until it is answered: the server remembers its receipt.
    """

    def __init__(
        self, kind: str, api: WorkerApi, metrics: WorkerMetrics, *, with_tracebacks: bool = True
    ) -> None:
        self._kind, self._api, self._metrics = kind, api, metrics
        self._with_tracebacks = with_tracebacks
        self._waiting: deque[_PendingReport] = deque()
        self._open: set[asyncio.Task[None]] = set()
        self._scheduled = False

    async def send(self, item: Json) -> Json:
        """Report and return the server's answer; raises its refusal, or that it was not reached in time."""
        loop = asyncio.get_running_loop()
        if not self._with_tracebacks:
            item = without_tracebacks(item)
        in_batch_only = item["action"] == HAND_BACK
        report = _PendingReport(item, loop.create_future(), time.monotonic() + RETRY_SECONDS, in_batch_only)
        self._waiting.append(report)
        self._schedule_send()
        return await report.answer

    async def all_sent(self) -> None:
        """Wait until nothing is under way."""
        while self._waiting or self._open:
            if self._open:
                await asyncio.wait([*self._open])
            await asyncio.sleep(0)

    def _schedule_send(self) -> None:
        """Send when this turn of the loop is over, so that what else ends in it comes along."""
        if not self._scheduled and self._waiting and len(self._open) < REQUESTS_MAX:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send_waiting)

    def _send_waiting(self) -> None:
        self._scheduled = False
        while self._waiting and len(self._open) < REQUESTS_MAX:
            some = [self._waiting.popleft() for _ in range(min(ITEMS_MAX, len(self._waiting)))]
            sending = asyncio.create_task(self._deliver(some))
            self._open.add(sending)
            sending.add_done_callback(self._ended)

    def _ended(self, sending: asyncio.Task[None]) -> None:
        self._open.discard(sending)
        self._schedule_send()

    async def _deliver(self, reports: list[_PendingReport]) -> None:
        """Send until all are answered. A batch that is refused as a whole goes on as its two halves."""
        pauses = Backoff()
        while reports:
            reports, wait_s = await self._send_once(reports)
            if reports:
                await asyncio.sleep(pauses.pause_s(wait_s))

    async def _send_once(self, reports: list[_PendingReport]) -> tuple[list[_PendingReport], float]:
        """Send once; return what must be sent again, and how long the server asks to be left alone."""
        alone = len(reports) == 1 and not reports[0].batched
        try:
            answers = [await self._send_single(reports[0])] if alone else await self._send_batch(reports)
        except Exception as error:
            if len(reports) > 1 and not is_transient(error):
                middle = len(reports) // 2
                await asyncio.gather(self._deliver(reports[:middle]), self._deliver(reports[middle:]))
                return [], 0.0
            return _retry_unless_late(reports, error)
        self._metrics.count(names.REPORTS, kind=self._kind)
        self._metrics.count(names.REPORT_ITEMS, len(reports), kind=self._kind)
        again: list[_PendingReport] = []
        wait_s = 0.0
        for report, answer in zip(reports, answers, strict=True):
            if isinstance(answer, dict):
                _answer(report, answer)
                continue
            left, asked = _retry_unless_late([report], answer)
            again += left
            wait_s = max(wait_s, asked)
        return again, wait_s

    async def _send_single(self, report: _PendingReport) -> Json:
        return await self._api.report(self._kind, report.item)

    async def _send_batch(self, reports: list[_PendingReport]) -> list[Json | Exception]:
        for report in reports:
            report.batched = True
        answers = await self._api.report_all(self._kind, [report.item for report in reports])
        return [_parse_item(answer) for answer in answers]


def _parse_item(answer: Json) -> Json | Exception:
    status = answer.get("http_status", 200)
    return answer if status < 400 else refusal(status, answer)


def _retry_unless_late(reports: list[_PendingReport], error: Exception) -> tuple[list[_PendingReport], float]:
    """Those worth another try; the others are told what happened."""
    now = time.monotonic()
    again = [each for each in reports if is_transient(error) and now < each.gives_up_at]
    for report in reports:
        if report not in again and not report.answer.done():
            report.answer.set_exception(error)
            report.answer.exception()  # whoever waited may be gone; nobody needs to hear of it then
    return again, retry_after_s(error)


def _answer(report: _PendingReport, answer: Json) -> None:
    if not report.answer.done():
        report.answer.set_result(answer)
