"""Activities in real processes that really die."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.sdk import activity
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.execution.runner import ActivityRunner
from penstock.sdk.activities.info import info_of
from penstock.sdk.activities.interceptors import ActivityInboundInterceptor
from penstock.sdk.activities.process_pool.pool import ProcessPool, all_in_processes
from penstock.sdk.activities.process_pool.process_child import JobResult, ProcessJob
from penstock.sdk.activities.process_pool.process_slot import ProcessSlot
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.lease import Lease, lease_clock, leased
from tests.sdk.activities import activities_in_processes as these
from tests.sdk.activities.activities_support import (
    ASKED_TO_CANCEL,
    CANCELLED,
    FACTS,
    LOST,
    HearingServer,
    SteppedClock,
    a_runner,
    a_task,
    failure,
    value,
)
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are told of as POSIX has them")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_arguments_and_results_keep_their_types_on_the_way_to_a_process_and_back():
    async with a_runner(these.double) as runner:
        outcome = await runner.run(a_task("double", these.Order("o-1", 21)))
        by_name = await runner.run(a_task("double", these.Order("o-1", 21), 3))
    assert value(outcome) == {"id": "o-1", "cents": 42}
    assert value(by_name) == {"id": "o-1", "cents": 63}


async def test_an_activity_runs_in_another_process_which_is_used_again():
    async with a_runner(these.own_pid) as runner:
        first, second = [value(await runner.run(a_task("own_pid"))) for _ in range(2)]
    assert first == second != os.getpid()


async def test_an_activity_in_a_process_knows_what_it_is():
    details = {"done": 3}
    async with a_runner(these.facts) as runner:
        outcome = await runner.run(a_task("facts", attempt_number=4, heartbeat_details=details))
    assert value(outcome) == ["facts", 4, "order-7", [{"done": 3}]]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("kill", "signal 9 (SIGKILL). The system also does that when memory runs out"),
        ("segfault", "signal 11 (SIGSEGV)"),
        ("exit", "exit code 3"),
    ],
)
async def test_a_process_that_dies_fails_its_own_task_and_the_slot_gets_a_new_one(how, told):
    async with a_runner(these.die, these.own_pid, process_slots=1) as runner:
        before = value(await runner.run(a_task("own_pid")))
        died = failure(await runner.run(a_task("die", how)))
        after = value(await runner.run(a_task("own_pid")))
    assert died["type"] == "WORKER_CRASHED"
    assert died["message"] == f'The process of activity "die" died: {told}'
    assert not died["non_retryable"]
    assert before != after


async def test_sys_exit_is_a_failure_and_the_process_lives_on():
    async with a_runner(these.die, these.own_pid, process_slots=1) as runner:
        before = value(await runner.run(a_task("own_pid")))
        assert failure(await runner.run(a_task("die", "sys.exit")))["type"] == "SystemExit"
        assert value(await runner.run(a_task("own_pid"))) == before


async def test_a_function_that_loses_its_stdout_has_its_result_all_the_same():
    async with a_runner(these.lose_stdout, these.own_pid, process_slots=1) as runner:
        before = value(await runner.run(a_task("own_pid")))
        for how in ("closed", "none", "nobody reads"):
            assert value(await runner.run(a_task("lose_stdout", how))) == how
        assert value(await runner.run(a_task("own_pid"))) == before


async def test_what_a_function_forks_never_answers_for_it_and_the_process_lives_on():
    server = HearingServer()
    async with a_runner(these.fork, these.own_pid, server=server, process_slots=1) as runner:
        before = value(await runner.run(a_task("own_pid")))
        for how, code in (("returns", 0), ("raises", 1), ("exits", 7)):
            assert value(await runner.run(a_task("fork", how))) == code
        assert value(await runner.run(a_task("own_pid"))) == before
    assert not server.told


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing tells there of the process itself")
async def test_the_end_of_a_process_is_seen_while_what_it_forked_lives_on(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    try:
        async with a_runner(these.leave_behind, these.own_pid, process_slots=1) as runner:
            died = failure(await runner.run(a_task("leave_behind", str(path), True)))
            first = value(await runner.run(a_task("leave_behind", str(path), False)))
            assert value(await runner.run(a_task("own_pid"))) == first
    finally:
        os.write(pipe, b"..")
        os.close(pipe)
    assert died["type"] == "WORKER_CRASHED"
    assert is_gone(first)


async def test_what_a_process_forked_dies_with_it_and_what_its_siblings_forked_does_not(tmp_path):
    server, pipes = HearingServer(), Pipes(tmp_path, "a", "b")
    async with a_runner(these.fork_and_wait, server=server) as runner:
        tasks = [
            asyncio.create_task(runner.run(a_task("fork_and_wait", name, path)))
            for name, path in pipes.paths.items()
        ]
        await server.heard(2)
        pids = {name: pair for name, *pair in server.told}
        os.kill(pids["a"][0], signal.SIGKILL)
        assert failure(await tasks[0])["type"] == "WORKER_CRASHED"
        await pipes.closed_by_all("a")
        assert not any(is_gone(pid) for pid in pids["b"])
        await runner.close()  # it ignores the request to stop and is killed
        outcome = await tasks[1]  # on a slow machine it is dropped with the worker before the kill
        assert outcome.get("reason") == "worker_shutdown" or failure(outcome)["type"] == "WORKER_CRASHED"
        await pipes.closed_by_all("b")


class Pipes:
    """Named pipes that detect when no process keeps them open."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.paths = {name: str(folder / name) for name in names}
        for path in self.paths.values():
            os.mkfifo(path)
        self._ends = {name: os.open(path, os.O_RDONLY | os.O_NONBLOCK) for name, path in self.paths.items()}

    async def closed_by_all(self, name: str) -> None:
        loop, end, closed = asyncio.get_running_loop(), self._ends[name], asyncio.Event()
        loop.add_reader(end, closed.set)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await closed.wait()
        finally:
            loop.remove_reader(end)
        assert os.read(end, 1) == b""
        os.close(end)


