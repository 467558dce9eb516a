"""Progress of the orders, from the steps that the workers report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.cli.demo.shop import ShopOrder

STEPS = ("reserve", "charge", "ship")
UNDOING = ("refund", "release")


@dataclass
class OrderProgress:
    """One order: the last state of each step, and how often each began."""

    order: ShopOrder
    state: dict[str, str] = field(default_factory=dict)
    begun: Counter[str] = field(default_factory=Counter)
    result: str | None = None


class OrderBoard:
    """All orders, by id."""

    def __init__(self, orders: list[ShopOrder]) -> None:
        self.cards = {order.id: OrderProgress(order) for order in orders}

    def record(self, line: Mapping[str, Any]) -> None:
        card = self.cards[line["order"]]
        card.state[line["step"]] = line["what"]
        if line["what"] == "begins":
            card.begun[line["step"]] += 1

    def close(self, order_id: str, result: str) -> None:
        self.cards[order_id].result = result

    @property
    def is_finished(self) -> bool:
        return all(card.result is not None for card in self.cards.values())

    def done(self, step: str) -> list[str]:
        return self._with(step, "done")

    def under_way(self, step: str) -> list[str]:
        """Orders in which this step has begun and neither completed nor failed."""
        return self._with(step, "begins")

    def results(self) -> Counter[str]:
        return Counter((card.result or "open").partition(":")[0] for card in self.cards.values())

    def repeated(self) -> list[tuple[str, str]]:
        """Steps that began more than once, each with its order."""
        return [
            (card.order.id, step)
            for card in self.cards.values()
            for step, count in card.begun.items()
            if count > 1
        ]

    def steps_done(self) -> int:
        return sum(state == "done" for card in self.cards.values() for state in card.state.values())

    def _with(self, step: str, state: str) -> list[str]:
        return [name for name, card in self.cards.items() if card.state.get(step) == state]
