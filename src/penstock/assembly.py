"""Composition root: the one place that chooses concrete stores, clocks and wakeups, and runs a server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog
import uvicorn

from penstock.coordination.database import DatabaseCoordination
from penstock.core.permissions import AuthDriver, AuthPolicy
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.engine.maintenance.queue_samples import queue_samples
from penstock.engine.maintenance.run_cap_sweepers import uncounted_runs, waiting_runs
from penstock.engine.maintenance.scheduler import SweeperScheduler
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.maintenance.sweepers.due_timers import (
    due_change_sets,
    due_schedules,
    due_timers,
    outdated_schedules,
)
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.expired_queries import expired_queries
from penstock.engine.maintenance.sweepers.expired_runs import expired_runs
from penstock.engine.maintenance.sweepers.expired_streams import expired_streams
from penstock.engine.maintenance.sweepers.idle_keys import idle_keys
from penstock.engine.maintenance.sweepers.idle_lanes import idle_lanes
from penstock.engine.maintenance.sweepers.inactive_workers import inactive_workers
from penstock.engine.maintenance.sweepers.old_records import old_records
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.maintenance.sweepers.overdue_runs import overdue_runs
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.maintenance.sweepers.scope_counts import scope_counts
from penstock.engine.maintenance.sweepers.unindexed_runs import unindexed_runs
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.engine.operations import namespaces
from penstock.engine.payloads.collection import unused_payloads
from penstock.engine.runtime.ticks import until_tick_s
from penstock.errors import ConfigurationError, InvalidInput, PenstockError, Reason
from penstock.gc_tuning import frozen_startup_heap
from penstock.ports.archive import Archive
from penstock.ports.clock import Clock
from penstock.ports.coordination import Coordination, InProcess
from penstock.ports.store import Store, Tx
from penstock.ports.wakeups import Wakeups
from penstock.server.app import Application
from penstock.server.auth import Authenticator, NamespaceCheck
from penstock.server.auth.webhooks import WebhookReceiver
from penstock.server.dashboard import Dashboard
from penstock.server.endpoints.operations.simulation_process import PenstockSimulation
from penstock.server.handler import ServerContext
from penstock.server.in_process import send_request
from penstock.server.metrics import Metrics
from penstock.server.protocol import BoundedProtocol
from penstock.settings import CoordinationKind, LogFormat, LogPolicy, Settings, StoreKind, load
from penstock.simulator.engine_driver import SimulatedClock, SimulationHost
from penstock.stores import archive
from penstock.stores.group_commit import CommitHook, no_hook
from penstock.stores.migrations import registry
from penstock.stores.objects.drivers import Drivers
from penstock.stores.postgres import batched_queries, startup
from penstock.stores.postgres import schema as postgres_schema
from penstock.stores.postgres import store as postgres
from penstock.stores.sql.catalogue import Dialect
from penstock.stores.sqlite import connections as sqlite_connections
from penstock.stores.sqlite import schema as sqlite_schema
from penstock.stores.sqlite import store as sqlite
from penstock.stores.sqlite.ephemeral import EphemeralStore
from penstock.system_clock import SystemClock, SystemEntropy
from penstock.wakeups.local import LocalWakeups
from penstock.wakeups.postgres import PostgresListener

KEEP_ALIVE_S = 75
log = structlog.get_logger("penstock")


@dataclass(frozen=True, slots=True)
class Server:
    """A whole server without its socket: the application, and what runs behind it."""

    application: Application
    ctx: EngineContext
    dispatcher: Dispatcher


@contextlib.asynccontextmanager
async def assembled(
    settings: Settings,
    *,
    on_commit: CommitHook = no_hook,
    clock: Clock | None = None,
    duties: Callable[[EngineContext], Sequence[Sweeper[Any]]] | None = None,
) -> AsyncIterator[Server]:
    """Run a server for the duration of the block; leaving it finishes open commits.

    With a clock of its own, a caller may leave out duties that wait for it, and run them itself.
    """
    clock, local = clock or SystemClock(), LocalWakeups()
    node = SystemEntropy().token()
    async with contextlib.AsyncExitStack() as stack:
        wakeups, coordination = await _between_servers(settings, local, node, stack)
        store = await _open_store(settings, clock, wakeups, node, on_commit)
        stack.push_async_callback(store.close)
        if _is_notified(settings):
            listener = PostgresListener(_postgres_url(settings), batched_queries.CHANNEL, node, local)
            listener.start()
            stack.push_async_callback(listener.close)
        ctx = EngineContext(
            store,
            wakeups,
            SystemEntropy(),
            settings,
            coordination=coordination,
            drivers=Drivers(settings.external_storage),
            archive=_archive(settings),
            simulations=PenstockSimulation(),
        )
        stack.push_async_callback(ctx.simulation_runs.close)
        await namespaces.ensure(ctx, settings.default_namespace)
        _log_declaration(await admission.declare(ctx, settings.admission, settings.server_id), settings)
        dispatcher = Dispatcher(ctx)
        dispatcher.start()
        stack.push_async_callback(dispatcher.close)
        stack.push_async_callback(
            _stop,
            asyncio.create_task(
                SweeperScheduler(ctx, (duties or _sweepers)(ctx)).run(), name="penstock-watch"
            ),
        )
        auth = _auth_policy(settings)
        authenticator = Authenticator(auth, register_nonce=_nonces(ctx))
        server = ServerContext(
            ctx=ctx,
            dispatcher=dispatcher,
            authenticator=authenticator,
            webhooks=WebhookReceiver(settings.bridge_adapters, authenticator),
            namespaces=NamespaceCheck(ctx, clock),
            clock=clock,
            metrics=Metrics(),
        )
        dashboard = _dashboard(server, auth)
        if dashboard is not None:
            stack.callback(dashboard.close)
        yield Server(Application(server, dashboard), ctx, dispatcher)


def _dashboard(server: ServerContext, auth: AuthPolicy) -> Dashboard | None:
    """The dashboard, unless it is turned off; it is imported only then, because templates take time to load."""
    if not server.ctx.settings.dashboard.enabled:
        return None
    from penstock.server.dashboard.site import Site

    return Site(server, auth)


@contextlib.asynccontextmanager
async def simulated(start_ms: int, *, journals: bool = False) -> AsyncIterator[SimulationHost]:
    """A server on an ephemeral store for one run of the simulator, which moves its clock and does its duties.

    Leases are as long as the settings allow: the simulator itself ends those of dead workers.

    Args:
        start_ms: the time of its clock.
        journals: whether it keeps a journal, for `verify`.
    """
    settings = load(
        {
            "DW_AUTH_DRIVER": "none",
            "DW_DATABASE_URL": "memory://",
            "DW_ACTIVITY_TASK_TIMEOUT": "86400",
            "DW_WORKFLOW_TASK_TIMEOUT": "86400",
            "DW_WORKER_STALE_AFTER_SECONDS": "86400",
            "DW_JOURNAL": str(journals).lower(),
        }
    )
    clock = SimulatedClock(start_ms)
    async with assembled(settings, clock=clock, duties=lambda _: ()) as server:

        async def request(method: str, path: str, body: Mapping[str, Any]) -> Any:
            headers = {"X-Durable-Workflow-Control-Plane-Version": "2"}
            content = msgspec.json.encode(body)
            status, raw = await send_request(server.application, method, f"/api{path}", headers, content)
            answer = msgspec.json.decode(raw)
            if status >= 400:
                raise InvalidInput(Reason(answer["reason"]), answer["message"])
            return answer

        yield SimulationHost(server.ctx, clock, request)


async def _between_servers(
    settings: Settings, local: LocalWakeups, node: str, stack: contextlib.AsyncExitStack
) -> tuple[Wakeups, Coordination]:
    """What carries wakeups to other servers, where the store does not, and what lends locks between them."""
    policy = settings.coordination
    if policy.redis is None:
        shared = policy.kind is CoordinationKind.DATABASE
        return local, DatabaseCoordination() if shared else InProcess()
    try:
        from penstock.coordination.redis_locks import RedisCoordination, connect
        from penstock.wakeups.redis import RedisWakeups
    except ImportError as error:
        raise ConfigurationError(
            "DW_COORDINATION=redis needs the Redis client, which is not installed: pip install 'penstock[redis]'"
        ) from error
    client = connect(policy.redis.url.reveal())
    stack.push_async_callback(client.aclose)
    coordination = RedisCoordination(client, node, SystemEntropy())
    await coordination.start()
    stack.push_async_callback(coordination.close)
    wakeups = RedisWakeups(client, f"penstock:wakeups:{policy.redis.database}", node, local)
    wakeups.start()
    stack.push_async_callback(wakeups.close)
    return wakeups, coordination


def _log_declaration(declaring: admission.DeclarationResult | None, settings: Settings) -> None:
    """Log what this server's configuration changed of the declared limits, or why it changed nothing."""
    if declaring is None or not declaring.differences:
        return
    before, version = declaring.before, settings.admission.version
    facts: dict[str, object] = {
        "server": settings.server_id,
        "version": version,
        "changes": [each.text for each in declaring.differences],
    }
    if before.declared_by is not None:
        facts |= {
            "declared_before_by": before.declared_by,
            "declared_before_at": before.declared_at_ms,
            "version_before": before.declaration.version,
        }
    if declaring.is_refused:
        advice = f"Deploy the newer configuration here, or set DW_ADMISSION_VERSION above {before.declaration.version}."
        log.warning("admission.declaration_older", advice=advice, **facts)
    elif before.declared_by is not None:
        advice = "Count up DW_ADMISSION_VERSION with each change: then an older configuration cannot undo it."
        log.warning("admission.declaration_replaced", **facts, **({} if version else {"advice": advice}))
    else:
        log.info("admission.declaration_set", **facts)


