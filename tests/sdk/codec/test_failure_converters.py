"""Failure converters: exceptions that are sent and received as others, and failures whose text is hidden."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import DataConverter, Worker, activity, workflow
from penstock.failures import (
    ActivityError,
    ActivityFailureError,
    ApplicationError,
    NotOnThisEngineError,
    WorkflowFailureError,
    error_from,
    failure_of,
)
from penstock.sdk.converters import FailureConverter, ZlibCodec
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import connected, new_namespace


class OutOfStock(Exception):
    """An exception of a shop, with a value of its own."""

    def __init__(self, article: str) -> None:
        super().__init__(f"{article} is out of stock")
        self.article = article


class ShopFailures(FailureConverter):
    """Sends the exceptions of the shop with their values, and restores them."""

    def to_failure(self, error: BaseException) -> BaseException:
        if isinstance(error, OutOfStock):
            return ApplicationError(str(error), error.article, type="OutOfStock", non_retryable=True)
        return error

    def from_failure(self, error: Exception) -> BaseException:
        if isinstance(error, ApplicationError) and error.type == "OutOfStock":
            return OutOfStock(*error.details)
        return error


@activity.defn
async def take(article: str) -> None:
    try:
        raise KeyError(article)
    except KeyError as missing:
        raise OutOfStock(article) from missing


@workflow.defn(failure_exception_types=[OutOfStock])
class Shopping:
    @workflow.run
    async def run(self, article: str) -> str:
        try:
            await workflow.execute_activity(take, article)
        except ActivityError as error:
            if not isinstance(error.cause, OutOfStock):
                raise
            raise OutOfStock(f"{error.cause.article}s") from error
        return "taken"


async def test_exceptions_of_an_application_arrive_as_themselves(cluster: Cluster) -> None:
    scene = await new_namespace(cluster)
    converter = DataConverter(failure_converter=ShopFailures())
    async with (
        await connected(scene, data_converter=converter) as client,
        Worker(client, task_queue="q", workflows=[Shopping], activities=[take]),
    ):
        handle = await client.start_workflow(Shopping.run, "pen", id="shopping", task_queue="q")
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, OutOfStock)
        assert failed.value.cause.article == "pens"
        alone = await client.start_activity(take, "ink", id="ink", task_queue="q")
        with pytest.raises(ActivityFailureError) as ended:
            await alone.result()
        assert isinstance(ended.value.cause, OutOfStock)


def test_what_a_converter_leaves_alone_is_sent_as_it_is() -> None:
    plain, shop = DataConverter(), DataConverter(failure_converter=ShopFailures())
    error = ValueError("as it is")
    assert failure_of(error, plain) == failure_of(error, shop)
    assert shop.failure_converter.is_plain is False
    assert plain.failure_converter.is_plain is True


def test_a_hidden_failure_has_its_text_in_a_payload_and_is_readable_with_the_codec() -> None:
    converter = DataConverter(
        codecs=[ZlibCodec(min_size=0)], failure_converter=FailureConverter(encode_common_attributes=True)
    )
    try:
        raise ValueError("secret " * 20) from KeyError("deeper secret")
    except ValueError as raised:
        body = failure_of(raised, converter)
    assert "secret" not in json.dumps(body)
    assert body["message"] == body["cause"]["message"] == "Encoded failure"
    found = error_from(body, converter)
    assert "secret secret" in str(found)
    assert found.stack_trace is not None
    assert "test_a_hidden_failure" in found.stack_trace
    assert "deeper secret" in str(found.__cause__)


async def test_a_server_does_not_see_the_text_of_hidden_failures(cluster: Cluster) -> None:
    scene = await new_namespace(cluster)
    converter = DataConverter(
        codecs=[ZlibCodec(min_size=0)], failure_converter=HiddenShopFailures(encode_common_attributes=True)
    )
    async with (
        await connected(scene, data_converter=converter) as client,
        Worker(client, task_queue="q", workflows=[Shopping], activities=[take]),
    ):
        handle = await client.start_workflow(Shopping.run, "pen", id="shopping", task_queue="q")
        with pytest.raises(WorkflowFailureError, match="pens is out of stock"):
            await handle.result()
        history = await handle.fetch_history()
    assert "out of stock" not in json.dumps(history.events)
    assert "Encoded failure" in json.dumps(history.events)


class HiddenShopFailures(ShopFailures):
    """The same, without texts."""


async def test_a_temporal_cluster_refuses_a_failure_converter_by_name() -> None:
    from penstock import Client

    converter = DataConverter(failure_converter=ShopFailures())
    with pytest.raises(NotOnThisEngineError, match="a failure converter"):
        await Client.connect("temporal://127.0.0.1:9/default", data_converter=converter, lazy=True)


# Input that cannot be read


@workflow.defn(failure_exception_types=[Exception])
class Strict:
    """Fails for any error, also of its arguments."""

    def __init__(self) -> None:
        self.seen = 0

    @workflow.run
    async def run(self, number: int) -> int:
        return number

    @workflow.signal
    def note(self) -> None:
        self.seen += 1


async def test_a_workflow_that_fails_by_any_error_fails_by_arguments_that_it_cannot_read(
    cluster: Cluster,
) -> None:
    scene = await new_namespace(cluster)
    async with await connected(scene) as client:
        first: Any = await client.start_workflow("Strict", "text", id="a", task_queue="q")
        await first.signal("note")
        second: Any = await client.start_workflow("Strict", args=[1, 2], id="b", task_queue="q")
        async with Worker(client, task_queue="q", workflows=[Strict]):
            with pytest.raises(WorkflowFailureError, match="int is expected"):
                await first.result()
            with pytest.raises(WorkflowFailureError, match="takes 1 arguments"):
                await second.result()
