"""Programs about what is carried along: encodings, encryption, models, context, and traces."""

from __future__ import annotations

import asyncio
import base64
import importlib
import uuid
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import BaseModel

from penstock import DataConverter, SimplePlugin, activity, workflow
from penstock.failures import ActivityError, ApplicationError, UnreadablePayload, WorkflowFailureError
from penstock.sdk.converters import ZlibCodec
from penstock.sdk.opentelemetry import TracingInterceptor
from penstock.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    Worker,
)
from tests.sdk.programs.program import LONG, Home, program
from tests.sdk.server_fixtures import connected, new_namespace
from tests.sdk.worker.tenant_context import PROGRAMS as OF_TENANTS
from tests.sdk.worker.tenant_context import TENANT, TENANTS, Everywhere, tenant_of_activity


class Encryption:
    """A codec: the server stores nothing that can be read."""

    name = "fernet"

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    def encode(self, data: bytes) -> bytes:
        return self._fernet.encrypt(data)

    def decode(self, data: bytes) -> bytes:
        return self._fernet.decrypt(data)


@activity.defn
async def whisper(text: str) -> str:
    if text == "fail":
        raise ApplicationError("it failed", "secret detail", type="Whispered", non_retryable=True)
    return f"{text}, quietly"


@workflow.defn
class Secret:
    @workflow.run
    async def run(self, text: str) -> str:
        return await workflow.execute_activity(whisper, text, start_to_close_timeout=LONG)


@program()
async def encryption(home: Home) -> None:
    codec = Encryption(Fernet.generate_key())
    plugin = SimplePlugin("encryption", data_converter=DataConverter(codecs=[codec]))
    async with (
        await connected(await new_namespace(home.scene), plugins=[plugin]) as client,
        Worker(client, task_queue="q", workflows=[Secret], activities=[whisper]),
    ):
        handle = await client.start_workflow(Secret.run, "a secret", id="secret", task_queue="q")
        assert await handle.result() == "a secret, quietly"
        failing = await client.start_workflow(Secret.run, "fail", id="failing", task_queue="q")
        with pytest.raises(WorkflowFailureError) as failed:
            await failing.result()
        assert isinstance(failed.value.cause, ActivityError)
        assert isinstance(failed.value.cause.cause, ApplicationError)
        assert failed.value.cause.cause.details == ("secret detail",)
        history = await handle.fetch_history()
    assert "a secret" not in history.to_json()
    assert Replayer(workflows=[Secret], plugins=[plugin]).replay(history).failure is None
    assert Replayer(workflows=[Secret]).replay(history).failure is not None, "the key is needed"


class KeyService:
    """A codec that asks elsewhere for its key."""

    name = "key-service"

    def __init__(self) -> None:
        self._fernet = Fernet(Fernet.generate_key())

    async def encode(self, data: bytes) -> bytes:
        await asyncio.sleep(0)
        return self._fernet.encrypt(data)

    async def decode(self, data: bytes) -> bytes:
        await asyncio.sleep(0)
        return self._fernet.decrypt(data)


