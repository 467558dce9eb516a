"""Test environments: an in-process server with time skipping, a real server process, or an existing server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from penstock import assembly
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.run_cap_sweepers import waiting_runs
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.maintenance.sweepers.expired_queries import expired_queries
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.maintenance.sweepers.unindexed_runs import unindexed_runs
from penstock.sdk.activities.context import CURRENT
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.interceptors import ClientInterceptor
from penstock.sdk.connection.transport import Transport
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.dispatch_options import Dispatch
from penstock.sdk.failures import ServerRefused
from penstock.sdk.plugins import Plugin, configured_client
from penstock.settings import load
from penstock.testing.due_events import ActivityAttempt, DueEvents
from penstock.testing.errors import NothingWillHappenError, TooManySkipsError
from penstock.testing.local_server import LocalServer
from penstock.testing.request_tracker import RequestTracker, ResultWait
from penstock.testing.skippable_clock import SkippableClock
from penstock.testing.time_skipper import TimeSkipper
from penstock.testing.transport import InProcessTransport

SETTINGS = {"DW_AUTH_DRIVER": "none", "DW_DATABASE_URL": "memory://", "DW_HISTORY_RETENTION_DAYS": "365"}


class WorkflowEnvironment:
    """A client, and the time of its server. As an async context manager it is shut down at the end."""

    def __init__(self, client: Client) -> None:
        """Create an environment with `start_time_skipping`, `start_local` or `from_client` instead.

        Args:
            client: the client of the environment.
        """
        self._client = client

    @staticmethod
    async def start_time_skipping(
        *,
        start_time: datetime | None = None,
        namespace: str = "default",
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        settings: Mapping[str, str] | None = None,
        patience: timedelta = timedelta(seconds=1),
        skips_max: int = 10_000,
        dispatch: Dispatch | None = None,
        plugins: Sequence[Plugin] = (),
    ) -> WorkflowEnvironment:
        """Start a server in this process, without sockets and on an ephemeral database, with time skipping.

        The clock stands still. While a result is awaited or `sleep` runs, and nothing else does, it advances to the
        next time at which something is due.

        Args:
            start_time: initial time of the clock; None is now.
            namespace: namespace of the client.
            data_converter: converter of the client.
            interceptors: interceptors of the client, outermost first.
            settings: settings of the server, such as `{"DW_WORKFLOW_TASK_TIMEOUT": "10"}`.
            patience: real time without any activity after which a wait for which nothing is due fails with
                `NothingWillHappenError`.
            skips_max: number of skips for one wait after which it fails with `TooManySkipsError`.
            dispatch: dispatch configuration of the client, and of workers created with it.
            plugins: plug-ins of the client, and of workers created with it.
        """
        return await _TimeSkipping.start(
            start_time=start_time,
            namespace=namespace,
            client_options={
                **configured_client(plugins, data_converter, interceptors, dispatch),
                "plugins": plugins,
            },
            settings=settings or {},
            patience=patience,
            skips_max=skips_max,
        )

    @staticmethod
    async def start_local(
        *,
        namespace: str = "default",
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        settings: Mapping[str, str] | None = None,
        dispatch: Dispatch | None = None,
        plugins: Sequence[Plugin] = (),
    ) -> WorkflowEnvironment:
        """Start a server process on SQLite in a temporary directory, in real time. It is removed at the end.

        Args:
            namespace: namespace of the client.
            data_converter: converter of the client.
            interceptors: interceptors of the client, outermost first.
            settings: settings of the server, such as `{"DW_WORKFLOW_TASK_TIMEOUT": "10"}`.
            dispatch: dispatch configuration of the client, and of workers created with it.
            plugins: plug-ins of the client, and of workers created with it.
        """
        server = await LocalServer.start({"DW_DEFAULT_NAMESPACE": namespace} | dict(settings or {}))
        try:
            client = await Client.connect(
                server.url,
                namespace=namespace,
                token=server.token,
                data_converter=data_converter,
                interceptors=interceptors,
                dispatch=dispatch,
                plugins=plugins,
            )
        except BaseException:
            await server.stop()
            raise
        return _Local(client, server)

    @staticmethod
    def from_client(client: Client) -> WorkflowEnvironment:
        """Use the server that a client is connected to, in real time. Neither is shut down at the end.

        Args:
            client: a connected client.
        """
        return WorkflowEnvironment(client)

    @property
    def client(self) -> Client:
        """The client for starting workflows and creating workers."""
        return self._client

    @property
    def supports_time_skipping(self) -> bool:
        return False

    def now(self) -> datetime:
        """Return the time of the server in UTC."""
        return datetime.now(UTC)

    async def sleep(self, duration: timedelta | float) -> None:
        """Let time pass. Everything that becomes due meanwhile happens before this returns.

        In an activity, this is how the activity takes its time.

        Args:
            duration: a timedelta, or seconds.
        """
        await asyncio.sleep(_span(duration).total_seconds())

    @contextlib.contextmanager
    def auto_time_skipping_disabled(self) -> Iterator[None]:
        """Do not skip time for awaited results while the block runs; `sleep` still does."""
        yield

    async def shutdown(self) -> None:
        """Shut down what was started for this environment."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()


