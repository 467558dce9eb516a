"""`TemporalTransport`: a Temporal cluster behind the same client.

Theory of operation
-------------------
`Client`, its handles and the commands of the CLI speak to a server through a `Transport`: method, path and JSON. This
one answers those requests from a Temporal cluster, so that all of them work on it unchanged, down to the classes of
their results and errors. `gateway` has one function per request that Temporal can answer. A request that has none is
refused with `NotOnThisEngineError`, and so is a field of a body that Temporal has nothing for.

A worker asks the transport for its services (`services`): on our engine a worker polls over the transport, here
temporalio polls.

Rejected: a second client class with the same methods (each method would have to be written, documented and kept equal
twice), and a server in between that speaks our protocol (another process to run).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack
from urllib.parse import unquote

from temporalio.client import Client as TemporalClient

from penstock.engines.temporal.gateway.context import GatewayRequest
from penstock.engines.temporal.gateway.table import check_query, find_answer
from penstock.engines.temporal.refusals import not_here
from penstock.errors import ValidationFailed
from penstock.sdk.connection.transport import ControlOptions, Json, WorkOptions
from penstock.sdk.failures import refusal
from penstock.sdk.worker.engine_services import WorkerServices, WorkerSpec


class TemporalTransport:
    """Answers requests of clients from a Temporal cluster.

    Args:
        client: the connected client of temporalio.
        allow_approximate: whether workers may start with settings that Temporal enforces only roughly or not at all.
    """

    engine = "temporal"

    def __init__(self, client: TemporalClient, *, allow_approximate: bool = False) -> None:
        self.client = client
        self.allow_approximate = allow_approximate
        self.url = f"temporal://{client.service_client.config.target_host}/{client.namespace}"

    def __repr__(self) -> str:
        return f"TemporalTransport({self.url!r})"

    async def control(
        self, method: str, path: str, body: Json | None = None, **options: Unpack[ControlOptions]
    ) -> Json:
        parts = [unquote(each) for each in path.strip("/").split("/")]
        answer, names = find_answer(method, parts)
        query: Mapping[str, Any] = {
            name: value for name, value in (options.get("query") or {}).items() if value is not None
        }
        request = GatewayRequest(self.client, names, body or {}, query, options.get("idempotency_key"))
        check_query(method, path, answer, query)
        try:
            return await answer(request)
        except ValidationFailed as error:
            body = {"reason": str(error.reason), "message": str(error), **error.details}
            raise refusal(422, body) from error

    async def work(self, path: str, body: Json, **options: Unpack[WorkOptions]) -> Json:
        raise not_here(f"the worker request {path}", "workers of Temporal poll through temporalio")

    def services(self, spec: WorkerSpec) -> WorkerServices:
        """Return what runs a worker here."""
        from penstock.engines.temporal.worker import TemporalServices

        return TemporalServices(self.client, spec, allow_approximate=self.allow_approximate)

    async def close(self) -> None:
        """Nothing to close: connections of temporalio end with the process."""
