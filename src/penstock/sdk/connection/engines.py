"""Other engines behind the same client, by the scheme of their address.

An engine is a package of `penstock.engines` and an extra of the installation. It is imported only when an address
names it, so that nobody else needs its libraries.
"""

from __future__ import annotations

import ssl as tls
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Any

from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.connection.transport import ENGINE_SCHEMES, Transport


class EngineNotInstalledError(ImportError):
    """The libraries of an engine are not installed; the message says which extra has them."""


def engine_package(name: str) -> ModuleType:
    """Import an engine. Raises `EngineNotInstalledError`."""
    try:
        return import_module(f"penstock.engines.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("penstock"):
            raise
        raise EngineNotInstalledError(
            f"The engine {name!r} needs {error.name}, which is not installed: pip install 'penstock[{name}]'"
        ) from error


async def connect_engine(
    options: ConnectOptions,
    *,
    namespace: str | None,
    ssl: tls.SSLContext | bool,
    lazy: bool,
    retry_for: timedelta,
    allow_approximate: bool,
) -> tuple[Transport, str]:
    """Connect to another engine. Returns the transport, and the namespace that the address names.

    Args:
        options: address and credentials.
        namespace: the namespace that the caller named, if any.
        ssl: must be True: certificates are part of the address.
        lazy: do not contact the server now.
        retry_for: how long to try while nothing answers.
        allow_approximate: whether workers start in spite of settings that the engine has nothing for.
    """
    if ssl is not True:
        raise TypeError("ssl is for servers of Penstock; the address of another engine says how TLS is used")
    scheme = options.url.partition("://")[0].lower()
    engine: Any = engine_package(ENGINE_SCHEMES[scheme])
    transport, found = await engine.connect_transport(
        options,
        namespace=namespace,
        lazy=lazy,
        retry_for=retry_for,
        allow_approximate=allow_approximate,
    )
    return transport, found
