"""The context that all parts of a client share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from penstock.sdk.clients.handles import ClientContext
from penstock.sdk.clients.interceptors import ClientInterceptor, HttpOutbound, chain
from penstock.sdk.connection.async_codecs import AsyncCodecTransport
from penstock.sdk.connection.transport import Json, Transport, route
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.dispatch_options import ConfigGetter, Dispatch, config_getter
from penstock.sdk.plugins import Plugin, checked_plugins


class BaseClient:
    """Transport, namespace, converter and dispatch configuration of a client."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        dispatch: Dispatch | None = None,
        plugins: Sequence[Plugin] = (),
    ) -> None:
        """Create a client on an existing transport. Most callers want `Client.connect`.

        Args:
            transport: how requests reach the server.
            namespace: namespace of all requests.
            data_converter: encodes arguments and decodes results.
            interceptors: client interceptors, outermost first.
            dispatch: dispatch configuration for starts, and for workers created with this client.
            plugins: plug-ins that workers created with this client apply. `Client.connect` applies them to the client.
        """
        if data_converter.async_codecs:
            transport = AsyncCodecTransport(transport, data_converter.async_codecs)
        self.interceptors = tuple(interceptors)
        self.plugins = checked_plugins(plugins)
        self.dispatch: ConfigGetter = config_getter(dispatch)
        outbound = chain(self.interceptors, HttpOutbound(transport, data_converter))
        self._context = ClientContext(transport, outbound, data_converter, namespace)

    @property
    def transport(self) -> Transport:
        return self._context.transport

    @property
    def namespace(self) -> str:
        return self._context.namespace

    @property
    def data_converter(self) -> DataConverter:
        return self._context.converter

    async def _pages(self, what: str, query: Json, page_size: int, limit: int | None) -> AsyncIterator[Json]:
        """Yield the items of a list, up to `limit`. Pages are fetched on demand."""
        token, left = None, limit
        while left is None or left > 0:
            page_query = query | {"page_size": page_size, "next_page_token": token}
            page = await self.transport.control("GET", route(what), idempotent=True, query=page_query)
            for body in page[what][:left]:
                yield body
            left = None if left is None else left - len(page[what])
            token = page["next_page_token"]
            if token is None:
                return