async def test_a_process_that_is_killed_from_outside_hurts_nobody_else():
    server = HearingServer()
    async with a_runner(these.spin, server=server) as runner:
        tasks = [asyncio.create_task(runner.run(a_task("spin", name))) for name in ("a", "b")]
        await server.heard(2)
        pids = dict(server.told)
        os.kill(pids["a"], signal.SIGKILL)
        assert failure(await tasks[0])["type"] == "WORKER_CRASHED"
        assert not tasks[1].done()
        assert not is_gone(pids["b"])
        os.kill(pids["b"], signal.SIGKILL)
        assert failure(await tasks[1])["type"] == "WORKER_CRASHED"


async def test_a_process_that_died_while_it_was_idle_is_replaced_unseen():
    async with a_runner(these.own_pid, process_slots=1) as runner:
        before = value(await runner.run(a_task("own_pid")))
        os.kill(before, signal.SIGKILL)
        assert value(await runner.run(a_task("own_pid"))) != before


async def test_an_error_arrives_with_its_type_its_details_and_its_cause():
    async with a_runner(these.fail_with_a_cause) as runner:
        told = failure(await runner.run(a_task("fail_with_a_cause")))
    assert (told["type"], told["message"], told["non_retryable"]) == ("CardDeclined", "declined", True)
    assert told["cause"]["type"] == "KeyError"
    assert "fail_with_a_cause" in told["stack_trace"]
    assert "process_child" not in told["stack_trace"]


async def test_a_result_that_cannot_be_sent_is_named_and_not_tried_again():
    async with a_runner(these.unsendable) as runner:
        told = failure(await runner.run(a_task("unsendable")))
    assert told["non_retryable"]
    assert 'result of activity "unsendable"' in told["message"]


@pytest.mark.parametrize("answer", [CANCELLED, LOST])
async def test_an_attempt_that_nobody_wants_is_stopped_and_its_outcome_dropped(answer):
    server = HearingServer()
    server.answer = answer
    async with a_runner(these.spin, these.own_pid, server=server, process_slots=1) as runner:
        assert await runner.run(a_task("spin", "a")) == {"action": "drop", "reason": "lease_lost"}
        assert value(await runner.run(a_task("own_pid"))) == server.told[0][1]


async def test_a_process_may_clean_up_when_it_is_cancelled():
    server = HearingServer()
    server.answer = ASKED_TO_CANCEL
    async with a_runner(these.clean_up, server=server) as runner:
        assert value(await runner.run(a_task("clean_up", "half"))) == "half, cleaned up, True"


