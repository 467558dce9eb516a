"""Mocked activities."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock import Worker, activity, workflow
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.testing import ActivityEnvironment, WorkflowEnvironment, mocked
from tests.testing.flows import MINUTE, QUEUE, LookUp, Payment, a_worker, charge, look_up


@dataclass
class Order:
    name: str
    cents: int


class Shop:
    @activity.defn(name="sell-it")
    def sell(self, order: Order, note: str = "") -> Order:
        raise AssertionError("the test stands in for it")


@workflow.defn
class Selling:
    @workflow.run
    async def run(self, order: Order) -> Order:
        return await workflow.execute_activity_method(Shop.sell, order, start_to_close_timeout=MINUTE)


async def test_a_mock_answers_for_the_activity_and_remembers_its_calls(env: WorkflowEnvironment) -> None:
    paid = mocked(charge, returns="ok")
    async with a_worker(env, paid):
        assert await env.client.execute_workflow(Payment.run, "o-7", id="p", task_queue=QUEUE) == "ok"
    assert paid.calls == [("o-7", 5)]


async def test_a_mock_answers_with_what_a_function_makes_of_the_arguments(env: WorkflowEnvironment) -> None:
    async def paid(order: str, cents: int) -> str:
        return order * 2

    async with a_worker(env, mocked(charge, side_effect=paid)):
        assert await env.client.execute_workflow(Payment.run, "ab", id="p", task_queue=QUEUE) == "abab"


async def test_the_mock_of_a_function_that_runs_in_a_thread_runs_in_the_loop(
    env: WorkflowEnvironment,
) -> None:
    async def measured(name: str) -> int:
        await env.sleep(MINUTE / 2)
        return 4

    began = env.now()
    async with a_worker(env, mocked(look_up, side_effect=measured)):
        assert await env.client.execute_workflow(LookUp.run, "name", id="l", task_queue=QUEUE) == 4
    assert env.now() == began + MINUTE / 2


async def test_the_mock_of_a_method_needs_no_object_and_keeps_its_types(env: WorkflowEnvironment) -> None:
    sold = mocked(Shop.sell, returns=Order("sold", 1))
    async with Worker(env.client, task_queue=QUEUE, workflows=[Selling], activities=[sold]):
        result = await env.client.execute_workflow(Selling.run, Order("bread", 3), id="s", task_queue=QUEUE)
    assert result == Order("sold", 1)
    assert sold.calls == [(Order("bread", 3),)]


def test_a_mock_has_the_name_and_the_shape_of_its_activity() -> None:
    real, mock = (
        ActivityDefinition.must_be(Shop().sell),
        ActivityDefinition.to_run(mocked(Shop().sell, returns=Order("", 0))),
    )
    assert (mock.name, mock.parameters, mock.required) == (real.name, real.parameters, real.required)
    assert (mock.arg_types, mock.ret_type) == (real.arg_types, real.ret_type)
    assert mock.kind == "async"


async def test_a_mock_may_be_called_by_itself() -> None:
    paid = mocked(charge, returns="ok")
    assert await paid("o", cents=7) == "ok"
    assert await ActivityEnvironment().run(paid, "p", 8) == "ok"
    assert paid.calls == [("o", 7), ("p", 8)]


async def test_a_mock_raises_the_error_that_it_is_given() -> None:
    for side_effect in (OSError("away"), OSError):
        with pytest.raises(OSError):
            await mocked(charge, side_effect=side_effect)("o", 1)


def test_a_mock_must_be_told_what_to_do() -> None:
    with pytest.raises(TypeError, match="either returns= or side_effect="):
        mocked(charge)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="either returns= or side_effect="):
        mocked(charge, returns="ok", side_effect=OSError)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="for a value use returns="):
        mocked(charge, side_effect="ok")  # type: ignore[call-overload]


def test_only_an_activity_can_be_mocked() -> None:
    def plain() -> None: ...

    with pytest.raises(TypeError, match="not an activity"):
        mocked(plain, returns=None)