def _is_notified(settings: Settings) -> bool:
    """Whether PostgreSQL itself carries wakeups between servers."""
    by_redis = settings.coordination.kind is CoordinationKind.REDIS
    return settings.store.kind is StoreKind.POSTGRES and not by_redis


async def _open_store(
    settings: Settings, clock: Clock, wakeups: Wakeups, node: str, on_commit: CommitHook
) -> Store:
    policy = settings.store
    match policy.kind:
        case StoreKind.POSTGRES:
            await startup.wait_until_writable(_postgres_url(settings), policy.wait_s)
            return await postgres.PostgresStore.open(
                _postgres_url(settings),
                wakeups,
                node=node if _is_notified(settings) else None,
                pool_size=policy.pool_size,
                statement_timeout_ms=policy.statement_timeout_ms,
                hold_ms=policy.transaction_timeout_ms,
                on_commit=on_commit,
                journals=settings.journal,
            )
        case StoreKind.SQLITE if policy.path is None:
            return EphemeralStore.create(clock, wakeups, on_commit=on_commit, journals=settings.journal)
        case StoreKind.SQLITE:
            return await sqlite.SqliteStore.open(
                policy.path,
                clock,
                wakeups,
                synchronous=policy.synchronous.value,
                on_commit=on_commit,
                journals=settings.journal,
            )


