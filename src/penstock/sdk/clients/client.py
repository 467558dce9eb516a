"""`Client`: connects to a server; its calls are in the base classes, by subject."""

from __future__ import annotations

import ssl as tls
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from penstock.sdk.clients.activity_starts import ActivityStarts
from penstock.sdk.clients.change_sets.calls import ChangeSetCalls
from penstock.sdk.clients.interceptors import ClientInterceptor
from penstock.sdk.clients.schedules.calls import ScheduleCalls
from penstock.sdk.clients.update_with_start import UpdateWithStart
from penstock.sdk.clients.visibility import WorkflowVisibility
from penstock.sdk.clients.workflow_starts import WorkflowStarts
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.connection.engines import connect_engine
from penstock.sdk.connection.external_payloads import EXTERNAL_BYTES_MAX, PayloadTransport
from penstock.sdk.connection.transport import (
    CONTROL_PLANE,
    HttpTransport,
    RequestRetries,
    is_engine_address,
    route,
)
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.dispatch_options import Dispatch
from penstock.sdk.failures import NotOnThisEngineError, Unreachable
from penstock.sdk.plugins import Plugin, configured_client


class Client(
    WorkflowStarts, UpdateWithStart, WorkflowVisibility, ActivityStarts, ScheduleCalls, ChangeSetCalls
):
    """A client of one namespace. It belongs to one event loop and may be shared between tasks.

    Create it with `Client.connect`, and close it or use it as an async context manager.
    """

    @classmethod
    async def connect(
        cls,
        url: str | Sequence[str] | None = None,
        *,
        namespace: str | None = None,
        token: str | None = None,
        control_token: str | None = None,
        worker_token: str | None = None,
        signature_key: str | None = None,
        worker_signature_key: str | None = None,
        signature_profile: str | None = None,
        profile: str | None = None,
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        ssl: tls.SSLContext | bool = True,
        insecure: bool | None = None,
        retry_for: timedelta = timedelta(seconds=30),
        lazy: bool = False,
        dispatch: Dispatch | None = None,
        allow_approximate: bool = False,
        plugins: Sequence[Plugin] = (),
    ) -> Self:
        """Connect to a server. Arguments take precedence over the environment, and that over a profile.

        Args:
            url: address of the server, `http://127.0.0.1:8080` unless configured. Several addresses of servers that
                share a database may be given as a list or separated by commas: requests go to one of them, and to the
                next when it fails. A request that may have had an effect is resent only if it is idempotent.
                `temporal://HOST:7233/NAMESPACE` is a Temporal cluster, with `token` as API key.
            namespace: namespace of all requests.
            token: token for a server that authenticates by tokens.
            control_token: token for client requests, in place of `token`.
            worker_token: token for worker requests, in place of `token`.
            signature_key: key for a server that requires signatures, as `operator:secret`. The part before the colon
                is operator, admin, worker or shared. Keys are never sent.
            worker_signature_key: key for worker requests, in place of `signature_key`.
            signature_profile: what is signed, `penstock` or `body`; the server's `DW_SIGNATURE_PROFILE`.
            profile: name of a profile in the profiles file.
            data_converter: encodes arguments and decodes results.
            interceptors: client interceptors, outermost first. Workers created with this client use those that have
                links for workflows or activities.
            ssl: TLS context; True verifies certificates with the default context, False disables verification.
            insecure: whether tokens may be sent over plain http to another machine.
            retry_for: how long each request is retried while no server is reachable.
            lazy: do not contact the server now. Otherwise an unreachable server raises `Unreachable`.
            dispatch: dispatch configuration that supplies timeouts which starts leave out. Workers created with this
                client use it too.
            allow_approximate: for an address of another engine: workers start in spite of settings that it has nothing
                for. They are logged, and have no effect.
            plugins: plug-ins of this client, and of workers created with it.
        """
        config = configured_client(plugins, data_converter, interceptors, dispatch)
        data_converter = config["data_converter"]
        options = ConnectOptions.resolve(
            url=url,
            namespace=namespace,
            token=token,
            control_token=control_token,
            worker_token=worker_token,
            signature_key=signature_key,
            worker_signature_key=worker_signature_key,
            signature_profile=signature_profile,
            insecure=insecure,
            profile=profile,
        )
        if is_engine_address(options.url):
            if not data_converter.failure_converter.is_plain:
                raise NotOnThisEngineError("a failure converter of a DataConverter", engine="Temporal")
            if data_converter.async_codecs:
                raise NotOnThisEngineError("an asynchronous codec of a DataConverter", engine="Temporal")
            engine, found = await connect_engine(
                options,
                namespace=namespace,
                ssl=ssl,
                lazy=lazy,
                retry_for=retry_for,
                allow_approximate=allow_approximate,
            )
            return cls(
                engine,
                namespace=found,
                data_converter=data_converter,
                interceptors=config["interceptors"],
                dispatch=config["dispatch"],
                plugins=plugins,
            )
        if allow_approximate:
            raise TypeError("allow_approximate is for addresses of other engines, such as temporal://")
        connection = HttpTransport(
            options.url,
            namespace=options.namespace,
            token=options.token,
            control_token=options.control_token,
            worker_token=options.worker_token,
            control_key=options.control_key,
            worker_key=options.worker_key,
            ssl=ssl,
            insecure=options.insecure,
            retries=RequestRetries(retry_for.total_seconds()),
        )
        transport = PayloadTransport(connection, inline_bytes_max=data_converter.payload_bytes_max)
        external_bytes_max = EXTERNAL_BYTES_MAX
        if not lazy:
            try:
                external_bytes_max = transport.learn(await _check_server(connection, options)).bytes_max
            except BaseException:
                await transport.close()
                raise
        if external_bytes_max:
            data_converter = data_converter.with_external(external_bytes_max)
        return cls(
            transport,
            namespace=options.namespace,
            data_converter=data_converter,
            interceptors=config["interceptors"],
            dispatch=config["dispatch"],
            plugins=plugins,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Client({self.transport!r})"


async def _check_server(transport: HttpTransport, options: ConnectOptions) -> dict[str, Any]:
    """Request the server's info. Any role may; a client with only worker credentials asks as a worker."""
    path = route("cluster", "info")
    is_worker = options.worker_token or options.worker_signature_key
    if is_worker and not (options.token or options.control_token or options.signature_key):
        info = await transport.work(path, {}, idempotent=True, method="GET")
    else:
        info = await transport.control("GET", path, idempotent=True)
    spoken = info.get("control_plane")
    if not isinstance(spoken, dict) or "version" not in spoken:
        raise Unreachable(
            f"{transport.url} answered, but not as a Penstock server does."
            " Check the address and the port: another program may be listening there."
        )
    if str(spoken["version"]) != CONTROL_PLANE[1]:
        raise Unreachable(
            f"{transport.url} speaks version {spoken['version']} of the control plane, and this client version"
            f" {CONTROL_PLANE[1]}. Use a client of the server's version."
        )
    return info
