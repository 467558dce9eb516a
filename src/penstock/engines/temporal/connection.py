"""Addresses of Temporal clusters, and connecting to them.

    temporal://HOST[:PORT][/NAMESPACE]          plain, for a development server
    temporals://HOST[:PORT][/NAMESPACE]         TLS; the certificate is verified
        ?ca=FILE&cert=FILE&key=FILE&domain=NAME   own certificate authority, client certificate, name to verify

A `token` is sent as an API key. A connection is used only after the server has said what it is: something else on the
port, a server that is too old, and a namespace that does not exist are named errors before any work is taken.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from penstock.engines.temporal.payloads import CONVERTER
from penstock.sdk.connection.transport import is_loopback
from penstock.sdk.failures import NamespaceNotFoundError, PermissionDenied, Unauthorized, Unreachable

PORT: Final = 7233
OLDEST: Final = (1, 24, 0)
"""The first server with updates enabled, which every workflow may use."""
_TLS_OPTIONS: Final = ("ca", "cert", "key", "domain")
_FOREIGN: Final = ("Unimplemented", "h2 protocol", "http2", "HTTP", "frame", "grpc-status")
"""Words of errors that only something else than a gRPC server causes."""
_CAUSES: Final = {
    "Connection refused": "connection refused",
    "dns error": "its name cannot be resolved",
    "UnknownIssuer": "its certificate is of an authority that is not known; name it with ?ca=FILE",
    "NotValidForName": "its certificate is for another name; pass ?domain=NAME",
    "InvalidContentType": "it does not use TLS; temporal:// connects without",
}
"""What the library reports, in words."""
_CLOSED: Final = "connection closed"
"""Words of an error that something else causes, or a server that just starts."""
_PAUSE_S: Final = 0.2
_ANSWER_S: Final = 10.0
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class NotATemporalServerError(Unreachable):
    """Something answers at the address, and it is not a Temporal server."""


class TemporalServerTooOldError(Unreachable):
    """The Temporal server lacks what workflows may use. Upgrade it."""


@dataclass(frozen=True, slots=True)
class TemporalAddress:
    """A parsed address."""

    host: str
    port: int = PORT
    namespace: str | None = None
    uses_tls: bool = False
    files: dict[str, str] = field(default_factory=dict)
    """Files and names for TLS."""

    @property
    def target(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def tls(self) -> bool | TLSConfig:
        if not self.files:
            return self.uses_tls
        read = {name: _file(name, path) for name, path in self.files.items() if name != "domain"}
        return TLSConfig(
            server_root_ca_cert=read.get("ca"),
            client_cert=read.get("cert"),
            client_private_key=read.get("key"),
            domain=self.files.get("domain"),
        )

    @classmethod
    def parse(cls, text: str) -> TemporalAddress:
        """Parse `temporal://…`, `temporals://…`, or `HOST:PORT`. Raises `ValueError`."""
        whole = text.strip()
        try:
            parts = urlsplit(whole if "://" in whole else f"temporal://{whole}")
            port = PORT if parts.port is None else parts.port
        except ValueError as error:
            raise _invalid(whole) from error
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "The address of a Temporal server must not contain a password; pass the API key as a token"
            )
        path = parts.path.strip("/")
        if (
            parts.scheme not in ("temporal", "temporals")
            or not parts.hostname
            or "," in parts.netloc  # one address, also of a cluster
            or "/" in path
            or parts.fragment
            or not port
        ):
            raise _invalid(whole)
        files = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(files) - set(_TLS_OPTIONS))
        if unknown or (files and parts.scheme == "temporal"):
            raise _invalid(whole)
        return cls(parts.hostname, port, unquote(path) or None, parts.scheme == "temporals", files)


def _file(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(
            f"In the address of the Temporal server, {name}={path} cannot be read: {error.strerror}"
        ) from error


def _invalid(text: str) -> ValueError:
    return ValueError(
        f"{text} is not the address of a Temporal server, such as temporal://127.0.0.1:7233/default or"
        " temporals://HOST:7233/NAMESPACE?ca=FILE&cert=FILE&key=FILE"
    )


async def connect(
    address: TemporalAddress,
    *,
    namespace: str,
    api_key: str | None = None,
    identity: str | None = None,
    is_insecure: bool = False,
    is_lazy: bool = False,
    retry_for: timedelta = timedelta(seconds=30),
) -> TemporalClient:
    """Connect, and check that a usable Temporal server answers, unless `is_lazy`.

    Args:
        address: where it is.
        namespace: the namespace of all requests.
        api_key: sent with each request.
        identity: the name under which the server knows this client.
        is_insecure: whether the key may be sent to another machine without TLS.
        is_lazy: do not contact the server now.
        retry_for: how long to try while nothing answers.
    """
    if api_key and not address.uses_tls and not is_insecure and not is_loopback(address.host):
        raise ValueError(
            f"The API key would be sent to {address.host} without encryption: use temporals://, or insecure=True"
        )
    ends_at = time.monotonic() + retry_for.total_seconds()
    while True:
        try:
            async with asyncio.timeout(max(retry_for.total_seconds(), _ANSWER_S)):
                client = await TemporalClient.connect(
                    address.target,
                    namespace=namespace,
                    api_key=api_key,
                    data_converter=CONVERTER,
                    tls=address.tls,
                    identity=identity,
                    lazy=is_lazy,
                )
                if not is_lazy:
                    await check_server(client, address.target)
            return client
        except TimeoutError:
            raise Unreachable(f"{address.target} does not answer as a Temporal server does") from None
        except RuntimeError as error:
            problem = _not_connected(address, error)
            is_certain = isinstance(problem, NotATemporalServerError) and _CLOSED not in str(error)
            if is_certain or time.monotonic() > ends_at:
                raise problem from error
        except Unreachable as error:
            if type(error) is not Unreachable or time.monotonic() > ends_at:
                raise
        await asyncio.sleep(_PAUSE_S)


def _not_connected(address: TemporalAddress, error: Exception) -> Unreachable:
    text = str(error)
    if any(word in text for word in _FOREIGN):
        return NotATemporalServerError(
            f"{address.target} answered, but not as a Temporal server does. Check the address and the port: another"
            " program may be listening there."
        )
    text = next((words for sign, words in _CAUSES.items() if sign in text), text)
    return Unreachable(f"The Temporal server at {address.target} cannot be reached: {text}")


async def check_server(client: TemporalClient, target: str) -> str:
    """Return the version of the server. Raises if it is too old, or if there is no such namespace."""
    try:
        info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), retry=False)
    except RPCError as error:
        raise _refused(error, target) from error
    check_version(info.server_version, target)
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), retry=False
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise NamespaceNotFoundError(
                "namespace_not_found",
                f"The Temporal server at {target} has no namespace {client.namespace!r}",
                404,
            ) from error
        if error.status is not RPCStatusCode.PERMISSION_DENIED:  # a key may be limited to workflows
            raise _refused(error, target) from error
    return info.server_version


def check_version(version: str, target: str) -> None:
    """Raise `TemporalServerTooOldError` for a server that is too old. An unknown form passes: clouds have others."""
    found = _VERSION.match(version)
    if found is not None and tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise TemporalServerTooOldError(
            f"The Temporal server at {target} is version {version}; Penstock needs {oldest} or later."
        )


def _refused(error: RPCError, target: str) -> Exception:
    if error.status is RPCStatusCode.UNAUTHENTICATED:
        return Unauthorized("unauthorized", f"The Temporal server at {target} rejects the credentials", 401)
    if error.status is RPCStatusCode.PERMISSION_DENIED:
        return PermissionDenied("forbidden", f"The Temporal server at {target} refuses: {error.message}", 403)
    if error.status is RPCStatusCode.UNIMPLEMENTED or error.status is RPCStatusCode.UNKNOWN:
        return NotATemporalServerError(
            f"{target} answered, but not as a Temporal server does: {error.message}. Check the address and the port."
        )
    return Unreachable(f"The Temporal server at {target} cannot be reached: {error.message}")
