"""The shop after the demo, open until Ctrl-C: something to look at in `penstock top` and the dashboard.

Three customers order all the time, one of them much more than the others. The bank bears two charges at once and
takes two seconds for each, so charges always wait, and their turns are divided between the customers by weight. Once a
minute the worker is killed in the middle of its charges: its leases run out, and the next worker takes them over.
"""

from __future__ import annotations

import itertools
import queue
import signal
import time
from types import FrameType

from penstock.cli.demo.display import PlainDisplay
from penstock.cli.demo.processes import ProcessEnded
from penstock.cli.demo.script import CUSTOMERS, DemoRun
from penstock.cli.demo.shop import BANK, ShopOrder
from penstock.cli.output.exits import echo_err

OPEN_ORDERS = {CUSTOMERS[0]: 12, CUSTOMERS[1]: 8, CUSTOMERS[2]: 4}
"""How many orders of each customer are open at a time, so that each always has charges that wait."""
CHARGE_SECONDS = 2.0
KILL_EVERY_SECONDS = 60.0
WEIGHTS = {CUSTOMERS[2]: 2}
ITEMS = ("a lyre", "a zither", "a bassoon", "a triangle")
_LOOK_SECONDS = 0.25


def stay(run: DemoRun) -> None:
    """Keep the shop open until the user stops it.

    Args:
        run: The demo after its last act; its server and a worker are up.
    """
    signal.signal(signal.SIGTERM, _stop)
    run.display = PlainDisplay()
    run.connection.patch(
        "task-queues",
        BANK,
        "config",
        body={
            "task_queue_type": "activity",
            "set_fairness_weight_overrides": WEIGHTS,
            "reason": f"{CUSTOMERS[2]} pays for twice the share",
        },
    )
    try:
        _keep_open(run)
    except KeyboardInterrupt:
        echo_err("")


def _keep_open(run: DemoRun) -> None:
    numbers = itertools.count(len(run.board.cards) + 1)
    unfinished: dict[str, set[str]] = {customer: set() for customer in OPEN_ORDERS}
    kill_at = time.monotonic() + KILL_EVERY_SECONDS
    while True:
        shipped = _shipped(run)
        for customer, orders in unfinished.items():
            orders -= shipped
            while len(orders) < OPEN_ORDERS[customer]:
                orders.add(_order(run, customer, next(numbers)))
        if time.monotonic() > kill_at:
            worker = run.workers[-1]
            run.display.log(f"kill -9 {worker.kill()}: {worker.name} is gone, in the middle of its charges.")
            run.start_worker()
            kill_at = time.monotonic() + KILL_EVERY_SECONDS
        process = run.server.process
        if process is None or process.poll() is not None:
            raise ProcessEnded("The server ended", run.server.log)
        time.sleep(_LOOK_SECONDS)


def _order(run: DemoRun, customer: str, number: int) -> str:
    order = ShopOrder(
        f"order-{number}", customer, ITEMS[number % len(ITEMS)], "Main Street", charge_seconds=CHARGE_SECONDS
    )
    run.take_order(order)
    return order.id


def _shipped(run: DemoRun) -> set[str]:
    """Orders whose last step the worker reported since the last look."""
    found: set[str] = set()
    while True:
        try:
            report = run.reports.get_nowait()
        except queue.Empty:
            return found
        if (report["step"], report["what"]) == ("ship", "done"):
            found.add(str(report["order"]))


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