class _Local(WorkflowEnvironment):
    def __init__(self, client: Client, server: LocalServer) -> None:
        super().__init__(client)
        self._server = server

    async def shutdown(self) -> None:
        await self._client.close()
        await self._server.stop()


class _TimeSkipping(WorkflowEnvironment):
    """An in-process server and the task that advances its clock."""

    def __init__(self, client: Client, clock: SkippableClock, skipper: TimeSkipper) -> None:
        super().__init__(client)
        self._clock, self._skipper = clock, skipper
        self._ending = contextlib.AsyncExitStack()

    @classmethod
    async def start(
        cls,
        *,
        start_time: datetime | None,
        namespace: str,
        client_options: dict[str, Any],
        settings: Mapping[str, str],
        patience: timedelta,
        skips_max: int,
    ) -> Self:
        clock = SkippableClock(_beginning(start_time))
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                assembly.assembled(
                    load(SETTINGS | {"DW_DEFAULT_NAMESPACE": namespace} | dict(settings)),
                    clock=clock,
                    duties=_duties,
                )
            )
            traffic = RequestTracker()
            skipper = TimeSkipper(
                clock, DueEvents(server.ctx), traffic, patience=patience, skips_max=skips_max
            )
            transport = InProcessTransport(server.application, traffic, clock, namespace=namespace)
            silent = InProcessTransport(server.application, RequestTracker(), clock, namespace=namespace)
            env = cls(Client(transport, namespace=namespace, **client_options), clock, skipper)
            stack.push_async_callback(transport.close)
            skipping = asyncio.create_task(
                skipper.run(partial(_in_vain, silent, clock)), name="penstock-testing-time"
            )
            stack.push_async_callback(_end, skipping)
            env._ending = stack.pop_all()
        return env

    @property
    def supports_time_skipping(self) -> bool:
        return True

    def now(self) -> datetime:
        return self._clock.now()

    async def sleep(self, duration: timedelta | float) -> None:
        span = _span(duration)
        context = CURRENT.get()
        if context is None:
            await self._skipper.sleep(span)
            return
        if context.info.is_local:
            raise RuntimeError(
                "A local activity cannot sleep by the clock of the test: its workflow task holds it. "
                "Make it an ordinary activity in this test."
            )
        attempt_id = context.info.task_token.rpartition("/")[2]
        await self._skipper.sleep_in(ActivityAttempt(context.info.task_id, attempt_id), span)

    @contextlib.contextmanager
    def auto_time_skipping_disabled(self) -> Iterator[None]:
        with self._skipper.locked():
            yield

    async def shutdown(self) -> None:
        await self._ending.aclose()


def _duties(ctx: EngineContext) -> list[Sweeper[Any]]:
    """Return the sweepers that are not driven by time."""
    return [pending_outbox(ctx), waiting_runs(ctx), expired_queries(ctx), unindexed_runs(ctx)]


async def _in_vain(transport: Transport, clock: SkippableClock, wait: ResultWait, skips: int) -> Exception:
    """Return the error of a wait whose result will never come, with the server's explanation."""
    noun, name = wait.path.split("/")[1:3]
    try:
        summary = (await transport.control("GET", f"/{noun}/{name}/why", idempotent=True))["summary"]
    except ServerRefused as refused:
        summary = str(refused)
    what = f"{'activity' if noun == 'activities' else 'workflow'} {unquote(name)!r}"
    now = clock.now().isoformat(sep=" ", timespec="seconds")
    if skips:
        return TooManySkipsError(
            f"Time was skipped {skips} times, and {what} has not ended. {summary} The time there is {now}. Is "
            "something retried without limit? Use RetryPolicy(maximum_attempts=…), or raise skips_max."
        )
    return NothingWillHappenError(
        f"A result of {what} is awaited, but nothing is running or due. {summary} The time there is {now}."
    )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _beginning(given: datetime | None) -> datetime:
    if given is None:
        return datetime.now(UTC).replace(microsecond=0)
    if given.tzinfo is None:
        raise ValueError("start_time needs a zone: datetime(2030, 1, 1, tzinfo=UTC)")
    return given


def _span(duration: timedelta | float) -> timedelta:
    span = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    if span < timedelta(0):
        raise ValueError(f"Time does not go back: {span.total_seconds():g} seconds")
    return span
