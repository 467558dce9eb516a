"""Interceptors and plug-ins: headers go wherever a call goes, and cost nothing where there are none."""

from __future__ import annotations

import json
import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    ClientInterceptor,
    DataConverter,
    OutboundInterceptor,
    Replayer,
    SimplePlugin,
    activity,
    workflow,
)
from penstock.core import payload_codec
from penstock.core.call_headers import HEADERS_KEY
from penstock.failures import ConversionError, HeadersTooLarge, UnreadablePayload
from penstock.sdk.converters import ZlibCodec
from penstock.sdk.converters.headers import Headers, with_headers
from penstock.worker import Plugin, Worker
from tests.acceptance.cluster import Cluster
from tests.faults.deadlines import until
from tests.sdk.server_fixtures import connected, new_namespace
from tests.sdk.worker.tenant_context import (
    EXPECTED,
    PROGRAMS,
    TENANT,
    TENANTS,
    Everywhere,
    Twice,
    tenant_of_activity,
)

# Headers in a payload


def test_headers_come_back_beside_the_arguments_and_are_none_of_them() -> None:
    converter = DataConverter()
    sent = converter.encode_arguments(with_headers([1, "b"], {"x": {"y": b"z"}}), "workflow w")
    assert converter.decode_call(sent, (int,)) == ([1, "b"], {"x": {"y": b"z"}})
    assert converter.decode_arguments(sent, (int, str, int)) == [1, "b"]
    assert converter.encode_arguments(with_headers([1], {}), "w") == converter.encode_arguments([1], "w")


def test_headers_pass_the_codecs_and_are_recognized_without_them() -> None:
    converter = DataConverter(codecs=[ZlibCodec(min_size=0)])
    sent = converter.encode_arguments(with_headers([], {"x": "y" * 500}), "workflow w")
    decoded: Any = payload_codec.decode(sent["blob"])
    (plain,) = decoded
    assert plain.keys() == {HEADERS_KEY}
    assert "yyy" not in str(plain)
    assert converter.decode_call(sent) == ([], {"x": "y" * 500})


def test_an_argument_that_looks_like_headers_stays_an_argument() -> None:
    converter = DataConverter()
    sent = converter.encode_arguments([{HEADERS_KEY: {"x": 1}}], "workflow w")
    assert converter.decode_call(sent) == ([{HEADERS_KEY: {"x": 1}}], {})


def test_headers_that_are_too_large_are_refused_by_name() -> None:
    converter = DataConverter(headers_bytes_max=100)
    with pytest.raises(
        HeadersTooLarge, match=r"headers in .*: they take \d+ bytes .* headers_bytes_max is 100"
    ):
        converter.encode_arguments([Headers(x="y" * 100)], "workflow w")
    with pytest.raises(ValueError, match="headers_bytes_max must be at least 1"):
        DataConverter(headers_bytes_max=0)


# Context of a tenant


@pytest.mark.parametrize("time", ["first", "second"])
async def test_the_tenant_of_a_request_is_known_wherever_code_works_for_it(
    cluster: Cluster, time: str
) -> None:
    scene = await new_namespace(cluster)
    async with (
        await connected(scene, plugins=[TENANTS]) as client,
        Worker(client, task_queue="q", max_cached_workflows=0, **PROGRAMS),
    ):
        TENANT.set("acme")
        handle = await client.start_workflow(Everywhere.run, id="everywhere", task_queue="q")
        TENANT.set("globex")
        await handle.signal(Everywhere.note)
        TENANT.set("initech")
        assert await handle.query(Everywhere.ask) == "initech"
        assert await handle.execute_update(Everywhere.finish, "done by") == "done by initech"
        assert await handle.result() == EXPECTED
        TENANT.set("umbrella")
        assert await client.execute_workflow(Twice.run, id="twice", task_queue="q") == "umbrella"
        standalone = await client.start_activity(
            tenant_of_activity, args=["of", "?"], id="alone", task_queue="q"
        )
        assert await standalone.result() == "of umbrella?"
        history = await handle.fetch_history()
    result = Replayer(workflows=PROGRAMS["workflows"], plugins=[TENANTS]).replay(history)
    assert result.failure is None
    assert Replayer(workflows=PROGRAMS["workflows"]).replay(history).failure is None, (
        "headers are not compared"
    )


