"""The summary of the demo: what ran, what failed, which limits held, and what to try next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.cli.demo.script import BANK_BEARS, CUSTOMERS, DemoResult
from penstock.cli.demo.shop import BANK, SLOW_BANK
from penstock.cli.output.screen import Screen, ScreenCell


def summary_of(result: DemoResult, kept_in: str | None) -> dict[str, Any]:
    """The summary as data; `draw` makes it readable."""
    board, results = result.board, result.board.results()
    binding = result.why.get("binding") or {}
    return {
        "seconds": round(result.seconds, 1),
        "orders": len(board.cards),
        "customers": len(CUSTOMERS),
        "shipped": results["shipped"],
        "undone": {name: card.result for name, card in board.cards.items() if card.result != "shipped"},
        "tried_again": [name for name, card in board.cards.items() if card.order.item == SLOW_BANK],
        "killed": {
            "worker_pid": result.worker_pid,
            "server_pid": result.server_pid,
            "while": result.interrupted,
        },
        "steps": board.steps_done(),
        "steps_run_again": [f"{step} of {order}" for order, step in board.repeated()],
        "limit": {
            "task_queue": BANK,
            "max_active_leases": BANK_BEARS,
            "most_at_once": most_at_once(result.journal),
            "journal_lines": len(result.journal),
            "findings": findings(result.journal),
        },
        "why": {
            "asked": result.why.get("workflow_id"),
            "summary": result.why.get("summary"),
            "held_by": sorted({str(each.get("worker")) for each in binding.get("holders") or []}),
            "frees": [each.get("text") for each in binding.get("frees") or []],
        },
        "data_dir": kept_in,
    }


def most_at_once(journal: Iterable[Mapping[str, Any]]) -> int:
    """Most leases of the bank's queue that the journal shows at one instant."""
    live: set[str] = set()
    most = 0
    for line in journal:
        if line["event"] == "granted" and line["task_queue"] == BANK:
            live.add(line["lease"])
            most = max(most, len(live))
        elif line["event"] == "ended":
            live.discard(line["lease"])
    return most


def findings(journal: Iterable[Mapping[str, Any]]) -> int:
    """Count the violations that `penstock verify` finds."""
    from penstock.core.verify.check import check
    from penstock.wire.operations.journal import read_journal

    book, _ = check(read_journal((json.dumps(line).encode() for line in journal), "the journal"))
    return sum(book.found.values())


def draw(screen: Screen, summary: Mapping[str, Any]) -> None:
    """Print the summary for first-time users."""
    for heading, lines in _sections(summary):
        screen.heading(heading)
        for line in lines:
            screen.below(ScreenCell(line), 2)


def _sections(summary: Mapping[str, Any]) -> Iterable[tuple[str, list[str]]]:
    limit, why, killed = summary["limit"], summary["why"], summary["killed"]
    yield (
        "What ran",
        [
            f"{summary['orders']} orders of {summary['customers']} customers, in {summary['seconds']} s. Each is a"
            " workflow: reserve, charge, wait, ship.",
            f"{summary['shipped']} were shipped. {_count(len(summary['undone']), 'was', 'were')} undone.",
        ],
    )
    yield "What went wrong, and what became of it", _troubles(summary, killed)
    yield (
        "What held",
        [
            f"The bank bears {limit['max_active_leases']} charges at once. {_most(limit)}, over two workers and two"
            " lives of the server.",
            f"The journal of all leases ({limit['journal_lines']} lines) was checked against every promise:"
            f" {_found(limit['findings'])}.",
        ],
    )
    yield f"A wait, explained (penstock why {why['asked']}, just after the worker was killed)", _wait(why)
    yield "Try next", _next(summary["data_dir"])


def _troubles(summary: Mapping[str, Any], killed: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name}: the bank did not answer. The charge was tried again, and went through."
        for name in summary["tried_again"]
    ]
    lines += [
        f"{name}: {result.partition(': ')[2]}. The payment was given back and the stock freed."
        for name, result in summary["undone"].items()
    ]
    lines += [
        f"worker-1: kill -9 in the middle of {' and '.join(killed['while']) or 'its work'}. worker-2 went on.",
        "The server: kill -9, too. Started again on the same file, it went on where it was.",
    ]
    again = summary["steps_run_again"]
    if again:
        lines.append(
            f"Of {summary['steps']} steps, {len(again)} ran again, because a kill struck them in the middle:"
            f" {', '.join(again)}. What was done stayed done."
        )
    else:
        lines.append(f"Of {summary['steps']} steps, none ran twice. What was done stayed done.")
    return lines


def _wait(why: Mapping[str, Any]) -> list[str]:
    lines = [str(why["summary"])]
    if why["held_by"]:
        lines.append(f"Held by {', '.join(why['held_by'])}: dead by then, until its leases ran out.")
    return [*lines, *[f"What would free it: {text}." for text in why["frees"]]]


def _next(kept_in: str | None) -> list[str]:
    if kept_in is not None:
        return [
            f"penstock dev --data-dir {kept_in}      # the server of this demonstration, with all it knows",
            "penstock workflow list                 # in another terminal, with the two variables that it prints",
            "penstock workflow history order-2",
        ]
    return [
        "penstock demo --data-dir demo-data     # the same, and its data stay for you to look at",
        "penstock dev                           # a server that stays",
        "python examples/order_fulfilment.py    # in a clone of the repository: a workflow of this kind, to change",
        "docs/tutorial/index.md                 # from nothing to a workflow that survives kill -9, step by step",
    ]


def _most(limit: Mapping[str, Any]) -> str:
    most = limit["most_at_once"]
    return f"Never did more than {most} run" if most <= limit["max_active_leases"] else f"But {most} ran"


def _found(count: int) -> str:
    return "nothing was found" if not count else f"{_count(count, 'breach was', 'breaches were')} found"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
