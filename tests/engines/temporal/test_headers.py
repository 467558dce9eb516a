"""Headers, plug-ins and converters on a Temporal server: the same code, with the same outcome."""

from __future__ import annotations

from penstock import Client, DataConverter, Worker
from penstock.sdk.converters import ZlibCodec
from tests.sdk.worker.tenant_context import EXPECTED, PROGRAMS, TENANT, TENANTS, Everywhere, Twice
from tests.sdk.worker.test_interceptors import Mirror, Point, PointConverter, mirrored
from tests.support.temporal import TemporalServer


async def test_the_tenant_of_a_request_is_known_wherever_code_works_for_it(temporal: TemporalServer) -> None:
    codecs = DataConverter(codecs=[ZlibCodec(min_size=0)])
    async with (
        await Client.connect(temporal.url, plugins=[TENANTS], data_converter=codecs) as client,
        Worker(client, task_queue="headers", **PROGRAMS),
    ):
        TENANT.set("acme")
        handle = await client.start_workflow(Everywhere.run, id="everywhere", task_queue="headers")
        TENANT.set("globex")
        await handle.signal(Everywhere.note)
        TENANT.set("initech")
        assert await handle.query(Everywhere.ask) == "initech"
        assert await handle.execute_update(Everywhere.finish, "done by") == "done by initech"
        assert await handle.result() == EXPECTED
        TENANT.set("umbrella")
        assert await client.execute_workflow(Twice.run, id="twice", task_queue="headers") == "umbrella"


async def test_a_converter_writes_and_reads_its_types_there(temporal: TemporalServer) -> None:
    converter = DataConverter(converters=[PointConverter(1)])
    async with (
        await Client.connect(temporal.url, data_converter=converter) as client,
        Worker(client, task_queue="points", workflows=[Mirror], activities=[mirrored]),
    ):
        handle = await client.start_workflow(Mirror.run, Point(1, 2), id="mirror", task_queue="points")
        await handle.signal(Mirror.move, Point(10, 0))
        found = await handle.result()
    assert (found.x, found.y) == (12, 1)