def _archive(settings: Settings) -> Archive | None:
    if settings.archive_dir is None:
        return None
    try:
        archive.check(settings.archive_dir)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write into the directory of DW_ARCHIVE_DIR ({error.strerror}). Make it, or give this server "
            "the right to write there."
        ) from error
    key = settings.export_key
    return archive.DirectoryArchive(settings.archive_dir, None if key is None else key.reveal())


def _postgres_url(settings: Settings) -> str:
    assert settings.store.url is not None
    return settings.store.url.reveal()


def _sweepers(ctx: EngineContext) -> list[Sweeper[Any]]:
    makers: tuple[Callable[[EngineContext], Sweeper[Any]], ...] = (
        expired_leases,
        due_timers,
        due_schedules,
        outdated_schedules,
        due_change_sets,
        due_tasks,
        overdue_activities,
        overdue_runs,
        expired_queries,
        pending_outbox,
        inactive_workers,
        idle_keys,
        idle_lanes,
        scope_counts,
        old_records,
        expired_runs,
        expired_streams,
        unindexed_runs,
        unused_payloads,
        queue_samples,
        waiting_runs,
        uncounted_runs,
    )
    return [make(ctx) for make in makers]


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _auth_policy(settings: Settings) -> AuthPolicy:
    auth = settings.auth
    secrets = auth.secrets
    return AuthPolicy(
        driver=auth.driver,
        worker_secret=secrets.worker,
        operator_secret=secrets.operator,
        admin_secret=secrets.admin,
        viewer_secret=auth.viewer_token if auth.driver is AuthDriver.TOKEN else None,
        shared_secret=secrets.shared,
        backward_compatible=auth.backward_compatible,
        signature_profile=auth.signature_profile,
        signature_window_ms=auth.signature_window_ms,
    )


