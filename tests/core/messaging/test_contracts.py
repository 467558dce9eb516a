"""What workers say a workflow can be told."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.messaging import contracts
from penstock.core.messaging.contracts import MessageContracts
from penstock.core.model import WorkerRecord
from tests.support.builders import a_worker

PLAIN = {"signals": ["go", "stop"], "queries": ["state"], "updates": ["approve"]}


def knows(contract: Any = PLAIN, **changes: Any) -> WorkerRecord:
    return a_worker(advertised={"workflow_command_contracts": {"Order": contract}}, **changes)


def takes(*parameters: dict[str, Any]) -> MessageContracts:
    entry = {"name": "go", "parameters": list(parameters)}
    return MessageContracts([{"signals": ["go"], "signal_contracts": [entry]}])


def test_the_names_are_those_of_the_type():
    found = contracts.of_type([knows()], "Order")
    assert found.names("signal") == frozenset({"go", "stop"})
    assert found.names("query") == frozenset({"state"})
    assert found.names("update") == frozenset({"approve"})


def test_workers_of_two_builds_may_each_know_more():
    found = contracts.of_type([knows(), knows({"signals": ["pause"]})], "Order")
    assert found.names("signal") == frozenset({"go", "stop", "pause"})
    assert found.names("query") is None, "the second did not say"


def test_a_worker_for_activities_alone_does_not_leave_anything_unsaid():
    silent = a_worker(workflow_types=(), advertised={})
    assert contracts.of_type([knows(), silent], "Order").names("signal") is None
    for_activities = a_worker(workflow_types=(), workflow_slots=0, advertised={})
    assert contracts.of_type([knows(), for_activities], "Order").names("signal") == frozenset({"go", "stop"})


def test_an_update_is_validated_though_another_worker_says_nothing_or_the_one_that_wants_to_is_away():
    wants = knows(PLAIN | {"update_validators": ["approve"]})
    silent = a_worker(advertised={})
    assert contracts.of_type([wants, silent], "Order").validates("approve")
    assert contracts.of_type([silent], "Order", [wants]).validates("approve")
    assert not contracts.of_type([silent], "Order", [wants]).validates("refuse")


@pytest.mark.parametrize(
    "workers",
    [
        [],
        [a_worker(advertised={})],
        [knows(), a_worker(advertised={})],
        [knows(), a_worker(advertised={"workflow_command_contracts": None}, workflow_types=())],
        [knows("nonsense")],
        [knows({"signals": "go"})],
        [knows({"signals": None})],
    ],
)
def test_where_somebody_who_knows_the_type_did_not_say_everything_is_allowed(workers: list[WorkerRecord]):
    assert contracts.of_type(workers, "Order").names("signal") is None


def test_workers_of_other_types_have_no_say():
    other = a_worker(advertised={}, workflow_types=("Refund",))
    assert contracts.of_type([knows(), other], "Order").names("signal") == frozenset({"go", "stop"})


def test_a_type_that_takes_nothing_says_so():
    assert contracts.of_type([knows({"signals": []})], "Order").names("signal") == frozenset()


def test_an_update_is_validated_where_any_worker_wants_to():
    found = contracts.of_type([knows(), knows(PLAIN | {"update_validators": ["approve"]})], "Order")
    assert found.validates("approve")
    assert not found.validates("reject")
    assert not contracts.of_type([knows(PLAIN | {"update_validators": None})], "Order").validates("approve")


# ── Arguments ───────────────────────────────────────────────────────────────────────────────────────────

NUMBER = {"name": "count", "type": "int", "required": True}
NOTE = {"name": "note", "type": "string|null"}


@pytest.mark.parametrize("values", [[1], [1, "x"], [1, None]])
def test_arguments_that_fit_are_no_problem(values: list[object]):
    assert takes(NUMBER, NOTE).problem("signal", "go", values) is None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([], "takes at least 1 arguments, got 0"),
        ([1, "x", 2], "takes at most 2 arguments, got 3"),
        (["1"], "argument 'count' must be int, got string"),
        ([True], "argument 'count' must be int, got bool"),
        ([1.5], "argument 'count' must be int, got float"),
        ([None], "argument 'count' must be int, got null"),
        ([[1]], "argument 'count' must be int, got array"),
        ([1, 2], "argument 'note' must be string|null, got int"),
    ],
)
def test_arguments_that_do_not_fit_are_told_apart(values: list[object], problem: str):
    assert takes(NUMBER, NOTE).problem("signal", "go", values) == problem


def test_the_rest_of_the_arguments_may_be_anything():
    rest = {"name": "rest", "type": "int", "variadic": True}
    assert takes(NUMBER, rest).problem("signal", "go", [1, "a", None, {}]) is None


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ({"type": "float"}, 1),
        ({"type": "array"}, {"a": 1}),
        ({"type": "mixed"}, None),
        ({"type": "int", "allows_null": True}, None),
        ({"type": "App\\Money"}, {"amount": 1}),
        ({}, object()),
        ({"type": None}, 1),
    ],
)
def test_types_are_taken_generously(parameter: dict[str, Any], value: object):
    assert takes(parameter).problem("signal", "go", [value]) is None


def test_one_value_is_a_list_of_one():
    assert takes(NUMBER).problem("signal", "go", 1) is None


def test_arguments_that_fit_the_code_of_one_build_are_fine():
    entry = {"name": "go", "parameters": []}
    both = MessageContracts([*takes(NUMBER).of_workers, {"signals": ["go"], "signal_contracts": [entry]}])
    assert both.problem("signal", "go", []) is None
    assert both.problem("signal", "go", [1]) is None
    assert both.problem("signal", "go", [1, 2]) is not None


def test_what_is_not_described_is_not_checked():
    assert MessageContracts([PLAIN]).problem("signal", "go", [1, 2, 3]) is None
    assert takes(NUMBER).problem("signal", "stop", []) is None
    assert (
        MessageContracts([{"signal_contracts": [None, {"name": "go"}]}]).problem("signal", "go", [1]) is None
    )