@workflow.defn
class Keeper:
    """Has every kind of payload: headers, arguments, results, details, signals, queries, updates, children."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, first: str, second: list[str]) -> list[str]:
        await workflow.wait_condition(lambda: len(self.words) > 1)
        self.words.append(await workflow.execute_local_activity(whisper, first, start_to_close_timeout=LONG))
        self.words.append(await workflow.execute_child_workflow(Secret.run, "child secret"))
        return [*self.words, *second, str(TENANT.get())]

    @workflow.signal
    def tell(self, word: str) -> None:
        self.words.append(word)

    @workflow.update
    async def change(self, word: str, times: int) -> str:
        self.words.append(word * times)
        return f"{word} secret"

    @workflow.query
    def known(self, prefix: str) -> dict[str, list[str]]:
        return {prefix: self.words}


@program()
async def a_codec_that_is_asynchronous(home: Home) -> None:
    converter = DataConverter(codecs=[ZlibCodec(min_size=1), KeyService()])
    scene = await new_namespace(home.scene)
    async with (
        await connected(scene, data_converter=converter, plugins=[TENANTS]) as client,
        Worker(client, task_queue="q", workflows=[Keeper, Secret], activities=[whisper]),
    ):
        token = TENANT.set("secret tenant")
        try:
            handle = await client.start_workflow(
                Keeper.run, args=["first secret", ["second secret"]], id="kept", task_queue="q"
            )
        finally:
            TENANT.reset(token)
        await handle.signal(Keeper.tell, "told secret")
        assert await handle.execute_update(Keeper.change, args=["x", 2]) == "x secret"
        assert (await handle.query(Keeper.known, "secret"))["secret"][:2] == ["told secret", "xx"]
        assert await handle.result() == [
            *("told secret", "xx", "first secret, quietly", "child secret, quietly"),
            *("second secret", "secret tenant"),
        ]
        failing = await client.start_workflow(Secret.run, "fail", id="failing", task_queue="q")
        with pytest.raises(WorkflowFailureError) as failed:
            await failing.result()
        assert isinstance(failed.value.cause, ActivityError)
        assert isinstance(failed.value.cause.cause, ApplicationError)
        assert failed.value.cause.cause.details == ("secret detail",)
        history = await handle.fetch_history()
    assert Replayer(workflows=[Keeper], plugins=[TENANTS]).replay(history).failure is None
    async with await connected(scene) as stranger:
        kept = (await stranger.get_workflow_handle("kept").fetch_history()).to_json()
        assert all(
            base64.b64encode(word)[:-4].decode() not in kept for word in (b"told secret", b"first secret")
        )
        with pytest.raises(UnreadablePayload, match="key-service"):
            await stranger.get_workflow_handle("kept").result()
    other = DataConverter(codecs=[KeyService()])
    async with await connected(scene, data_converter=other) as stranger:
        with pytest.raises(UnreadablePayload, match='"key-service" cannot decode it: InvalidToken'):
            await stranger.get_workflow_handle("kept").result()


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class CelsiusConverter:
    """A payload converter for one class of the user."""

    encoding = "text/celsius"

    def to_data(self, value: Any) -> bytes | None:
        return f"{value.degrees} C".encode() if isinstance(value, Celsius) else None

    def from_data(self, data: bytes, type_hint: Any) -> Any:
        return Celsius(float(data.split()[0]))


@activity.defn
async def warmer(before: Celsius) -> Celsius:
    return Celsius(before.degrees + 1)


@workflow.defn
class Weather:
    @workflow.run
    async def run(self, now: Celsius) -> Celsius:
        return await workflow.execute_activity(warmer, now, start_to_close_timeout=LONG)


@program()
async def a_custom_payload_converter(home: Home) -> None:
    converter = DataConverter(converters=[CelsiusConverter()])
    async with (
        await connected(await new_namespace(home.scene), data_converter=converter) as client,
        Worker(client, task_queue="q", workflows=[Weather], activities=[warmer]),
    ):
        found = await client.execute_workflow(Weather.run, Celsius(20.5), id="weather", task_queue="q")
    assert found.degrees == 21.5


class Line(BaseModel):
    article: str
    price: Decimal


class Order(BaseModel):
    number: uuid.UUID
    lines: list[Line]
    due: date


@activity.defn
async def total(orders: list[Order]) -> Line:
    return Line(
        article="total", price=sum((line.price for order in orders for line in order.lines), Decimal())
    )


@workflow.defn
class Billing:
    @workflow.run
    async def run(self, orders: list[Order]) -> Order:
        line = await workflow.execute_activity(total, orders, start_to_close_timeout=LONG)
        return orders[0].model_copy(update={"lines": [line]})


@program(workflows=[Billing], activities=[total])
async def pydantic_models(home: Home) -> None:
    lines = [Line(article="pen", price=Decimal("1.50")), Line(article="ink", price=Decimal("2.50"))]
    order = Order(number=uuid.UUID(int=7), lines=lines, due=date(2026, 3, 1))
    found = await home.client.execute_workflow(Billing.run, [order], **home.how())
    assert found == order.model_copy(update={"lines": [Line(article="total", price=Decimal("4.00"))]})


@dataclass
class Booking:
    when: datetime
    guests: dict[str, list[int]]
    note: str | None = None


@activity.defn
async def confirm(booking: Booking, extras: set[str]) -> tuple[Booking, int]:
    return replace(booking, note="confirmed"), len(extras)


@workflow.defn
class Reserving:
    @workflow.run
    async def run(self, booking: Booking) -> tuple[Booking, int]:
        return await workflow.execute_activity(
            confirm, args=[booking, {"a", "b"}], start_to_close_timeout=LONG
        )


@program(workflows=[Reserving], activities=[confirm])
async def dataclasses_and_their_types(home: Home) -> None:
    booking = Booking(datetime.fromisoformat("2026-02-03T04:05:06+00:00"), {"a": [1, 2]})
    found = await home.client.execute_workflow(Reserving.run, booking, **home.how())
    assert found == (replace(booking, note="confirmed"), 2)


@program()
async def context_propagation(home: Home) -> None:
    async with (
        await connected(await new_namespace(home.scene), plugins=[TENANTS]) as client,
        Worker(client, task_queue="q", **OF_TENANTS),
    ):
        token = TENANT.set("acme")
        try:
            handle = await client.start_workflow(Everywhere.run, id="context", task_queue="q")
            assert await handle.execute_update(Everywhere.finish, "done") == "done acme"
            assert (await handle.result())["activity"] == "of acme!"
            alone = await client.execute_activity(
                tenant_of_activity, "of", id="alone", task_queue="q", start_to_close_timeout=LONG
            )
        finally:
            TENANT.reset(token)
    assert alone == "of acme!"


class Shouting(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        return str(await self.next.execute_activity(input)).upper()


class ShoutingInterceptor(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return Shouting(next)


@program()
async def a_worker_with_an_interceptor(home: Home) -> None:
    queue = f"{home.queue}-shouting"
    async with Worker(
        home.client,
        task_queue=queue,
        workflows=[Secret],
        activities=[whisper],
        interceptors=[ShoutingInterceptor()],
    ):
        found = await home.client.execute_workflow(Secret.run, "hey", id=home.name, task_queue=queue)
    assert found == "HEY, QUIETLY"


@program()
async def traces_of_opentelemetry(home: Home) -> None:
    export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    memory: Any = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider: Any = importlib.import_module("opentelemetry.sdk.trace").TracerProvider()
    kept = memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    tracing = TracingInterceptor(provider.get_tracer("programs"))
    async with (
        await connected(await new_namespace(home.scene), interceptors=[tracing]) as client,
        Worker(client, task_queue="q", workflows=[Secret], activities=[whisper]),
    ):
        await client.execute_workflow(Secret.run, "traced", id="traced", task_queue="q")
    spans = kept.get_finished_spans()
    assert len({span.context.trace_id for span in spans}) == 1
    assert {"StartWorkflow:Secret", "RunWorkflow:Secret", "RunActivity:whisper"} <= {
        span.name for span in spans
    }