async def test_a_process_that_does_not_stop_is_killed_when_the_grace_is_over():
    server, clock = HearingServer(), SteppedClock()
    server.answer = ASKED_TO_CANCEL
    async with a_runner(these.stubborn, server=server, clock=clock) as runner:
        running = asyncio.create_task(runner.run(a_task("stubborn")))
        await server.heard(1)
        await clock.advance(10, sleepers=2)
        assert failure(await running)["cancelled"]
        assert runner.stuck == 0
        assert is_gone(server.told[0][0])


async def test_a_process_that_hangs_is_killed_after_its_timeout():
    server, clock = HearingServer(), SteppedClock()
    task = a_task("stubborn", retry_policy={"start_to_close_timeout": 60})
    async with a_runner(these.stubborn, server=server, clock=clock) as runner:
        running = asyncio.create_task(runner.run(task))
        await server.heard(1)
        await clock.advance(60, sleepers=2)
        await clock.advance(10, sleepers=1)
        told = failure(await running)
    assert (told["type"], told["timeout_type"]) == ("TimeoutError", "start_to_close")
    assert is_gone(server.told[0][0])


async def test_a_process_is_told_that_its_worker_stops():
    server = HearingServer()
    async with a_runner(these.until_shutdown, server=server) as runner:
        running = asyncio.create_task(runner.run(a_task("until_shutdown")))
        await server.heard(1)
        runner.shut_down()
        assert value(await running) is True


async def test_output_log_lines_and_cost_pass_through(capfd, caplog):
    with caplog.at_level(logging.INFO):
        async with a_runner(these.speak) as runner:
            outcome = await runner.run(a_task("speak", "hello"))
    assert outcome["cost"] == 7
    assert "hello" in capfd.readouterr().out
    line = next(each for each in caplog.records if "said hello" in each.getMessage())
    assert (line.name, line.levelname) == ("penstock.activity", "WARNING")
    assert line.__dict__["activity_type"] == "speak"


async def test_the_last_heartbeat_before_a_failure_is_heard():
    server = HearingServer()
    async with a_runner(these.beat_and_fail, server=server) as runner:
        failure(await runner.run(a_task("beat_and_fail")))
    assert server.told[-1] == [99]


async def test_a_process_that_computes_is_kept_alive_and_cancelled_by_automatic_heartbeats():
    server = HearingServer()
    server.answer = LOST
    every = timedelta(milliseconds=1)
    async with a_runner(these.compute, server=server, auto_heartbeat=every) as runner:
        assert await runner.run(a_task("compute")) == {"action": "drop", "reason": "lease_lost"}
    assert server.told[0] is None


async def test_large_arguments_and_results_go_through():
    async with a_runner(these.reverse) as runner:
        text = "ab" * 500_000
        assert value(await runner.run(a_task("reverse", text))) == text[::-1]


async def test_a_signal_to_the_whole_group_leaves_the_end_to_the_worker():
    server = HearingServer()
    async with a_runner(these.until_shutdown, these.own_pid, server=server, process_slots=1) as runner:
        pid = value(await runner.run(a_task("own_pid")))
        running = asyncio.create_task(runner.run(a_task("until_shutdown")))
        await server.heard(1)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        runner.shut_down()
        assert value(await running) is True


async def test_a_dynamic_activity_runs_in_a_process_for_any_name():
    async with a_runner(these.anything) as runner:
        assert value(await runner.run(a_task("whatever", 1, "b"))) == ["whatever", [1, "b"]]


