"""Activities in the event loop and in threads: info, heartbeats, and how they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest

from penstock.sdk import activity
from penstock.sdk.activities.environment import DEFAULT_INFO
from penstock.sdk.activities.execution.heartbeats import throttle_interval
from penstock.sdk.activities.interceptors import ActivityInboundInterceptor
from penstock.sdk.converters import DEFAULT
from penstock.sdk.failures import ApplicationError, CancelledError, ServerRefused
from penstock.sdk.lease import lease_clock, lease_of, leased
from tests.sdk.activities.activities_support import (
    ASKED_TO_CANCEL,
    BEGIN,
    CANCELLED,
    LOST,
    HearingServer,
    SteppedClock,
    a_runner,
    a_task,
    failure,
    value,
)


@dataclass
class Order:
    id: str
    cents: int


@activity.defn
async def charge(order: Order, times: int = 1) -> Order:
    return Order(order.id, order.cents * times)


@activity.defn
def charge_in_thread(order: Order) -> str:
    return f"{type(order).__name__} in {threading.current_thread().name}"


class Cards:
    def __init__(self, bank: str) -> None:
        self.bank = bank

    @activity.defn
    def refund(self, order: str) -> str:
        return f"{self.bank}: {order}"


# Results


async def test_an_async_activity_gets_typed_arguments_and_completes():
    async with a_runner(charge) as runner:
        assert value(await runner.run(a_task("charge", Order("o", 5), 3))) == {"id": "o", "cents": 15}


async def test_an_argument_with_a_default_may_be_left_out():
    async with a_runner(charge) as runner:
        assert value(await runner.run(a_task("charge", Order("o", 5)))) == {"id": "o", "cents": 5}


async def test_a_plain_function_runs_in_a_thread_of_the_worker():
    async with a_runner(charge_in_thread) as runner:
        assert value(await runner.run(a_task("charge_in_thread", Order("o", 5)))) == "Order in activity-1"


async def test_a_plain_function_runs_in_the_executor_that_is_given():
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as mine:
        async with a_runner(charge_in_thread, executor=mine) as runner:
            found = value(await runner.run(a_task("charge_in_thread", Order("o", 5))))
    assert found == "Order in mine_0"


async def test_an_executor_of_processes_is_refused_with_the_way_out():
    with ProcessPoolExecutor(1) as processes, pytest.raises(TypeError, match='runs_in="process"'):
        async with a_runner(charge_in_thread, executor=processes):
            pass


async def test_a_method_runs_with_what_its_object_holds():
    async with a_runner(Cards("bank").refund) as runner:
        assert value(await runner.run(a_task("refund", "o-1"))) == "bank: o-1"


async def test_a_dynamic_activity_runs_for_names_that_nobody_has():
    @activity.defn(dynamic=True)
    async def anything(args: Sequence[activity.RawValue]) -> list[object]:
        return [activity.info().activity_type, args[0].to(Order).cents, args[1].value]

    async with a_runner(charge, anything) as runner:
        assert value(await runner.run(a_task("ship", Order("o", 5), "x"))) == ["ship", 5, "x"]
        assert value(await runner.run(a_task("charge", Order("o", 5)))) == {"id": "o", "cents": 5}


async def test_two_activities_of_one_name_are_refused():
    with pytest.raises(ValueError, match='Two activities are named "charge"'):
        async with a_runner(charge, charge):
            pass


# Failures


async def test_an_unknown_activity_is_told_what_there_is_and_what_was_meant():
    async with a_runner(charge, charge_in_thread) as runner:
        told = failure(await runner.run(a_task("chargee")))
    assert (told["type"], told["non_retryable"]) == ("NotFoundError", False)
    assert told["message"] == (
        'This worker does not run activity "chargee", but charge, charge_in_thread. Did you mean "charge"?'
    )


async def test_a_wrong_count_of_arguments_is_not_tried_again():
    async with a_runner(charge) as runner:
        told = failure(await runner.run(a_task("charge", Order("o", 1), 2, 3)))
    assert told["non_retryable"]
    assert told["message"] == 'Activity "charge" takes 1 to 2 arguments (order, times), not 3'


async def test_an_argument_of_a_wrong_shape_is_named_and_not_tried_again():
    async with a_runner(charge) as runner:
        told = failure(await runner.run(a_task("charge", {"id": "o", "cents": "many"})))
    assert told["non_retryable"]
    assert 'argument 1 of activity "charge"' in told["message"]


@pytest.mark.parametrize("runs_in", ["loop", "thread"])
async def test_a_result_that_cannot_be_encoded_is_named_and_not_tried_again(runs_in):
    @activity.defn(name="odd")
    async def odd() -> object:
        return object()

    @activity.defn(name="odd")
    def odd_in_thread() -> object:
        return object()

    async with a_runner(odd if runs_in == "loop" else odd_in_thread) as runner:
        told = failure(await runner.run(a_task("odd")))
    assert (told["non_retryable"], told["malformed_output"]) == (True, True)
    assert 'result of activity "odd"' in told["message"]


async def test_an_error_is_told_with_its_causes_and_where_it_was_raised():
    @activity.defn
    def decline() -> None:
        try:
            raise KeyError("card")
        except KeyError as missing:
            raise ApplicationError("no", 7, type="CardDeclined", non_retryable=True) from missing

    async with a_runner(decline) as runner:
        told = failure(await runner.run(a_task("decline")))
    assert (told["type"], told["non_retryable"], told["cause"]["type"]) == ("CardDeclined", True, "KeyError")
    assert "decline" in told["stack_trace"]
    assert "performing.py" not in told["stack_trace"]


@pytest.mark.parametrize("runs_in", ["loop", "thread"])
async def test_sys_exit_ends_the_activity_and_not_the_worker(runs_in):
    @activity.defn(name="leave")
    async def leave() -> None:
        raise SystemExit(3)

    @activity.defn(name="leave")
    def leave_in_thread() -> None:
        raise SystemExit(3)

    async with a_runner(leave if runs_in == "loop" else leave_in_thread) as runner:
        assert failure(await runner.run(a_task("leave")))["type"] == "SystemExit"


async def test_an_upstream_refusal_is_told_as_such():
    @activity.defn
    async def ask() -> None:
        activity.throttled(retry_after=timedelta(seconds=30))

    async with a_runner(ask) as runner:
        told = failure(await runner.run(a_task("ask")))
    assert (told["throttled"], told["retry_after_seconds"]) == (True, 30)


async def test_an_inner_cancellation_that_nobody_asked_for_is_a_failure():
    @activity.defn
    async def inner() -> None:
        raise asyncio.CancelledError

    async with a_runner(inner) as runner:
        assert failure(await runner.run(a_task("inner")))["type"] == "CancelledError"


# Info


@pytest.mark.parametrize("runs_in", ["loop", "thread"])
async def test_an_activity_knows_what_it_is(runs_in):
    seen: list[activity.ActivityInfo] = []

    @activity.defn(name="look")
    async def look() -> None:
        seen.append(activity.info())

    @activity.defn(name="look")
    def look_in_thread() -> None:
        seen.append(activity.info())

    task = a_task(
        "look",
        attempt_number=3,
        scheduled_at="2030-01-01T00:00:00.000Z",
        started_at="2030-01-01T00:00:10.500Z",
        deadlines={"start_to_close": "2030-01-01T00:00:12.000Z", "heartbeat": "2030-01-01T00:00:11.000Z"},
        heartbeat_details=DEFAULT.encode_arguments(["half", 2], "x"),
    )
    clock = SteppedClock()
    async with a_runner(look if runs_in == "loop" else look_in_thread, clock=clock) as runner:
        await runner.run(task)
    (info,) = seen
    assert (info.activity_type, info.attempt, info.workflow_id, info.workflow_type) == (
        "look",
        3,
        "order-7",
        "Order",
    )
    assert (info.workflow_run_id, info.task_queue, info.namespace) == ("run", "cards", "default")
    assert (info.idempotency_key, info.task_token) == (
        info.activity_id,
        f"{info.activity_id}/1.secret",
    )
    assert info.start_to_close_timeout == timedelta(seconds=1.5)
    assert info.heartbeat_timeout == timedelta(seconds=0.5)
    assert info.deadline == BEGIN + timedelta(seconds=1.5)
    assert list(info.heartbeat_details) == ["half", 2]
    assert (info.priority.priority_key, info.priority.fairness_key) == (2, "tenant-a")
    assert not info.is_local


async def test_the_time_that_a_task_has_waited_counts_towards_the_whole():
    seen: list[activity.ActivityInfo] = []

    @activity.defn
    async def look() -> None:
        seen.append(activity.info())

    task = a_task(
        "look",
        scheduled_at="2040-01-01T00:00:00.000Z",
        started_at="2040-01-01T00:00:50.000Z",
        retry_policy={"schedule_to_close_timeout": 60, "start_to_close_timeout": 30},
    )
    async with a_runner(look, clock=SteppedClock()) as runner:
        await runner.run(task)
    assert seen[0].deadline == BEGIN + timedelta(seconds=10)


def test_outside_of_an_activity_there_is_no_info():
    assert not activity.in_activity()
    with pytest.raises(RuntimeError, match="Not inside of an activity"):
        activity.info()


async def test_log_lines_say_which_activity_they_are_about(caplog):
    @activity.defn
    def speak() -> None:
        activity.logger.info("paid %d", 7)

    with caplog.at_level(logging.INFO):
        async with a_runner(speak) as runner:
            await runner.run(a_task("speak"))
    (line,) = [each for each in caplog.records if each.name == "penstock.activity"]
    assert line.getMessage().startswith("paid 7 (activity speak activity-")
    assert line.__dict__["workflow_id"] == "order-7"


@pytest.mark.parametrize("fails", [False, True])
async def test_the_real_cost_goes_with_the_outcome(fails):
    @activity.defn
    def spend() -> None:
        activity.report_cost(3)
        activity.report_cost(5)
        if fails:
            raise ApplicationError("no")

    async with a_runner(spend) as runner:
        assert (await runner.run(a_task("spend")))["cost"] == 5


async def test_a_cost_that_is_none_is_refused():
    @activity.defn
    def spend(cost: object) -> None:
        activity.report_cost(cost)  # type: ignore[arg-type]

    async with a_runner(spend) as runner:
        told = [failure(await runner.run(a_task("spend", cost)))["type"] for cost in (-1, "7")]
    assert told == ["ValueError", "TypeError"]


# Heartbeats


def test_the_throttle_follows_the_heartbeat_timeout_within_its_bounds():
    seconds = [timedelta(seconds=each) for each in (30, 60)]
    assert throttle_interval(None, *seconds) == timedelta(seconds=30)
    assert throttle_interval(timedelta(seconds=10), *seconds) == timedelta(seconds=8)
    assert throttle_interval(timedelta(hours=1), *seconds) == timedelta(seconds=60)


async def test_the_first_heartbeat_goes_at_once_and_the_last_one_when_the_interval_is_over():
    server, clock, go_on = HearingServer(), SteppedClock(), asyncio.Event()

    @activity.defn
    async def work() -> None:
        activity.heartbeat(1)
        await server.heard(1)
        activity.heartbeat(2)
        activity.heartbeat(3)
        await go_on.wait()

    async with a_runner(work, server=server, clock=clock) as runner:
        running = asyncio.create_task(runner.run(a_task("work")))
        await clock.advance(29)
        assert server.told == [[1]]
        await clock.advance(1)
        await server.heard(2)
        go_on.set()
        value(await running)
    assert server.told == [[1], [3]]
    assert [body["sequence"] for body in server.bodies] == [1, 2]


@pytest.mark.parametrize("runs_in", ["loop", "thread"])
async def test_what_was_told_last_before_a_failure_is_heard(runs_in):
    server = HearingServer()

    def tell() -> None:
        for number in range(50):
            activity.heartbeat(number)
        raise ApplicationError("no")

    @activity.defn(name="work")
    async def work() -> None:
        tell()

    work_in_thread = activity.defn(name="work")(tell)
    async with a_runner(work if runs_in == "loop" else work_in_thread, server=server) as runner:
        failure(await runner.run(a_task("work")))
    assert server.told[-1] == [49]


async def test_a_failure_is_not_reported_before_the_heartbeat_that_is_on_its_way_has_arrived():
    sent, may_arrive, arrived = asyncio.Event(), asyncio.Event(), []

    class Slow(HearingServer):
        async def heartbeat(self, task, body):
            sent.set()
            await may_arrive.wait()
            arrived.append(body["sequence"])
            return await super().heartbeat(task, body)

    @activity.defn
    async def work() -> None:
        activity.heartbeat("half")
        await sent.wait()
        raise ApplicationError("no")

    async with a_runner(work, server=Slow()) as runner:
        running = asyncio.create_task(runner.run(a_task("work")))
        await sent.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not running.done()
        may_arrive.set()
        failure(await running)
    assert arrived == [1]


async def test_what_the_server_says_to_a_renewal_of_the_worker_is_heeded():
    began = asyncio.Event()

    @activity.defn
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    task = a_task("work")
    async with a_runner(work) as runner:
        running = asyncio.create_task(runner.run(task))
        await began.wait()
        runner.apply_heartbeat_response(task["task_id"], LOST)
        assert await running == {"action": "drop", "reason": "lease_lost"}
        runner.apply_heartbeat_response(task["task_id"], LOST)


async def test_details_that_cannot_be_sent_are_refused_where_they_are_told():
    @activity.defn
    async def work() -> None:
        activity.heartbeat(object())

    async with a_runner(work) as runner:
        assert 'heartbeat of activity "work"' in failure(await runner.run(a_task("work")))["message"]


async def test_a_heartbeat_that_was_not_heard_is_soon_told_again():
    server, clock, go_on = HearingServer(), SteppedClock(), asyncio.Event()
    server.answer = ConnectionError("away")

    @activity.defn
    async def work() -> str:
        activity.heartbeat("half")
        await go_on.wait()
        return "done"

    async with a_runner(work, server=server, clock=clock) as runner:
        running = asyncio.create_task(runner.run(a_task("work")))
        await server.heard(1)
        await clock.advance(3)
        await server.heard(2)
        go_on.set()
        assert value(await running) == "done"
    assert server.told == [["half"], ["half"]]


async def test_an_attempt_that_the_server_does_not_know_any_more_is_dropped():
    server = HearingServer()
    server.answer = ServerRefused("attempt_not_found", "There is no such attempt.", 404, {})

    @activity.defn
    async def work() -> None:
        activity.heartbeat()
        await activity.wait_for_cancelled()
        await asyncio.Event().wait()

    async with a_runner(work, server=server) as runner:
        assert await runner.run(a_task("work")) == {"action": "drop", "reason": "lease_lost"}


async def test_an_automatic_heartbeat_repeats_what_is_known():
    server, clock, go_on = HearingServer(), SteppedClock(), asyncio.Event()

    @activity.defn(auto_heartbeat=True)
    async def work() -> None:
        await server.heard(1)
        activity.heartbeat("half")
        await go_on.wait()

    before = DEFAULT.encode_arguments(["a quarter"], "x")
    task = a_task("work", heartbeat_details=before, retry_policy={"heartbeat_timeout": 10})
    async with a_runner(work, server=server, clock=clock) as runner:
        running = asyncio.create_task(runner.run(task))
        await clock.advance(5)
        await server.heard(1)
        await clock.advance(5, sleepers=2)
        await server.heard(2)
        go_on.set()
        value(await running)
    assert server.told == [["a quarter"], ["half"]]


async def test_a_worker_may_heartbeat_for_all_its_activities_and_one_may_decline():
    server, clock, go_on = HearingServer(), SteppedClock(), asyncio.Event()

    @activity.defn
    async def work() -> None:
        await go_on.wait()

    @activity.defn(auto_heartbeat=False)
    async def silent() -> None:
        await go_on.wait()

    async with a_runner(
        work, silent, server=server, clock=clock, auto_heartbeat=timedelta(seconds=2)
    ) as runner:
        running = [asyncio.create_task(runner.run(a_task(name))) for name in ("work", "silent")]
        await clock.advance(2)
        await server.heard(1)
        go_on.set()
        await asyncio.gather(*running)
    assert len(server.bodies) == 1


# Cancellation


@pytest.mark.parametrize("answer", [CANCELLED, LOST])
async def test_an_async_activity_that_nobody_wants_is_cancelled_and_dropped(answer):
    server, ended = HearingServer(), []
    server.answer = answer

    @activity.defn
    async def work() -> None:
        activity.heartbeat()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(activity.is_cancelled())

    async with a_runner(work, server=server) as runner:
        assert await runner.run(a_task("work")) == {"action": "drop", "reason": "lease_lost"}
    assert ended == [True]


async def test_a_cancelled_activity_may_clean_up_and_still_answer():
    server = HearingServer()
    server.answer = ASKED_TO_CANCEL

    @activity.defn
    async def work() -> str:
        activity.heartbeat()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "cleaned up"

    async with a_runner(work, server=server) as runner:
        assert value(await runner.run(a_task("work"))) == "cleaned up"


async def test_a_cancelled_activity_that_gives_in_says_so():
    server = HearingServer()
    server.answer = ASKED_TO_CANCEL

    @activity.defn
    def work() -> None:
        activity.heartbeat()
        activity.wait_for_cancelled_sync()
        while True:
            time.sleep(0)

    async with a_runner(work, server=server) as runner:
        told = failure(await runner.run(a_task("work")))
    assert (told["type"], told["cancelled"]) == ("CancelledError", True)


async def test_an_activity_in_a_thread_is_interrupted():
    server, ended = HearingServer(), []
    server.answer = LOST

    @activity.defn
    def work() -> None:
        try:
            activity.heartbeat()
            while True:
                time.sleep(0)
        except CancelledError as error:
            ended.append(type(error))
            raise

    async with a_runner(work, server=server) as runner:
        assert (await runner.run(a_task("work")))["action"] == "drop"
    assert ended == [CancelledError]


async def test_a_shield_holds_the_interruption_back_until_it_ends():
    server, steps = HearingServer(), []
    server.answer = LOST

    @activity.defn
    def work() -> None:
        with activity.shield_thread_cancel_exception():
            activity.heartbeat()
            activity.wait_for_cancelled_sync()
            for _ in range(1000):
                time.sleep(0)
            steps.append("kept whole")
        steps.append("not reached")

    async with a_runner(work, server=server) as runner:
        assert (await runner.run(a_task("work")))["action"] == "drop"
    assert steps == ["kept whole"]


async def test_an_interruption_never_reaches_the_next_activity_of_its_thread():
    server = HearingServer()

    @activity.defn
    def short() -> int:
        activity.heartbeat()
        return sum(range(300))

    server.answer = ASKED_TO_CANCEL
    async with a_runner(short, server=server, thread_slots=1) as runner:
        for _ in range(200):
            await runner.run(a_task("short"))
        server.answer = {"can_continue": True, "cancel_requested": False}
        assert value(await runner.run(a_task("short"))) == sum(range(300))


async def test_an_activity_that_does_not_stop_is_counted_as_stuck_until_it_ends(caplog):
    server, clock, let_go = HearingServer(), SteppedClock(), threading.Event()
    server.answer = LOST

    @activity.defn
    def hang() -> None:
        with activity.shield_thread_cancel_exception():
            activity.heartbeat()
            let_go.wait()

    async with a_runner(hang, server=server, clock=clock) as runner:
        running = asyncio.create_task(runner.run(a_task("hang")))
        await server.heard(1)
        await clock.advance(10, sleepers=2)
        assert await running == {"action": "drop", "reason": "lease_lost"}
        assert runner.stuck == 1
        assert "in hang" in caplog.text
        let_go.set()
        while runner.stuck:
            await asyncio.sleep(0)


# Timeouts


@pytest.mark.parametrize(
    ("policy", "kind", "final"),
    [
        ({"start_to_close_timeout": 60, "schedule_to_close_timeout": 600}, "start_to_close", False),
        ({"schedule_to_close_timeout": 60}, "schedule_to_close", True),
    ],
)
async def test_an_async_activity_that_hangs_is_stopped_by_its_timeout(policy, kind, final):
    clock = SteppedClock()

    @activity.defn
    async def hang() -> None:
        await asyncio.Event().wait()

    async with a_runner(hang, clock=clock) as runner:
        running = asyncio.create_task(runner.run(a_task("hang", retry_policy=policy)))
        await clock.advance(60)
        told = failure(await running)
    assert (told["type"], told["kind"], told["timeout_type"]) == ("TimeoutError", "timeout", kind)
    assert told["non_retryable"] is final
    assert told["message"].endswith("timeout of 60 s")


async def test_a_thread_that_hangs_past_its_timeout_is_told_with_its_stack(caplog):
    clock, let_go, began = SteppedClock(), threading.Event(), threading.Event()

    @activity.defn
    def hang() -> None:
        began.set()
        let_go.wait()

    task = a_task("hang", retry_policy={"start_to_close_timeout": 60})
    async with a_runner(hang, clock=clock) as runner:
        running = asyncio.create_task(runner.run(task))
        await asyncio.to_thread(began.wait)
        await clock.advance(60)
        await clock.advance(10)
        assert failure(await running)["timeout_type"] == "start_to_close"
        assert runner.stuck == 1
        let_go.set()
    assert "in hang" in caplog.text


async def test_a_task_that_times_out_before_it_gets_a_thread_is_never_run():
    clock, let_go, began, ran = SteppedClock(), threading.Event(), threading.Event(), []

    @activity.defn
    def hold() -> None:
        began.set()
        let_go.wait()

    @activity.defn
    def late() -> None:
        ran.append("late")

    async with a_runner(hold, late, clock=clock, thread_slots=1) as runner:
        holding = asyncio.create_task(runner.run(a_task("hold")))
        await asyncio.to_thread(began.wait)
        waiting = asyncio.create_task(runner.run(a_task("late", retry_policy={"start_to_close_timeout": 1})))
        await clock.advance(1)
        await clock.advance(10)
        failure(await waiting)
        let_go.set()
        value(await holding)
    assert ran == []


# Shutdown


@pytest.mark.parametrize("runs_in", ["loop", "thread"])
async def test_activities_are_told_that_the_worker_stops_and_may_end_by_themselves(runs_in):
    began = threading.Event()

    @activity.defn(name="work")
    async def work() -> bool:
        began.set()
        await activity.wait_for_worker_shutdown()
        return activity.is_worker_shutdown()

    @activity.defn(name="work")
    def work_in_thread() -> bool:
        began.set()
        activity.wait_for_worker_shutdown_sync()
        return activity.is_worker_shutdown()

    async with a_runner(work if runs_in == "loop" else work_in_thread) as runner:
        running = asyncio.create_task(runner.run(a_task("work")))
        await asyncio.to_thread(began.wait)
        await runner.close(timedelta(minutes=1))
        assert value(await running) is True


async def test_what_has_not_ended_within_the_grace_is_cancelled_and_left_to_other_workers():
    clock, began = SteppedClock(), asyncio.Event()

    @activity.defn
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    async with a_runner(work, clock=clock) as runner:
        running = asyncio.create_task(runner.run(a_task("work")))
        await began.wait()
        closing = asyncio.create_task(runner.close(timedelta(seconds=30)))
        await clock.advance(29)
        assert not running.done()
        await clock.advance(1)
        assert await running == {"action": "drop", "reason": "worker_shutdown"}
        await closing


# Interceptors


async def test_interceptors_stand_around_activities_the_first_outermost():
    seen: list[str] = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def intercept_activity(self, next):  # noqa: A002
            name = self.name

            class Around(ActivityInboundInterceptor):
                async def execute_activity(self, input):  # noqa: A002
                    seen.append(f"{name} before {activity.info().activity_type}")
                    found = await super().execute_activity(input)
                    seen.append(f"{name} after")
                    return found

            return Around(next)

    async with a_runner(charge_in_thread, interceptors=[Named("a"), object(), Named("b")]) as runner:
        value(await runner.run(a_task("charge_in_thread", Order("o", 1))))
    assert seen == ["a before charge_in_thread", "b before charge_in_thread", "b after", "a after"]


# Local activities


LOCAL = dataclasses.replace(DEFAULT_INFO, activity_type="charge", is_local=True)


async def test_a_local_activity_runs_without_telling_anybody():
    server = HearingServer()

    @activity.defn
    async def work() -> bool:
        activity.heartbeat("unheard")
        return activity.info().is_local

    async with a_runner(work, server=server) as runner:
        assert value(await runner.run_local("work", None, LOCAL)) is True
        assert failure(await runner.run_local("wok", None, LOCAL))["type"] == "NotFoundError"
    assert server.bodies == []


async def test_a_local_activity_is_stopped_with_whoever_waits_for_it(caplog):
    began, ended = asyncio.Event(), asyncio.Event()

    @activity.defn
    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with a_runner(work) as runner:
        running = asyncio.create_task(runner.run_local("work", None, LOCAL))
        await began.wait()
        running.cancel()
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


async def test_a_local_activity_has_a_deadline_of_its_own():
    clock = SteppedClock()

    @activity.defn
    async def work() -> None:
        await asyncio.Event().wait()

    limit = timedelta(seconds=5)
    info = dataclasses.replace(LOCAL, start_to_close_timeout=limit, deadline=BEGIN + limit)
    async with a_runner(work, clock=clock) as runner:
        running = asyncio.create_task(runner.run_local("work", None, info))
        await clock.advance(5)
        assert failure(await running)["timeout_type"] == "start_to_close"


async def test_the_message_of_a_timeout_names_the_timeout_that_was_asked_for():
    """Not what was left of it when the task arrived, which differs in every attempt."""
    clock = SteppedClock()

    @activity.defn
    async def work() -> None:
        await asyncio.Event().wait()

    limit = timedelta(seconds=5)
    info = dataclasses.replace(
        LOCAL, start_to_close_timeout=limit, deadline=BEGIN + limit - timedelta(milliseconds=7)
    )
    async with a_runner(work, clock=clock) as runner:
        running = asyncio.create_task(runner.run_local("work", None, info))
        await clock.advance(5)
        assert failure(await running)["message"].endswith("exceeded its start to close timeout of 5 s")


@pytest.mark.parametrize("how", ["local", "task"])
@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_what_the_code_does_after_its_timeout_does_not_count(how: str, ends: str):
    """It swallows the cancellation and ends in its own way."""
    clock = SteppedClock()

    @activity.defn
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ends == "raises":
                raise ValueError("something else") from None
        return "too late"

    limit = timedelta(seconds=5)
    info = dataclasses.replace(LOCAL, start_to_close_timeout=limit, deadline=BEGIN + limit)
    async with a_runner(work, clock=clock) as runner:
        task = a_task("work", retry_policy={"start_to_close_timeout": 5})
        asked = runner.run(task) if how == "task" else runner.run_local("work", None, info)
        running = asyncio.create_task(asked)
        await clock.advance(5)
        assert failure(await running)["timeout_type"] == "start_to_close"


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("how", ["local", "task"])
async def test_code_does_not_begin_once_the_lease_has_ended(kind: str, how: str):
    ran: list[str] = []

    @activity.defn(name="work")
    async def in_loop() -> None:
        ran.append("async")

    @activity.defn(name="work")
    def in_thread() -> None:
        ran.append("thread")

    over = leased(a_task("work", lease_ends_after_ms=1_000), lease_clock() - 1)
    async with a_runner(in_loop if kind == "async" else in_thread) as runner:
        asked = runner.run(over) if how == "task" else runner.run_local("work", None, LOCAL, lease_of(over))
        assert await asked == {"action": "drop", "reason": "lease_ended"}
        again = leased(a_task("work", lease_ends_after_ms=60_000), lease_clock())
        assert (await runner.run(again))["action"] == "complete"
    assert ran == [kind]
