"""Requests of commands to another engine: the same paths and JSON, through the SDK's transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.cli.output.exits import CommandError, RequestRefused, ServerUnreachable
from penstock.cli.transport.connection import ServerConnection, ServerResponse

_PATIENCE = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class EngineConnection(ServerConnection):
    """A connection to another engine. `target` is unused."""

    url: str = ""

    def _send(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, object],
        body: Mapping[str, Any] | None,
        accept: Collection[int],
    ) -> ServerResponse:
        from penstock.sdk import failures
        from penstock.sdk.connection.engines import EngineNotInstalledError

        try:
            found = asyncio.run(self._ask(method, path, query, body))
        except EngineNotInstalledError as error:
            raise CommandError("engine_not_installed", str(error)) from error
        except failures.Unreachable as error:
            raise ServerUnreachable(str(error), "Check the address, and that the cluster runs.") from error
        except failures.ServerRefused as error:
            given = {**error.details, "reason": error.reason, "message": error.message}
            if error.status in accept:
                return ServerResponse(error.status, json.dumps(given, default=str), given)
            raise RequestRefused(error.status, given) from error
        text = json.dumps(found, ensure_ascii=False, default=str)
        return ServerResponse(200, text, found)

    async def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, object],
        body: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        from penstock.sdk.clients.client import Client
        from penstock.sdk.connection.transport import route

        try:
            client = await Client.connect(
                self.url,
                namespace=self.namespace,
                token=self.token,
                insecure=self.insecure,
                retry_for=_PATIENCE,
            )
        except ValueError as error:
            raise CommandError("invalid_address", str(error), "Correct --server or its variable.") from error
        return await client.transport.control(
            method,
            route(*path),
            None if body is None else dict(body),
            idempotent=method == "GET",
            query=query,
        )