async def test_a_process_is_replaced_after_it_has_served_so_often():
    async with a_runner(these.own_pid, process_slots=1, process_recycle_after=2) as runner:
        pids = [value(await runner.run(a_task("own_pid"))) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    assert is_gone(pids[0])


async def test_nothing_is_left_of_a_runner_that_was_closed():
    server = HearingServer()
    before = set(threading.enumerate())
    async with a_runner(these.spin, these.own_pid, server=server) as runner:
        idle = value(await runner.run(a_task("own_pid")))
        running = asyncio.create_task(runner.run(a_task("spin", "a")))
        await server.heard(1)
        await runner.close(timedelta(0))
        assert await running == {"action": "drop", "reason": "worker_shutdown"}
    assert is_gone(idle)
    assert is_gone(server.told[0][1])
    assert not [each for each in multiprocessing.active_children() if "activity" in each.name]
    assert not [each for each in set(threading.enumerate()) - before if "activity-process" in each.name]


class Doubling(ActivityInboundInterceptor):
    async def execute_activity(self, input):  # noqa: A002
        input.args = [these.Order(input.args[0].id, input.args[0].cents * 10)]
        found = await super().execute_activity(input)
        return these.Order(found.id + "!", found.cents)


class Intercepting:
    def intercept_activity(self, next):  # noqa: A002
        return Doubling(next)


async def test_an_interceptor_sees_what_goes_to_a_process_and_what_comes_back():
    async with a_runner(these.double, interceptors=[Intercepting()]) as runner:
        assert value(await runner.run(a_task("double", these.Order("o", 1)))) == {"id": "o!", "cents": 20}


async def test_more_tasks_than_processes_wait_for_one():
    async with a_runner(these.own_pid, process_slots=1) as runner:
        found = await asyncio.gather(*(runner.run(a_task("own_pid")) for _ in range(5)))
    assert len({value(each) for each in found}) == 1


# Activities that cannot run in a process


class Counter:
    @activity.defn(runs_in="process")
    def add(self, number: int) -> int:
        return number


async def test_what_a_process_cannot_import_is_refused_when_the_worker_starts():
    @activity.defn(runs_in="process")
    def inside() -> None: ...

    with pytest.raises(TypeError, match=r'activity "inside" runs in processes.*defined inside of a function'):
        async with a_runner(inside):
            pass
    with pytest.raises(
        TypeError, match=r"it belongs to an object\. Make it a function at the top of a module"
    ):
        async with a_runner(Counter().add):
            pass


class Unpicklable:
    name = "locked"

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def encode(self, data: bytes) -> bytes:
        return data

    decode = encode


async def test_a_converter_that_cannot_be_handed_over_is_refused_when_the_worker_starts():
    with pytest.raises(TypeError, match="Define its codecs at the top of a module"):
        async with a_runner(these.double, converter=DataConverter(codecs=[Unpicklable()])):
            pass


PROGRAM = """
    import asyncio, os, sys
    from penstock.sdk.activities.definition import ActivityDefinition
    from penstock.sdk.activities.execution.runner import ActivityRunner
    from tests.sdk.activities import activities_in_processes as these
    from tests.sdk.activities.activities_support import FACTS, HearingServer, a_task
    from penstock.sdk.converters import DEFAULT

    async def main():
        how, name, *arguments = sys.argv[1:]
        server = HearingServer()
        known = [ActivityDefinition.to_run(getattr(these, name))]
        runner = ActivityRunner(known, DEFAULT, heartbeat=server.heartbeat, worker=FACTS)
        running = asyncio.create_task(runner.run(a_task(name, "a", *arguments)))
        await server.heard(1)
        print(server.told[0][1], flush=True)
        if how == "wait":
            await running

    if __name__ == "__main__":
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
"""


def started(tmp_path: Path, how: str, *called: str) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    path = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, str(program), how, *called],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )


def test_a_program_that_forgets_to_close_its_worker_ends_with_its_processes(tmp_path):
    with started(tmp_path, "leave", "spin") as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert program.wait(PATIENCE_S) == 0
        assert is_gone(pid)


@pytest.mark.parametrize("called", [("spin",), ("fork_and_wait", os.devnull)], ids=["alone", "with forks"])
def test_processes_end_when_their_worker_is_killed(tmp_path, called):
    with started(tmp_path, "wait", *called) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        program.kill()
        assert program.stdout.read() == ""  # all hold the same pipe, which is closed once they are gone
        program.wait(PATIENCE_S)
    assert pid


# All activities of a worker in processes