def _nonces(ctx: EngineContext) -> Callable[[str, str, int], Any]:
    async def register(key: str, nonce: str, expires_at_ms: int) -> bool:
        async def operation(tx: Tx) -> bool:
            return await tx.nonces.register(key, nonce, expires_at_ms)

        return await ctx.store.transact(operation, key=f"nonce:{key}:{nonce}")

    return register


def serve(
    settings: Settings,
    *,
    on_commit: CommitHook = no_hook,
    on_listening: Callable[[str, Dashboard | None], None] | None = None,
    bound: socket.socket | None = None,
    metrics_socket: Path | None = None,
) -> None:
    """Run a server in the foreground until SIGTERM or SIGINT.

    Args:
        settings: The configuration of the server.
        on_commit: For tests: called at named moments of the store.
        on_listening: Called once, as soon as the server accepts connections, with its address and its dashboard.
        bound: The socket to listen on, which other processes may share; by default one of its own.
        metrics_socket: Where it answers other processes behind the same socket for its metrics, beside theirs.
    """
    configure_logs(settings.logs)
    for warning in settings.warnings:
        log.warning(warning)
    _check_sqlite(settings)
    _runner()(_serve(settings, bound or bind(settings), metrics_socket, on_commit, on_listening))


def _runner() -> Callable[[Any], Any]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _serve(
    settings: Settings,
    bound: socket.socket,
    metrics_socket: Path | None,
    on_commit: CommitHook,
    on_listening: Callable[[str, Dashboard | None], None] | None,
) -> None:
    url = f"http://{_shown(settings.listen.host)}:{bound.getsockname()[1]}"
    async with (
        assembled(settings, on_commit=on_commit) as server,
        _shared_metrics(server.application, metrics_socket),
    ):
        http = _Http(
            uvicorn.Config(
                server.application,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                backlog=2048,
                h11_max_incomplete_event_size=65_536,
            )
        )
        _on_signal(server, http)

        def listening() -> None:
            log.info(
                "serving",
                url=url,
                docs=f"{url}/docs",
                store=settings.store.kind.value,
                coordination=settings.coordination.kind.value,
                auth=settings.auth.driver.value,
            )
            if on_listening is not None:
                on_listening(url, server.application.dashboard)

        http.on_listening = listening
        with frozen_startup_heap():
            await http.serve(sockets=[bound])
    log.info("stopped")


@contextlib.asynccontextmanager
async def _shared_metrics(application: Application, path: Path | None) -> AsyncIterator[None]:
    """Exchange metrics with the processes behind the same socket, if there are any."""
    if path is None:
        yield
        return
    async with application.share_metrics(path):
        yield


class _Http(uvicorn.Server):
    """uvicorn without signal handlers of its own: ours end the long polls first.

    And without its own beat, ten times a second: it wakes up with all others, to know the date, and when it is to end.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()
        self.on_listening: Callable[[], None] | None = None
        """Called once the sockets accept connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.on_listening is not None:
            self.on_listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), until_tick_s(1.0))


