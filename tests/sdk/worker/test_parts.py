"""Parts of a worker in isolation: slots, backoff, run cache, reports, polls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.worker.error_policy import ErrorPolicy
from penstock.sdk.worker.execution.report_batcher import ReportBatcher
from penstock.sdk.worker.execution.run_cache import RunCache
from penstock.sdk.worker.handler_contracts import parameters
from penstock.sdk.worker.matching.backoff import Backoff
from penstock.sdk.worker.matching.poller import PollContext, Poller
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.metrics import NullMetrics
from penstock.sdk.worker.options import WorkerOptions

Json = dict[str, Any]


class TestSlots:
    async def test_no_more_places_are_taken_than_there_are(self) -> None:
        slots = Slots(3)
        assert await slots.take(2) == 2
        assert await slots.take(5) == 1
        assert slots.free == 0

    async def test_who_finds_no_place_waits_for_one(self) -> None:
        slots = Slots(1)
        await slots.take()
        waiting = asyncio.ensure_future(slots.take(4))
        await asyncio.sleep(0)
        assert not waiting.done()
        slots.give_back()
        assert await waiting == 1

    async def test_a_place_that_is_given_back_wakes_one_of_those_who_wait(self) -> None:
        slots = Slots(1)
        await slots.take()
        waiting = [asyncio.ensure_future(slots.take()) for _ in range(3)]
        slots.give_back()
        done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(left)) == (1, 2)
        for each in left:
            each.cancel()


def test_pauses_grow_up_to_a_bound_and_begin_again_after_an_answer() -> None:
    pauses = Backoff(first_s=1, max_s=4, jitter=lambda: 1.0)
    assert [pauses.pause_s() for _ in range(4)] == [1, 2, 4, 4]
    pauses.reset()
    assert pauses.pause_s() == 1


def test_a_pause_is_not_shorter_than_what_the_server_asks_for() -> None:
    assert Backoff(first_s=0.1, jitter=lambda: 0.0).pause_s(at_least_s=3) == 3


class TestRunCache:
    def cache(self, runs_max: int) -> tuple[RunCache[str], list[str]]:
        gone: list[str] = []
        return RunCache(runs_max, gone.append), gone

    def test_the_run_that_was_not_used_for_longest_goes_first(self) -> None:
        cache, gone = self.cache(2)
        for run in ("a", "b"):
            cache.put(run, run)
        cache.put("a", cache.take("a") or "")
        cache.put("c", "c")
        assert gone == ["b"]
        assert len(cache) == 2

    def test_a_run_that_is_taken_is_nobody_elses(self) -> None:
        cache, gone = self.cache(2)
        cache.put("a", "a")
        assert cache.take("a") == "a"
        assert cache.peek("a") is None
        assert cache.take("a") is None
        assert gone == []

    def test_a_cache_for_none_keeps_none(self) -> None:
        cache, gone = self.cache(0)
        cache.put("a", "a")
        assert not cache.is_enabled
        assert (len(cache), gone) == (0, ["a"])


class Server:
    """Answers reports as configured."""

    def __init__(self, *behaviour: Any) -> None:
        self.behaviour = deque(behaviour)
        self.single: list[Json] = []
        self.batches: list[list[Json]] = []

    def _react(self) -> Any:
        reaction = self.behaviour.popleft() if self.behaviour else None
        if isinstance(reaction, Exception):
            raise reaction
        return reaction

    async def offloaded(self, item: Json) -> Json:
        return item

    async def report(self, kind: str, item: Json) -> Json:
        self.single.append(item)
        self._react()
        return {"task_id": item["task_id"]}

    async def report_all(self, kind: str, items: list[Json]) -> list[Json]:
        self.batches.append(list(items))
        reaction = self._react() or {}
        return [
            reaction.get(item["task_id"]) or {"http_status": 200, "task_id": item["task_id"]}
            for item in items
        ]


def reports_to(server: Server) -> ReportBatcher:
    return ReportBatcher("activity", server, NullMetrics())  # type: ignore[arg-type]


def item(number: int) -> Json:
    return {"task_id": f"t{number}", "action": "complete"}


class TestReports:
    async def test_what_is_ready_together_travels_together(self) -> None:
        server = Server()
        reports = reports_to(server)
        answers = await asyncio.gather(*(reports.send(item(n)) for n in range(5)))
        assert [answer["task_id"] for answer in answers] == [f"t{n}" for n in range(5)]
        assert [len(batch) for batch in server.batches] == [5]
        assert server.single == []

    async def test_one_that_is_ready_alone_travels_alone(self) -> None:
        server = Server()
        await reports_to(server).send(item(1))
        assert server.single == [item(1)]
        assert server.batches == []

    async def test_a_batch_has_at_most_a_hundred(self) -> None:
        server = Server()
        reports = reports_to(server)
        await asyncio.gather(*(reports.send(item(n)) for n in range(250)))
        assert sorted(len(batch) for batch in server.batches) == [50, 100, 100]

    async def test_a_report_that_got_no_answer_is_sent_again_as_it_was(self) -> None:
        server = Server(Unreachable("away"), Unreachable("away"))
        assert (await reports_to(server).send(item(1)))["task_id"] == "t1"
        assert server.single == [item(1)] * 3

    async def test_a_refusal_reaches_the_one_whose_report_it_is(self) -> None:
        lost = {"http_status": 409, "reason": "lease_expired", "message": "late"}
        server = Server({"t1": lost})
        reports = reports_to(server)
        outcomes = await asyncio.gather(*(reports.send(item(n)) for n in range(3)), return_exceptions=True)
        assert [isinstance(each, ServerRefused) for each in outcomes] == [False, True, False]

    async def test_of_a_batch_only_those_are_sent_again_that_were_not_taken(self) -> None:
        busy = {"http_status": 503, "reason": "store_unavailable", "message": "busy"}
        server = Server({"t1": busy})
        reports = reports_to(server)
        await asyncio.gather(*(reports.send(item(n)) for n in range(3)))
        assert [[each["task_id"] for each in batch] for batch in server.batches] == [
            ["t0", "t1", "t2"],
            ["t1"],
        ]

    async def test_a_batch_that_is_too_large_as_a_whole_is_sent_in_halves(self) -> None:
        server = Server(ServerRefused("payload_too_large", "large", 413))
        reports = reports_to(server)
        answers = await asyncio.gather(*(reports.send(item(n)) for n in range(4)))
        assert len(answers) == 4
        assert [len(batch) for batch in server.batches] == [4, 2, 2]


class Line:
    """A queue that answers polls as configured, then waits forever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = deque(answers)
        self.asked: list[int] = []
        self.ids: list[str] = []
        self.empty = asyncio.Event()

    async def __call__(self, most: int, poll_id: str) -> list[Json]:
        self.asked.append(most)
        self.ids.append(poll_id)
        if not self.answers:
            self.empty.set()
            await asyncio.Event().wait()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        found: list[Json] = answer
        return found


