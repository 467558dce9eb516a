"""Sends task reports, batching those that are ready at the same time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.sdk.errors.tracebacks import with_source_lines, without_tracebacks
from penstock.sdk.failures import refusal
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import is_transient, retry_after_s
from penstock.sdk.worker.matching.backoff import Backoff
from penstock.sdk.worker.metrics import WorkerMetrics
from penstock.sdk.worker.worker_api import WorkerApi

Json = dict[str, Any]
ITEMS_MAX = 100
HAND_BACK = "hand_back"
"""The action that returns a task to its queue without charging an attempt."""
REQUESTS_MAX = 4
"""Maximum number of concurrent report requests. Reports that become ready meanwhile are batched."""
RETRY_SECONDS = 120.0
"""How long a report is retried while the server is unreachable. After that the lease expires."""


@dataclass(eq=False, slots=True)
class _PendingReport:
    item: Json
    response: asyncio.Future[Json]
    gives_up_at: float
    batched: bool = False
    """Send in a batch even if it is the only report: it was batched before, and the server identifies a repeated
    report by its form; or the action exists only in batches.
    """


class ReportBatcher:
    """Accepts reports for tasks of one kind, sends them in batches, and returns to each its own response.

    A report is resent with identical content until it is answered. The server stores a receipt, so a repetition has
    no effect.
    """

    def __init__(
        self,
        kind: str,
        api: WorkerApi,
        metrics: WorkerMetrics,
        *,
        with_tracebacks: bool = True,
        sends_source_lines: Callable[[], bool] = bool,
    ) -> None:
        self._kind, self._api, self._metrics = kind, api, metrics
        self._with_tracebacks = with_tracebacks
        self._sends_source_lines = sends_source_lines
        self._waiting: deque[_PendingReport] = deque()
        self._open: set[asyncio.Task[None]] = set()
        self._scheduled = False

    async def send(self, item: Json) -> Json:
        """Send a report and return the server's response.

        Raises `ServerRefused`, or `Unreachable` once retries have run out.
        """
        loop = asyncio.get_running_loop()
        if not self._with_tracebacks:
            item = without_tracebacks(item)
        elif self._sends_source_lines():
            item = with_source_lines(item)
        item = await self._api.offloaded(item)
        in_batch_only = item["action"] == HAND_BACK
        report = _PendingReport(item, loop.create_future(), time.monotonic() + RETRY_SECONDS, in_batch_only)
        self._waiting.append(report)
        self._schedule_send()
        return await report.response

    async def all_sent(self) -> None:
        """Wait until no report is queued or in flight."""
        while self._waiting or self._open:
            if self._open:
                await asyncio.wait([*self._open])
            await asyncio.sleep(0)

    def _schedule_send(self) -> None:
        """Send at the end of this event loop iteration, so that reports that become ready in it share a request."""
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
        """Send until all reports are answered. A batch that is refused as a whole is split in two."""
        pauses = Backoff()
        while reports:
            reports, wait_s = await self._send_once(reports)
            if reports:
                await asyncio.sleep(pauses.pause_s(wait_s))

    async def _send_once(self, reports: list[_PendingReport]) -> tuple[list[_PendingReport], float]:
        """Send once. Return the reports to resend, and the delay that the server requested."""
        alone = len(reports) == 1 and not reports[0].batched
        try:
            responses = [await self._send_single(reports[0])] if alone else await self._send_batch(reports)
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
        for report, response in zip(reports, responses, strict=True):
            if isinstance(response, dict):
                _answer(report, response)
                continue
            left, requested_s = _retry_unless_late([report], response)
            again += left
            wait_s = max(wait_s, requested_s)
        return again, wait_s

    async def _send_single(self, report: _PendingReport) -> Json:
        return await self._api.report(self._kind, report.item)

    async def _send_batch(self, reports: list[_PendingReport]) -> list[Json | Exception]:
        for report in reports:
            report.batched = True
        responses = await self._api.report_all(self._kind, [report.item for report in reports])
        return [_parse_item(response) for response in responses]


def _parse_item(response: Json) -> Json | Exception:
    status = response.get("http_status", 200)
    return response if status < 400 else refusal(status, response)


def _retry_unless_late(reports: list[_PendingReport], error: Exception) -> tuple[list[_PendingReport], float]:
    """Return the reports that may be retried, and fail the others with the error."""
    now = time.monotonic()
    again = [each for each in reports if is_transient(error) and now < each.gives_up_at]
    for report in reports:
        if report not in again and not report.response.done():
            report.response.set_exception(error)
            report.response.exception()  # the caller may have been cancelled
    return again, retry_after_s(error)


def _answer(report: _PendingReport, response: Json) -> None:
    if not report.response.done():
        report.response.set_result(response)