def _on_signal(server: Server, http: _Http) -> None:
    def stop(name: str) -> None:
        log.info("stopping", signal=name, open_polls=server.dispatcher.open_polls)
        server.dispatcher.drain()
        if server.application.dashboard is not None:
            server.application.dashboard.close()
        http.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)


def bind(settings: Settings) -> socket.socket:
    """The socket of a server, bound and not yet listening; raises `PenstockError` (`port_in_use`)."""
    host, port = settings.listen.host, settings.listen.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            taken = f"Port {port} of {host} is taken by another program."
            raise PenstockError(Reason.PORT_IN_USE, taken, host=host, port=port) from error
        raise ConfigurationError(
            f"Cannot listen on {host}:{port} ({error.strerror}). Choose another address with --host or DW_HOST, or "
            "another port with --port or DW_PORT."
        ) from error
    return bound


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_sqlite(settings: Settings) -> None:
    version = tuple(int(part) for part in sqlite_connections.library_version().split("."))
    if settings.store.path is not None and (3, 7, 0) <= version < (3, 51, 3):
        log.warning(
            "this SQLite has the WAL-reset bug; it cannot strike here, because one connection alone writes and "
            "checkpoints. Do not open the file for writing with other programs.",
            sqlite=sqlite_connections.library_version(),
        )


def configure_logs(policy: LogPolicy) -> None:
    """Structured lines on stderr: JSON for machines, or readable on a terminal."""
    as_json = policy.format is LogFormat.JSON or (policy.format is LogFormat.AUTO and not sys.stderr.isatty())
    level = getattr(logging, policy.level.value.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if as_json else structlog.dev.set_exc_info,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),  # one write a line: processes share stderr
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=max(level, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """Which schema the database has, and which this release needs."""

    store: str
    current: int
    required: int
    up_to_date: bool


@dataclass(frozen=True, slots=True)
class Migrated:
    store: str
    applied: tuple[int, ...]
    schema: int


@dataclass(frozen=True, slots=True)
class BackedUp:
    path: str
    bytes: int


def migrate(settings: Settings) -> Migrated:
    """Bring the database's schema up to date; a SQLite file is copied first."""
    kind = settings.store.kind
    applied: list[int] = []
    if kind is StoreKind.POSTGRES:
        applied = asyncio.run(postgres_schema.migrate(_postgres_url(settings)))
    elif settings.store.path is not None:
        with sqlite_schema.exclusive(settings.store.path):
            applied = sqlite_schema.prepare(settings.store.path)
    return Migrated(kind.value, tuple(applied), len(_known(kind)))


def schema_status(settings: Settings) -> SchemaStatus:
    kind = settings.store.kind
    known = _known(kind)
    missing: Sequence[registry.Migration] = known
    if kind is StoreKind.POSTGRES:
        missing = asyncio.run(postgres_schema.missing_migrations(_postgres_url(settings)))
    elif settings.store.path is None:
        missing = ()  # such a database is created with the current schema
    elif settings.store.path.exists():
        missing = registry.pending(known, sqlite_schema.applied_migrations(settings.store.path))
    return SchemaStatus(kind.value, len(known) - len(missing), len(known), not missing)


def _known(kind: StoreKind) -> Sequence[registry.Migration]:
    return registry.migrations(Dialect.POSTGRES if kind is StoreKind.POSTGRES else Dialect.SQLITE)


def backup(settings: Settings, path: Path) -> BackedUp:
    """Copy a SQLite database, also while it is served. PostgreSQL has better tools of its own."""
    if settings.store.path is None:
        raise ConfigurationError(
            "`penstock db backup` copies SQLite files. For PostgreSQL use pg_dump or pg_basebackup."
        )
    if not settings.store.path.exists():
        raise ConfigurationError(
            f"There is no database at {settings.store.path}. Name it with DW_DATABASE_URL, or start a server first."
        )
    sqlite_schema.backup(settings.store.path, path)
    return BackedUp(str(path), path.stat().st_size)


__all__ = ["assembled", "backup", "bind", "configure_logs", "migrate", "schema_status", "serve"]
