"""The script of the demo. Each act waits for an observed state, never for a fixed time."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.cli.demo.display import DemoDisplay
from penstock.cli.demo.processes import DemoServer, DemoWorker
from penstock.cli.demo.progress import OrderBoard
from penstock.cli.demo.shop import BANK, NOWHERE, SHOP, SLOW_BANK, ShopOrder
from penstock.cli.output.exits import CommandError
from penstock.cli.output.payload_text import opened
from penstock.cli.transport.connection import ServerConnection

BANK_BEARS = 2
CUSTOMERS = ("Ada", "Bob", "Cem")
ITEMS = (
    "a lute", SLOW_BANK, "a drum", "a flute", "a piano", "a violin",
    "a cello", "a horn", "a tuba", "an oboe", "a gong", "a banjo",
)  # fmt: skip
TO_THE_MOON = "a piano"
KILL_WORKER_AFTER, KILL_SERVER_AFTER = 3, 8
"""Completed charges at which the worker, and then the server, is killed."""
PATIENCE_SECONDS = 50.0
_LOOK_SECONDS = 0.1
_LOOK_AT_RESULTS_SECONDS = 0.3


@dataclass
class DemoResult:
    """Results of the demo, for the summary."""

    board: OrderBoard
    seconds: float = 0.0
    worker_pid: int = 0
    server_pid: int = 0
    interrupted: list[str] = field(default_factory=list)
    """Orders whose charge was under way in the worker that was killed."""
    why: dict[str, Any] = field(default_factory=dict)
    """The server's explanation of a waiting charge at that time."""
    journal: list[dict[str, Any]] = field(default_factory=list)


def orders() -> list[ShopOrder]:
    """Twelve fixed orders: one meets a slow bank, one has an address that cannot be delivered to."""
    return [
        ShopOrder(
            id=f"order-{number + 1}",
            customer=CUSTOMERS[number % len(CUSTOMERS)],
            item=item,
            address=NOWHERE if item == TO_THE_MOON else "Main Street",
        )
        for number, item in enumerate(ITEMS)
    ]


@contextmanager
def demo_run(directory: Path) -> Iterator[DemoRun]:
    """A demo that has not begun; all its processes are stopped at the end, also on errors."""
    run = DemoRun(DemoServer(directory))
    try:
        yield run
    finally:
        run.stop()


class DemoRun:
    """The acts of the demo and their processes."""

    display: DemoDisplay

    def __init__(self, server: DemoServer) -> None:
        self.server = server
        self.board = OrderBoard(orders())
        self.result = DemoResult(self.board)
        self.reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.workers: list[DemoWorker] = []
        self._looked_at = 0.0

    @property
    def connection(self) -> ServerConnection:
        return self.server.connection

    def play(self, display: DemoDisplay) -> DemoResult:
        """Run all acts; server and worker are still up on return."""
        began = time.monotonic()
        self.display = display
        self.open()
        self.take_orders()
        self.kill_worker()
        self.kill_server()
        self.wait_for("every order is closed", lambda: self.board.is_finished)
        self.result.journal = _journal(self.connection)
        self.result.seconds = time.monotonic() - began
        return self.result

    def open(self) -> None:
        self.display.log("A server starts: one process, one SQLite file.")
        self.server.start()
        limits = {
            "task_queue_type": "activity",
            "max_active_leases_per_queue": BANK_BEARS,
            "reason": "the bank bears no more",
        }
        self.connection.patch("task-queues", BANK, "limits", body=limits)
        self.display.log(
            f"The bank bears {BANK_BEARS} charges at once: that is now a limit of its task queue."
        )
        self.start_worker()

    def start_worker(self) -> None:
        worker = DemoWorker(f"worker-{len(self.workers) + 1}", self.server, self.reports)
        self.workers.append(worker)
        worker.start()
        self.display.log(f"{worker.name} takes tasks, with room for 100 at once.")

    def take_orders(self) -> None:
        for card in self.board.cards.values():
            self.take_order(card.order)
        self.display.log(f"{len(self.board.cards)} orders of {len(CUSTOMERS)} customers come in.")

    def take_order(self, order: ShopOrder) -> None:
        body = {
            "workflow_id": order.id,
            "workflow_type": "demo.order",
            "task_queue": SHOP,
            "input": [vars(order)],
            "priority": {"fairness_key": order.customer},
        }
        self.connection.post("workflows", body=body)

    def kill_worker(self) -> None:
        self.wait_for(
            "some charges are done and others under way",
            lambda: (
                len(self.board.done("charge")) >= KILL_WORKER_AFTER
                and len(self.board.under_way("charge")) == BANK_BEARS
            ),
        )
        worker = self.workers[-1]
        self.result.worker_pid = worker.kill()
        self.listen()
        self.result.interrupted = self.board.under_way("charge")
        self.display.log(
            f"kill -9 {self.result.worker_pid}: {worker.name} is gone, while it charged"
            f" {' and '.join(self.result.interrupted) or 'nothing'}."
        )
        self.result.why = self._why()
        self.display.log(f"Why do others wait? {self.result.why.get('summary')}")
        self.start_worker()

    def kill_server(self) -> None:
        self.wait_for("more charges are done", lambda: len(self.board.done("charge")) >= KILL_SERVER_AFTER)
        self.result.server_pid = self.server.kill()
        self.display.log(
            f"kill -9 {self.result.server_pid}: the server is gone, in the middle of everything."
        )
        self.server.start()
        self.display.log("It starts again on the same file, and the worker finds it again.")

    def wait_for(self, what: str, has_come: Callable[[], bool]) -> None:
        """Poll until the condition holds."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.listen()
            self._look_at_results()
            self.display.show(self.board)
            if has_come():
                return
            if time.monotonic() > ends_at:
                raise CommandError("demo_failed", f"It has taken too long until {what}.")
            time.sleep(_LOOK_SECONDS)

    def listen(self) -> None:
        while not self.reports.empty():
            self.board.record(self.reports.get())

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.server.stop()

    def _look_at_results(self) -> None:
        if time.monotonic() - self._looked_at < _LOOK_AT_RESULTS_SECONDS:
            return
        for name, card in self.board.cards.items():
            if card.result is None and card.state.get("ship" if "refund" not in card.state else "release"):
                described = self.connection.get("workflows", name).body
                if described.get("is_terminal"):
                    self.board.close(name, str(opened(described.get("output"))))
        self._looked_at = time.monotonic()

    def _why(self) -> dict[str, Any]:
        """The explanation of a charge that waits for the lease limit of the bank."""
        found: dict[str, Any] = {}
        for name in reversed([name for name, card in self.board.cards.items() if "charge" not in card.state]):
            body = self.connection.get("workflows", name, "why").body
            found = next(iter(body.get("activities") or []), body)
            if (found.get("binding") or {}).get("kind") == "active_leases":
                break
        return found


def _journal(connection: ServerConnection) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    following: int | None = 0
    while following is not None:
        body = connection.get("system", "journal", query={"after": following, "limit": 5_000}).body
        lines += body["lines"]
        following = body.get("next_after")
    return lines