async def poll(
    line: Line, slots: Slots, *, polls: int = 1, start: Callable[[Json], None] | None = None
) -> tuple[list[Json], int]:
    """Poll until the queue has no more responses. Return the started tasks and the number of registrations."""
    started: list[Json] = []
    registered = 0

    async def register() -> None:
        nonlocal registered
        registered += 1

    poller = Poller(
        "activity",
        line,
        start or started.append,
        slots,
        PollContext(register, ErrorPolicy("w"), NullMetrics()),
        polls=polls,
        batch_max=100,
    )
    running = asyncio.ensure_future(poller.run())
    waiting = asyncio.ensure_future(line.empty.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        await running
    running.cancel()
    await asyncio.wait({running})
    return started, registered


class TestPoller:
    async def test_a_poll_asks_for_as_many_tasks_as_there_are_places(self) -> None:
        line = Line([{"n": 1}, {"n": 2}])
        slots = Slots(5)
        started, _ = await poll(line, slots)
        assert started == [{"n": 1}, {"n": 2}]
        assert line.asked == [5, 3]

    async def test_what_ends_at_once_is_reported_before_the_next_poll_is_sent(self) -> None:
        server, line = Server(), Line([{"n": 1}])
        reports, polls_before = reports_to(server), list[int]()
        performing: list[asyncio.Task[None]] = []

        async def body() -> None:
            polls_before.append(len(line.asked))

        async def perform() -> None:
            await asyncio.create_task(body())
            await reports.send(item(1))
            polls_before.append(len(line.asked))

        await poll(line, Slots(5), start=lambda _: performing.append(asyncio.create_task(perform())))
        await asyncio.gather(*performing)
        assert polls_before == [1, 1]

    async def test_places_of_a_poll_that_is_broken_off_are_free_again(self) -> None:
        slots = Slots(5)
        await poll(Line([{"n": 1}]), slots)
        assert slots.free == 4, "the one that was started has not ended"

    async def test_two_polls_share_the_places(self) -> None:
        line = Line()
        await poll(line, Slots(5), polls=2)
        assert sorted(line.asked)[-1] <= 3
        assert sum(line.asked) <= 5

    async def test_a_worker_that_the_server_has_forgotten_registers_again(self) -> None:
        line = Line(ServerRefused("worker_not_registered", "who?", 412), [{"n": 1}])
        started, registered = await poll(line, Slots(2))
        assert (started, registered) == ([{"n": 1}], 1)

    async def test_polls_go_on_when_the_server_comes_back(self) -> None:
        started, _ = await poll(Line(Unreachable("away"), Unreachable("away"), [{"n": 1}]), Slots(2))
        assert started == [{"n": 1}]

    async def test_a_poll_without_an_answer_is_repeated_under_its_id_with_the_same_room(self) -> None:
        line = Line(Unreachable("lost"), [{"n": 1}], [])
        await poll(line, Slots(3))
        assert line.ids[0] == line.ids[1]
        assert len(set(line.ids)) == 3
        assert line.asked == [3, 3, 2, 2]

    async def test_trouble_is_told_once_however_often_it_is_met(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "penstock.worker")
        await poll(Line(Unreachable("away"), Unreachable("away"), [], [{"n": 1}]), Slots(2))
        told = [record.message for record in caplog.records]
        assert told == ["w cannot reach the server and keeps retrying: away", "w reaches the server again"]

    async def test_a_refusal_that_no_waiting_heals_ends_the_polls(self) -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await poll(Line(ServerRefused("unauthorized", "no", 401)), Slots(1))
        assert [str(each.reason) for each in raised.value.exceptions if isinstance(each, ServerRefused)] == [
            "unauthorized"
        ]


class TestOptions:
    @pytest.mark.parametrize(
        ("given_options", "message"),
        [
            ({"max_concurrent_workflow_tasks": -1}, "max_concurrent_workflow_tasks is 0 to 1000000, not -1"),
            (
                {"max_concurrent_activity_task_polls": -1},
                "max_concurrent_activity_task_polls is 0 to 1000, not -1",
            ),
            ({"max_cached_workflows": -5}, "max_cached_workflows is 0 to"),
            ({"max_activities_per_second": 0}, "None is no limit"),
            ({"queue_rate_burst_seconds": -1}, "queue_rate_burst_seconds is 0 to 3600"),
            ({"max_activities_per_second": float("nan")}, "max_activities_per_second is more than 0"),
        ],
    )
    def test_a_number_out_of_its_bounds_is_named_with_them(self, given_options: Json, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            WorkerOptions(**given_options)

    @pytest.mark.parametrize(
        ("given_options", "message"),
        [
            ({"max_concurrent_workflow_tasks": "8"}, "is a whole number, not str"),
            ({"max_concurrent_workflow_tasks": True}, "is a whole number, not bool"),
            ({"graceful_shutdown_timeout": 5}, r"is a timedelta, such as timedelta\(seconds=10\); not int"),
        ],
    )
    def test_what_is_no_number_at_all_is_named(self, given_options: Json, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            WorkerOptions(**given_options)


class TestContracts:
    def test_a_parameter_is_told_with_its_type_if_the_wire_can_say_it(self) -> None:
        async def approve(self: Any, who: str, level: int, note: str | None = None) -> None: ...

        told = parameters(approve)
        assert [(each["name"], each["type"], each["required"]) for each in told] == [
            ("who", "string", True),
            ("level", "int", True),
            ("note", "null|string", False),
        ]
        assert told[2]["allows_null"]

    def test_of_what_travels_as_something_else_no_type_is_told(self) -> None:
        def set_all(self: Any, given_items: list[int], anything) -> None: ...

        assert [each["type"] for each in parameters(set_all)] == [None, None]
