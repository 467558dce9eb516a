"""The child side of an activity process: runs one job at a time, received over a pipe."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from penstock.sdk.activities.context import CURRENT, ActivityContext
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.info import ActivityInfo
from penstock.sdk.activities.outcomes import decoded_call, encoded_result, failure_body
from penstock.sdk.activities.process_pool.loop_call import LoopCall
from penstock.sdk.activities.process_pool.memory_usage import memory_bytes
from penstock.sdk.activities.process_pool.process_group import end_group, lead_group
from penstock.sdk.activities.thread_interrupt import ThreadInterrupt
from penstock.sdk.converters import DataConverter
from penstock.sdk.failures import is_cancelled_exception
from penstock.sdk.lease import lease_clock


@dataclass(frozen=True, slots=True)
class ProcessJob:
    """A job for a process. All fields can be pickled, whatever the arguments are."""

    number: int
    target: str
    """`module:qualname`"""
    arguments: Any
    info: ActivityInfo
    begin_by: float | None = None
    """Expiry of the lease when the job was sent, by the lease clock. After that, the child asks the worker first."""


@dataclass(frozen=True, slots=True)
class ProcessPreload:
    """Modules that a process imports before its first job."""

    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobResult:
    """Outcome of the function: a result or a failure."""

    number: int
    """The number of the job."""
    result: dict[str, str] | None
    failure: dict[str, Any] | None
    cancelled: bool
    cost: int | None
    memory_bytes: int | None = None
    """Memory usage of the process afterwards."""
    not_begun: bool = False
    """Whether the function was not called because the lease of its task had expired."""


def main(connection: Connection, converter: DataConverter, level: int) -> None:
    """Run jobs until asked to stop, or until the worker has exited."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: None)  # the worker decides when its processes exit
    lead_group()
    child = ChildProcess(connection, converter)
    logging.basicConfig(level=level, handlers=[_LogForwarder(child)], force=True)
    threading.Thread(target=child.listen, name="listener", daemon=True).start()
    child.serve()