@asynccontextmanager
async def all_in_processes_of(*functions: Any, server: HearingServer | None = None, **options: Any):
    """A runner configured as with `--processes`."""
    processes = ProcessPool(options.pop("most", 1), DEFAULT, **options)
    definitions = all_in_processes(ActivityDefinition.to_run(each) for each in functions)
    heard = server or HearingServer()
    runner = ActivityRunner(
        definitions, DEFAULT, heartbeat=heard.heartbeat, worker=FACTS, processes=processes, thread_slots=2
    )
    try:
        yield runner, processes
    finally:
        await asyncio.wait_for(runner.close(), PATIENCE_S)


async def test_async_and_plain_functions_run_in_processes_and_those_that_say_thread_do_not():
    async with all_in_processes_of(these.async_pid, these.thread_pid) as (runner, _):
        assert value(await runner.run(a_task("async_pid"))) != os.getpid()
        assert value(await runner.run(a_task("thread_pid"))) == os.getpid()


async def test_an_async_function_in_a_process_is_cancelled_while_it_waits():
    server = HearingServer()
    async with all_in_processes_of(these.wait_async, these.async_pid, server=server) as (runner, _):
        asked = a_task("wait_async", "here")
        task = asyncio.create_task(runner.run(asked))
        await server.heard(1)
        ((_, pid),) = server.told
        runner.apply_heartbeat_response(asked["task_id"], {"can_continue": True, "cancel_requested": True})
        assert failure(await task)["cancelled"]
        assert value(await runner.run(a_task("async_pid"))) == pid


async def test_a_process_has_imported_what_it_needs_before_its_first_task():
    async with all_in_processes_of(these.knows) as (runner, processes):
        processes.prepare(["tests.sdk.activities.activities_in_processes:knows", "json.tool:main"])
        assert value(await runner.run(a_task("knows", "json.tool")))


async def test_a_process_that_holds_too_much_is_replaced_between_two_tasks():
    async with all_in_processes_of(these.async_pid, recycle_over_bytes=1) as (runner, _):
        first, second = [value(await runner.run(a_task("async_pid"))) for _ in range(2)]
    assert first != second


async def test_a_function_that_no_process_could_import_stays_in_the_worker(caplog):
    @activity.defn
    async def inside() -> int:
        return os.getpid()

    async with all_in_processes_of(inside) as (runner, _):
        assert value(await runner.run(a_task("inside"))) == os.getpid()
    assert "so it runs in the worker itself" in caplog.text


async def test_a_process_that_does_not_end_with_its_worker_is_killed_and_told_of():
    server = HearingServer()
    async with all_in_processes_of(these.sleep_on, server=server) as (runner, _):
        task = asyncio.create_task(runner.run(a_task("sleep_on", "here")))
        await server.heard(1)
        await runner.close()
        died = failure(await task)
        assert (died["type"], died["code"]) == ("WORKER_CRASHED", "worker_shutdown")
        assert runner.killed == 1


async def test_a_process_does_not_begin_what_its_worker_no_longer_holds():
    over = leased(a_task("own_pid", lease_ends_after_ms=1_000), lease_clock() - 1)
    async with a_runner(these.own_pid) as runner:
        assert await runner.run(over) == {"action": "drop", "reason": "lease_ended"}
        assert value(await runner.run(leased(a_task("own_pid", lease_ends_after_ms=60_000), lease_clock())))


@pytest.mark.parametrize("renewed", [True, False])
async def test_a_process_that_was_slow_to_start_asks_whether_the_lease_was_renewed_meanwhile(renewed: bool):
    """The lease that came with the job expired while the process started; the worker may have renewed it."""
    context, lease = multiprocessing.get_context("spawn"), Lease()
    slot = ProcessSlot(context, DEFAULT, recycle_after=None)
    info = info_of(a_task("own_pid"), FACTS, DEFAULT, datetime.now(UTC))
    lease.extend(
        lease_clock() - (0 if renewed else 1), {"lease_ends_after_ms": 600_000 if renewed else 1_000}
    )
    target = "tests.sdk.activities.activities_in_processes:own_pid"
    job = ProcessJob(1, target, DEFAULT.encode_arguments([], "own_pid"), info, lease_clock() - 1)
    try:
        answer = await asyncio.wrap_future(slot.run(job, lambda _: None, lease))
    finally:
        slot.close()
        await asyncio.to_thread(slot.join)
    assert isinstance(answer, JobResult)
    assert (answer.not_begun, answer.result is None) == (not renewed, not renewed)
