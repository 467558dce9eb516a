"""Activities for the process tests, which import them by name."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.sdk import activity
from penstock.sdk.failures import ApplicationError, CancelledError


@dataclass
class Order:
    id: str
    cents: int


@activity.defn(runs_in="process")
def double(order: Order, *, times: int = 2) -> Order:
    return Order(order.id, order.cents * times)


@activity.defn(runs_in="process")
def own_pid() -> int:
    return os.getpid()


@activity.defn(runs_in="process")
def facts() -> list[object]:
    found = activity.info()
    return [found.activity_type, found.attempt, found.workflow_id, list(found.heartbeat_details)]


@activity.defn(runs_in="process")
def die(how: str) -> None:
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(3)
        case "sys.exit":
            sys.exit(4)


@activity.defn(runs_in="process")
def die_until(marker: str) -> int:
    """Dies the first time only."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@activity.defn(runs_in="process")
def fail_with_a_cause() -> None:
    try:
        raise KeyError("card")
    except KeyError as missing:
        raise ApplicationError("declined", 42, type="CardDeclined", non_retryable=True) from missing


@activity.defn(runs_in="process")
def unsendable() -> object:
    return object()


@activity.defn(runs_in="process")
def spin(said: str) -> None:
    """Sends a heartbeat, then works until it is cancelled."""
    activity.heartbeat(said, os.getpid())
    while True:
        time.sleep(0.001)


@activity.defn(runs_in="process")
def clean_up(said: str) -> str:
    with contextlib.suppress(CancelledError):
        activity.heartbeat(said)
        while True:
            time.sleep(0.001)
    return f"{said}, cleaned up, {activity.is_cancelled()}"


@activity.defn(runs_in="process")
def stubborn() -> None:
    """Ignores every request to stop."""
    while True:
        with contextlib.suppress(CancelledError):
            activity.heartbeat(os.getpid())
            while True:
                time.sleep(0.001)


@activity.defn(runs_in="process")
def until_shutdown() -> bool:
    activity.heartbeat("waiting")
    return activity.wait_for_worker_shutdown_sync(60)


@activity.defn(runs_in="process")
def speak(word: str) -> None:
    print(word, flush=True)
    activity.logger.warning("said %s", word)
    activity.report_cost(7)


@activity.defn(dynamic=True, runs_in="process")
def anything(args: Sequence[activity.RawValue]) -> list[object]:
    return [activity.info().activity_type, [each.value for each in args]]


@activity.defn(runs_in="process")
def beat_and_fail() -> None:
    for number in range(100):
        activity.heartbeat(number)
    raise ApplicationError("no")


@activity.defn(runs_in="process")
def compute() -> None:
    number = 0
    while True:
        number += 1


@activity.defn(runs_in="process")
def reverse(text: str) -> str:
    return text[::-1]


@activity.defn
async def async_pid() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@activity.defn
async def wait_async(said: str) -> None:
    """Sends a heartbeat, then waits forever."""
    activity.heartbeat(said, os.getpid())
    await asyncio.Event().wait()


@activity.defn(runs_in="thread")
def thread_pid() -> int:
    return os.getpid()


@activity.defn
def knows(module: str) -> bool:
    return module in sys.modules


@activity.defn(runs_in="process")
def sleep_on(said: str) -> None:
    """Ignores cancellation."""
    try:
        activity.heartbeat(said, os.getpid())
        time.sleep(600)
    except CancelledError:
        time.sleep(600)


@activity.defn(runs_in="process")
def lose_stdout(how: str) -> str:
    match how:
        case "closed":
            sys.stdout.close()
        case "none":
            sys.stdout = None
        case "nobody reads":
            reading, writing = os.pipe()
            os.close(reading)
            sys.stdout = os.fdopen(writing, "w")
            print(how)
    return how


@activity.defn(runs_in="process")
def fork(how: str) -> int:
    """Forks; the fork leaves the function in the given way, and its exit code is returned."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    activity.heartbeat("forked")
    match how:
        case "raises":
            sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
            raise ValueError("forked")
        case "exits":
            sys.exit(7)
    return -1


@activity.defn(runs_in="process")
def leave_behind(path: str, dies: bool) -> int:
    """Forks a process that lives until something is in the pipe."""
    pipe = os.open(path, os.O_RDONLY)
    if os.fork() == 0:
        os.read(pipe, 1)
        os._exit(0)
    os.close(pipe)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@activity.defn(runs_in="process")
def fork_and_wait(name: str, path: str) -> None:
    """Forks a process that lives as long as this one; both keep the pipe open."""
    os.open(path, os.O_WRONLY)
    forked = os.fork()
    if forked:
        activity.heartbeat(name, os.getpid(), forked)
    while True:
        time.sleep(60)


@activity.defn(runs_in="process")
def in_c_code(path: str) -> int:
    """Waits for a writer without releasing the GIL, and returns its attempt."""
    os.close(ctypes.PyDLL(None).open(path.encode(), os.O_RDONLY))
    return activity.info().attempt