class ChildProcess:
    def __init__(self, connection: Connection, converter: DataConverter) -> None:
        self._connection, self._converter = connection, converter
        self._pid = os.getpid()
        self._sending = threading.RLock()
        self._jobs: queue.SimpleQueue[tuple[ProcessJob, ActivityContext] | ProcessPreload | None] = (
            queue.SimpleQueue()
        )
        self._permissions: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
        self._contexts: dict[int, ActivityContext] = {}
        self._definitions: dict[str, ActivityDefinition] = {}

    def listen(self) -> None:
        while True:
            try:
                word, value = self._connection.recv()
            except (EOFError, OSError):
                end_group()  # the worker has exited
            match word:
                case "run":
                    context = self._context(value)
                    self._contexts[value.number] = context
                    self._jobs.put((value, context))
                case "cancel" if value in self._contexts:
                    self._cancel(self._contexts[value])
                case "shutdown" if value in self._contexts:
                    self._contexts[value].worker_shutdown.set()
                case "permission":
                    self._permissions.put(value)
                case "prepare":
                    self._jobs.put(value)
                case "end":
                    self._jobs.put(None)

    def serve(self) -> None:
        while (item := self._jobs.get()) is not None:
            if isinstance(item, ProcessPreload):
                _prepare(item)
                continue
            job, context = item
            if self._may_begin(job):
                self.send("began", job.number)
                answer = self._answer(job, context)
            else:
                answer = JobResult(job.number, None, None, False, None, memory_bytes(), not_begun=True)
            self._contexts.pop(job.number, None)
            _flush()
            self.send("done", answer)

    def _may_begin(self, job: ProcessJob) -> bool:
        """Whether the lease of a job is still valid. It may have been renewed while the process started."""
        if job.begin_by is None or lease_clock() < job.begin_by:
            return True
        self.send("may_begin", job.number)
        while True:
            number, allowed = self._permissions.get()
            if number == job.number:
                return allowed

    @property
    def is_itself(self) -> bool:
        """Whether this is the original process, and not a fork of it made by an activity."""
        return os.getpid() == self._pid

    def send(self, word: str, value: Any) -> None:
        """Send a message to the worker. Forks of this process send nothing."""
        if self.is_itself:
            with self._sending:
                self._connection.send((word, value))

    def _context(self, job: ProcessJob) -> ActivityContext:
        what = f'the heartbeat of activity "{job.info.activity_type}"'

        def heartbeat(details: tuple[Any, ...]) -> None:
            self.send("beat", (job.number, self._converter.encode_arguments(details, what)))

        return ActivityContext(
            job.info,
            heartbeat,
            interruption=ThreadInterrupt(),
            converter=self._converter,
            no_async_completion="one that runs in a process; let it run in a thread or the event loop",
        )

    def _cancel(self, context: ActivityContext) -> None:
        context.cancelled.set()
        if context.interruption is not None:
            context.interruption.interrupt()

    def _answer(self, job: ProcessJob, context: ActivityContext) -> JobResult:
        token = CURRENT.set(context)
        try:
            result = self._result(job, context)
            self._end_if_forked(None)
            return JobResult(job.number, result, None, False, context.cost, memory_bytes())
        except BaseException as error:
            self._end_if_forked(error)
            failure = failure_body(error, self._converter)
            return JobResult(
                job.number, None, failure, is_cancelled_exception(error), context.cost, memory_bytes()
            )
        finally:
            CURRENT.reset(token)

    def _end_if_forked(self, error: BaseException | None) -> None:
        """Exit if the function has forked this process: only the parent reports the outcome."""
        if self.is_itself:
            return
        code = 0 if error is None else 1
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            with contextlib.suppress(Exception):
                traceback.print_exception(error)
        _flush()
        os._exit(code & 0xFF)

    def _result(self, job: ProcessJob, context: ActivityContext) -> dict[str, str]:
        definition = self._definition(job.target)
        if definition.kind == "async":
            context.interruption = self._loop_call(context)
        arguments, _ = decoded_call(definition, job.arguments, self._converter)
        interruption = context.interruption
        assert interruption is not None
        if isinstance(interruption, LoopCall):
            value = interruption.run_async(definition.bound(arguments))
        else:
            value = interruption.run(definition.bound(arguments))
        return encoded_result(definition, value, self._converter)

    def _loop_call(self, context: ActivityContext) -> LoopCall:
        """Return the event loop runner of an async function, applying a cancellation that came before."""
        call = LoopCall()
        if context.cancelled.is_set():
            call.interrupt()
        return call

    def _definition(self, target: str) -> ActivityDefinition:
        if target not in self._definitions:
            self._definitions[target] = ActivityDefinition.must_be(import_target(target))
        return self._definitions[target]


def _flush() -> None:
    """Flush output before the outcome is sent. The function may have closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _prepare(item: ProcessPreload) -> None:
    """Import modules. An import error is reported by the first job that needs the module."""
    for module in item.modules:
        try:
            importlib.import_module(module)
        except Exception:
            logging.getLogger(__name__).warning("%s cannot be imported here", module, exc_info=True)


class _LogForwarder(logging.Handler):
    """Sends log records to the worker, whose handlers process them."""

    def __init__(self, child: ChildProcess) -> None:
        super().__init__()
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        context = CURRENT.get()
        if not self._child.is_itself:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            plain = _portable(record)
            if context is None:
                self._child.send("log", plain)
            else:
                with context.shield():
                    self._child.send("log", plain)
        except OSError:
            self.handleError(record)


def _portable(record: logging.LogRecord) -> dict[str, Any]:
    """Return a picklable record: with its message formatted and its traceback as text."""
    fields = dict(record.__dict__)
    if record.exc_info and not record.exc_text:
        fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
    fields |= {"msg": record.getMessage(), "args": None, "exc_info": None}
    plain = (str, int, float, bool, dict, type(None))
    return {name: value if isinstance(value, plain) else repr(value) for name, value in fields.items()}


def import_target(target: str) -> Any:
    """Return the object that `module:qualname` names."""
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found