async def test_a_client_without_the_plug_in_sends_no_tenant_and_its_calls_arrive_all_the_same(
    cluster: Cluster,
) -> None:
    scene = await new_namespace(cluster)
    async with (
        await connected(scene) as client,
        Worker(client, task_queue="q", plugins=[TENANTS], **PROGRAMS),
    ):
        assert await client.execute_workflow(Twice.run, id="twice", task_queue="q") is None


async def test_a_worker_without_the_plug_in_runs_calls_that_have_headers(cluster: Cluster) -> None:
    scene = await new_namespace(cluster)
    async with (
        await connected(scene) as plain,
        await connected(scene, plugins=[TENANTS]) as client,
        Worker(plain, task_queue="q", **PROGRAMS),
    ):
        TENANT.set("acme")
        standalone = await client.start_activity(tenant_of_activity, args=["of"], id="alone", task_queue="q")
        assert await standalone.result() == "of None!"
        handle = await client.start_workflow(Everywhere.run, id="w", task_queue="q")
        assert await handle.query(Everywhere.ask) is None
        await handle.terminate()


class _TooMuch(ClientInterceptor):
    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        return _SendsTooMuch(next)


class _SendsTooMuch(OutboundInterceptor):
    async def start_workflow(self, input: Any) -> Any:  # noqa: A002
        return await self.next.start_workflow(replace(input, headers={"x": "y" * 100_000}))


async def test_a_start_with_headers_that_are_too_large_starts_nothing(cluster: Cluster) -> None:
    scene = await new_namespace(cluster)
    async with await connected(scene, interceptors=[_TooMuch()]) as client:
        with pytest.raises(HeadersTooLarge):
            await client.start_workflow(Twice.run, id="twice", task_queue="q")
        assert [each async for each in client.list_workflows()] == []


async def test_the_plug_in_of_the_guide_carries_the_tenant(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[3] / "docs/guides/interceptors.md").read_text()
    guide: Any = types.ModuleType("interceptors_guide")
    monkeypatch.setitem(sys.modules, guide.__name__, guide)
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, "interceptors.md", "exec"), guide.__dict__)
    scene = await new_namespace(cluster)

    @activity.defn(name="tenant_of_guide")
    async def tenant_of_guide() -> str:
        found: str = guide.tenant.get()
        return found

    async with (
        await connected(scene, plugins=[guide.plugin]) as client,
        Worker(client, task_queue="q", workflows=[CallsTheGuide], activities=[tenant_of_guide]),
    ):
        guide.tenant.set("acme")
        assert await client.execute_workflow(CallsTheGuide.run, id="w", task_queue="q") == "acme"


@workflow.defn
class CallsTheGuide:
    @workflow.run
    async def run(self) -> Any:
        return await workflow.execute_activity("tenant_of_guide")


# Plug-ins


class _Recorded(Plugin):
    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def configure_client(self, config: Any) -> Any:
        self._log.append(f"client of {self._name}")
        return config

    def configure_worker(self, config: Any) -> Any:
        self._log.append(f"worker of {self._name}")
        return config

    async def run_worker(self, worker: Any, next: Any) -> None:  # noqa: A002
        self._log.append(f"{self._name} begins")
        await next(worker)
        self._log.append(f"{self._name} ends")


async def test_plug_ins_configure_and_wrap_in_order_those_of_the_client_first(cluster: Cluster) -> None:
    log: list[str] = []
    scene = await new_namespace(cluster)
    async with await connected(scene, plugins=[_Recorded("a", log)]) as client:
        parts = SimplePlugin("parts", workflows=[Twice], activities=[tenant_of_activity])
        async with Worker(client, task_queue="q", plugins=[_Recorded("b", log), parts]):
            assert await client.execute_workflow(Twice.run, id="twice", task_queue="q") is None
    expected = ["client of a", "worker of a", "worker of b", "a begins", "b begins", "b ends", "a ends"]
    assert log == expected


async def test_something_that_is_no_plug_in_is_refused(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="is not a plug-in"):
        await connected(await new_namespace(cluster), plugins=[object()])


