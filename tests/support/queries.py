"""Queries and runs that are drawn by chance, from few enough values that they often meet."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from penstock.core.model import Lineage, Run, RunHost, RunStatus
from penstock.core.visibility.syntax import And, Comparison, LiteralAt, Negated, Operator, Or, Query
from tests.support.builders import NOW_MS, a_run

TYPES = ("Order", "Refund", "Örder", "O'rder")
QUEUES = ("orders", "refunds")
TEXTS = (
    "",
    "a",
    "A",
    "ab",
    "abc",
    "ä",
    "z" * 300,
    "z" * 300 + "!",
    "z" * 255,
    "2026-03-01",
    "it's",
    'say "x"',
    "%_",
)
NUMBERS: tuple[float, ...] = (
    -(2**63),
    -10,
    -9.5,
    -0.001,
    0,
    1e-300,
    0.5,
    1,
    9,
    10,
    10.25,
    2**53 + 1,
    2**63 - 1,
)
TIMES = ("2026-03-01", "2026-03-01T00:00:00+01:00", "2026-02-28T23:00:00Z", "1969-12-31T23:59:59.999Z")
REGISTERED = {
    "Customer": "keyword",
    "Amount": "double",
    "Due": "datetime",
    "Urgent": "bool",
    "Tags": "keyword_list",
}
ENDS = (
    (RunStatus.PENDING, None),
    (RunStatus.WAITING, None),
    (RunStatus.COMPLETED, "completed"),
    (RunStatus.COMPLETED, "continued"),
    (RunStatus.FAILED, "failed"),
    (RunStatus.FAILED, "timed_out"),
    (RunStatus.CANCELLED, "cancelled"),
    (RunStatus.TERMINATED, "terminated"),
)
_TEXT_FIELDS = (
    "WorkflowType",
    "WorkflowId",
    "RunId",
    "TaskQueue",
    "BuildId",
    "BusinessKey",
    "ParentWorkflowId",
)


def draw_run(dice: Random, run_id: str) -> Run:
    status, reason = dice.choice(ENDS)
    started = NOW_MS - dice.randrange(40) * 1000
    parent = dice.choice((None, None, "order-1", "order-2"))
    return a_run(
        run_id,
        namespace=dice.choice(("default", "default", "default", "elsewhere")),
        host=dice.choice((RunHost.WORKFLOW, RunHost.WORKFLOW, RunHost.WORKFLOW, RunHost.ACTIVITY)),
        workflow_id=f"order-{dice.randrange(6)}",
        workflow_type=dice.choice(TYPES),
        task_queue=dice.choice(QUEUES),
        business_key=dice.choice((None, None, *TEXTS)),
        compatibility=dice.choice((None, "build-1", "build-2")),
        started_at_ms=started,
        status=status,
        closed_reason=reason,
        closed_at_ms=None if reason is None else started + dice.randrange(20) * 500,
        search_attributes=json.dumps(_attributes(dice)),
        memo=json.dumps(_memo(dice)),
        lineage=Lineage(parent_workflow_id=parent),
    )


def _attributes(dice: Random) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    for name, type_ in REGISTERED.items():
        if dice.random() < 0.5:
            drawn[name] = _typed(dice, type_)
    if dice.random() < 0.5:
        drawn["Free"] = _plain(dice)
    return drawn


def _memo(dice: Random) -> dict[str, Any]:
    return dice.choice(({}, {"note": _plain(dice)}, {"note": {"deep": 1}}, {"note": [1, 2], "odd key": "a"}))


def _typed(dice: Random, type_: str) -> Any:
    match type_:
        case "keyword":
            return dice.choice(TEXTS)
        case "double":
            return dice.choice(NUMBERS)
        case "datetime":
            return dice.choice(TIMES)
        case "bool":
            return dice.random() < 0.5
    return [dice.choice(TEXTS) for _ in range(dice.randrange(4))]


def _plain(dice: Random) -> Any:
    return dice.choice((*TEXTS, *NUMBERS, *TIMES, True, False, None))


def draw_query(dice: Random, depth: int = 3) -> Query:
    """A query that can be answered where the `REGISTERED` search attributes are."""
    roll = dice.random()
    if depth == 0 or roll < 0.4:
        return _draw_test(dice)
    if roll < 0.5:
        return Negated(draw_query(dice, depth - 1))
    parts = tuple(draw_query(dice, depth - 1) for _ in range(dice.randrange(2, 4)))
    return And(parts) if roll < 0.8 else Or(parts)


def _draw_test(dice: Random) -> Comparison:
    roll = dice.random()
    if roll < 0.15:
        words = ("running", "closed", "completed", "failed", "timed_out", "cancelled", "continued", "waiting")
        return _against(dice, "Status", [dice.choice(words)], ordered=False, texts=False)
    if roll < 0.2:
        bucket = dice.choice(("running", "completed", "failed"))
        return _against(dice, "StatusBucket", [bucket], ordered=False, texts=False)
    if roll < 0.35:
        times = ["20s ago", "-12s", "2026-03-01", "10s ago", "now"]
        return _against(dice, dice.choice(("StartTime", "CloseTime")), times, texts=False)
    if roll < 0.6:
        texts = [*TEXTS, *TYPES, *QUEUES, "order-1", "order-", "r1", "r2", "build-1"]
        return _against(dice, dice.choice(_TEXT_FIELDS), texts)
    if roll < 0.75:
        name = dice.choice(("Free", "memo.note", "memo.odd key", "Nobody"))
        said = dice.choice((TEXTS, NUMBERS, TIMES, (True, False)))
        plain = said is not TEXTS
        return _against(dice, name, list(said), ordered=True not in said or said is NUMBERS, texts=not plain)
    name = dice.choice([*REGISTERED])
    match REGISTERED[name]:
        case "double":
            return _against(dice, name, list(NUMBERS), texts=False)
        case "datetime":
            return _against(dice, name, list(TIMES), texts=False)
        case "bool":
            return _against(dice, name, [True, False], ordered=False, texts=False)
    return _against(dice, name, list(TEXTS))


def _against(
    dice: Random, name: str, values: list[Any], *, ordered: bool = True, texts: bool = True
) -> Comparison:
    operators = [Operator.EQUAL, Operator.EQUAL, Operator.UNEQUAL, Operator.IN, Operator.NOT_IN]
    operators += [Operator.IS_NULL, Operator.IS_NOT_NULL]
    if ordered and not any(isinstance(value, bool) for value in values):
        operators += [Operator.BELOW, Operator.AT_MOST, Operator.ABOVE, Operator.AT_LEAST]
        operators += [Operator.BETWEEN, Operator.NOT_BETWEEN]
    if texts:
        operators += [Operator.STARTS_WITH, Operator.NOT_STARTS_WITH]
    operator = dice.choice(operators)
    match operator:
        case Operator.IN | Operator.NOT_IN:
            drawn = [dice.choice(values) for _ in range(dice.randrange(1, 12))]
        case Operator.BETWEEN | Operator.NOT_BETWEEN:
            drawn = _of_one_kind(dice, values)
        case Operator.IS_NULL | Operator.IS_NOT_NULL:
            drawn = []
        case Operator.STARTS_WITH | Operator.NOT_STARTS_WITH:
            drawn = [dice.choice([value for value in values if len(value) <= 255])]
        case _:
            drawn = [dice.choice(values)]
    unregistered = name in ("Free", "Nobody")
    return Comparison(name, operator, tuple(LiteralAt(value) for value in drawn), quoted=unregistered)


def _of_one_kind(dice: Random, values: list[Any]) -> list[Any]:
    """Two values: a text that looks like a time would be one, if only one of them does."""
    plain = [value for value in values if not isinstance(value, str) or not value[:1].isdigit()] or values
    return [dice.choice(plain), dice.choice(plain)]