async def test_a_plug_in_brings_its_converter(cluster: Cluster) -> None:
    scene = await new_namespace(cluster)
    zlib = SimplePlugin("zlib", data_converter=DataConverter(codecs=[ZlibCodec(min_size=0)]))
    async with await connected(scene, plugins=[zlib]) as client:
        assert [each.name for each in client.data_converter.codecs] == ["zlib"]


# Converters that cannot read what older ones wrote


class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


class PointConverter:
    """Writes points as JSON of its own. An older version wrote the encoding `point/1`."""

    def __init__(self, version: int) -> None:
        self.encoding = f"point/{version}"

    def to_data(self, value: Any) -> bytes | None:
        return json.dumps([value.x, value.y]).encode() if isinstance(value, Point) else None

    def from_data(self, data: bytes, type_hint: Any) -> Any:
        return Point(*json.loads(data))


@activity.defn
async def mirrored(point: Point) -> Point:
    return Point(point.y, point.x)


@workflow.defn
class Mirror:
    def __init__(self) -> None:
        self.moves = 0

    @workflow.run
    async def run(self, point: Point) -> Point:
        await workflow.wait_condition(lambda: self.moves > 0)
        found = await workflow.execute_activity(mirrored, point)
        return Point(found.x + self.moves, found.y)

    @workflow.signal
    def move(self, by: Point) -> None:
        self.moves += by.x


def test_values_that_no_converter_takes_are_plain_data_and_maps_with_its_key_stay_maps() -> None:
    converter = DataConverter(converters=[PointConverter(1)])
    for value in (
        1,
        "text",
        [1, 2],
        {"penstock.encoding": "x", "data": b"y"},
        {"penstock.encoding": "plain"},
    ):
        assert converter.decode(converter.encode(value, "it")) == value
    sent = converter.encode_arguments([Point(1, 2), 3], "workflow w")
    found, rest = converter.decode_arguments(sent, (Point, int))
    assert (found.x, found.y, rest) == (1, 2, 3)


def test_two_converters_of_one_encoding_are_refused() -> None:
    with pytest.raises(ValueError, match='two payload converters have the encoding "point/1"'):
        DataConverter(converters=[PointConverter(1), PointConverter(1)])


def test_an_encoding_that_is_not_there_is_named() -> None:
    sent = DataConverter(converters=[PointConverter(1)]).encode(Point(1, 2), "it")
    with pytest.raises(
        UnreadablePayload, match=r'encoding "point/1", and this .* has converters for "point/2"'
    ):
        DataConverter(converters=[PointConverter(2)]).decode(sent, Point)
    assert issubclass(UnreadablePayload, ConversionError)


async def test_a_run_that_an_older_converter_wrote_waits_for_a_worker_that_reads_it(cluster: Cluster) -> None:
    """Nothing is lost meanwhile: not the run, not its signal, not its activity."""
    scene = await new_namespace(cluster)
    old, new = PointConverter(1), PointConverter(2)
    async with await connected(scene, data_converter=DataConverter(converters=[old])) as writer:
        handle = await writer.start_workflow(Mirror.run, Point(1, 2), id="mirror", task_queue="q")
        await handle.signal(Mirror.move, Point(10, 0))
        async with (
            await connected(scene, data_converter=DataConverter(converters=[new])) as wrong,
            Worker(wrong, task_queue="q", workflows=[Mirror], activities=[mirrored]),
        ):
            await _task_failed(scene, "mirror")
        both = DataConverter(converters=[new, old])
        async with (
            await connected(scene, data_converter=both) as right,
            Worker(right, task_queue="q", workflows=[Mirror], activities=[mirrored]),
        ):
            found = await right.get_workflow_handle_for(Mirror.run, "mirror").result()
    assert (found.x, found.y) == (12, 1)


async def _task_failed(scene: Cluster, workflow_id: str) -> None:
    """Wait until a workflow task of the run has failed with the name of the encoding."""

    async def look() -> bool:
        found = (await scene.get(f"/api/workflows/{workflow_id}/debug")).expect(200)
        return "point/1" in json.dumps(found.body)

    await until("the task fails", look)
