"""Finding runs over HTTP: queries, counts, search attributes and batches, on every store."""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest

from penstock.engine.operations import batch_operations
from penstock.engine.visibility import run_search
from tests.server.client import Client, Reply

_names = itertools.count(1)
Json = dict[str, Any]


class Desk:
    """An operator in a namespace of the test's own."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    async def start(self, workflow_id: str, workflow_type: str = "order", **fields: Any) -> Reply:
        body = {"workflow_id": workflow_id, "workflow_type": workflow_type, "task_queue": "q"} | fields
        return await self.post("/api/workflows", body)

    async def get(self, target: str) -> Reply:
        return await self._client.get(target, namespace=self.namespace)

    async def post(self, target: str, body: Json) -> Reply:
        return await self._client.post(target, body, namespace=self.namespace)

    async def delete(self, target: str) -> Reply:
        return await self._client.request("DELETE", target, namespace=self.namespace)

    async def find(self, query: str, more: str = "") -> list[str]:
        query = unregistered(query)
        reply = await self.get(f"/api/workflows?query={quote(query)}{more}")
        return [each["workflow_id"] for each in reply.expect(200).json["workflows"]]

    async def count(self, query: str, more: str = "") -> Json:
        query = unregistered(query)
        body: Json = (await self.get(f"/api/workflows/count?query={quote(query)}{more}")).expect(200).json
        return body

    async def batch(self, operation: str, query: str, **fields: Any) -> Json:
        query = unregistered(query)
        body = {"operation": operation, "query": query} | fields
        answer: Json = (await self.post("/api/workflows/batch-operations", body)).expect(200).json
        return answer


def unregistered(query: str) -> str:
    """The query with the attributes of these tests in backquotes: most runs carry them without registration."""
    return re.sub(r"\b(Customer|Amount|Tier|Tags|Free)\b", r"`\1`", query)


@pytest.fixture
async def desk(everywhere: Client) -> Desk:
    namespace = f"desk-{next(_names)}"
    (await everywhere.post("/api/namespaces", {"name": namespace}, role="admin")).expect(201)
    return Desk(everywhere, namespace)


@pytest.fixture
async def orders(desk: Desk) -> Desk:
    """Four open workflows and one that was cancelled."""
    for number in range(5):
        attributes = {"Customer": ("acme", "zenith")[number % 2], "Amount": number * 10}
        memo = {"note": f"n{number}"}
        kind = "refund" if number == 4 else "order"
        started = await desk.start(f"order-{number}", kind, search_attributes=attributes, memo=memo)
        started.expect(201)
    (await desk.post("/api/workflows/order-0/cancel", {})).expect(200)
    return desk


# ── Queries ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("WorkflowType = 'refund'", [4]),
        ("Customer = 'acme' AND Amount >= 20", [4, 2]),
        ("Customer = 'acme' AND NOT Status = 'running'", [0]),
        ("Status = 'cancelled' OR memo.note = 'n3'", [3, 0]),
        ("StartTime > '1h ago' AND TaskQueue = 'q'", [4, 3, 2, 1, 0]),
        ("StartTime < '1h ago'", []),
        ("WorkflowId IN ('order-1', 'order-2', 'order-9')", [2, 1]),
        ("WorkflowId STARTS_WITH 'order-' AND Amount BETWEEN 10 AND 30", [3, 2, 1]),
        ("CloseTime IS NOT NULL", [0]),
        ("`Nobody` = 'x'", []),
    ],
)
async def test_a_query_finds_what_it_says_newest_first(orders: Desk, query: str, found: list[int]) -> None:
    assert await orders.find(query) == [f"order-{number}" for number in found]
    assert (await orders.count(query))["count"] == len(found)


async def test_text_that_is_no_query_is_looked_for_in_ids_as_before(orders: Desk) -> None:
    (await orders.start("other", business_key="a and b")).expect(201)
    assert await orders.find("order-3") == ["order-3"]
    assert await orders.find("a and b") == ["other"]
    assert (await orders.count("rder"))["count"] == 5
    reply = await orders.get(f"/api/workflows?query={'x' * 256}")
    reply.refused_fields("query")


async def test_plain_filters_and_a_query_hold_together(orders: Desk) -> None:
    assert await orders.find("Amount > 5", "&status=running&workflow_type=order") == [
        "order-3",
        "order-2",
        "order-1",
    ]
    assert await orders.find("Customer = 'acme'", "&status=failed") == ["order-0"]


async def test_pages_of_a_query_go_on_where_the_last_one_ended(orders: Desk) -> None:
    seen: list[str] = []
    token = ""
    while True:
        reply = await orders.get(f"/api/workflows?query={quote('`Amount` >= 0')}&page_size=2{token}")
        seen += [each["workflow_id"] for each in reply.expect(200).json["workflows"]]
        if reply.json["next_page_token"] is None:
            break
        token = f"&next_page_token={quote(reply.json['next_page_token'])}"
    assert seen == [f"order-{number}" for number in range(4, -1, -1)]


async def test_a_wrong_query_is_told_where_and_the_nearest_field(desk: Desk) -> None:
    reply = (await desk.get(f"/api/workflows?query={quote('WorkflowTyp = 1')}")).refused(422, "invalid_query")
    assert reply.json["position"] == 1
    assert reply.json["expected"].startswith("WorkflowType;")
    for target in ("/api/workflows", "/api/workflows/count"):
        (await desk.get(f"{target}?query=a%3D")).refused(422, "invalid_query")


INJECTIONS = (
    "Customer = 'x'; DROP TABLE runs; --'",
    "Customer = 'x' OR 1=1",
    "Customer = 'x' UNION SELECT 1",
    "`Customer\"; DROP TABLE runs` = 'x'",
    "`x' OR '1'='1` = 'y'",
    "memo.`a') OR 1=1 --` = 'x'",
    "Customer = '%' OR Customer STARTS_WITH '%' OR Customer STARTS_WITH '_'",
    "Customer = '$1' OR Customer = '?1' OR Customer = ':name' OR Customer = '{rows}'",
    "WorkflowId = 'order-1'' OR ''1''=''1'",
)


@pytest.mark.parametrize("query", INJECTIONS)
async def test_nothing_that_is_said_in_a_query_reaches_the_database_as_words(
    orders: Desk, query: str
) -> None:
    reply = await orders.get(f"/api/workflows?query={quote(query)}")
    if reply.status == 200:
        assert reply.json["workflows"] == []
    else:
        reply.refused(422, "invalid_query")
    assert len(await orders.find("order")) == 5


async def test_counts_are_told_by_how_runs_stand(orders: Desk) -> None:
    counted = await orders.count("Amount >= 0", "&group_by=status")
    assert counted == {
        "count": 5,
        "complete": True,
        "at_least": None,
        "groups": {"cancelled": 1, "pending": 4},
    }


async def test_a_count_that_would_take_too_long_says_how_many_there_are_at_least(
    orders: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_search, "COUNT_PORTION", 2)
    monkeypatch.setattr(run_search, "COUNT_PORTIONS_MAX", 2)
    counted = await orders.count("WorkflowId STARTS_WITH 'order'")
    assert counted == {"count": 4, "complete": False, "at_least": 4}


# ── Search attributes ───────────────────────────────────────────────────────────────────────────────────


async def register(desk: Desk, name: str, kind: str) -> Reply:
    return await desk.post("/api/search-attributes", {"name": name, "type": kind})


async def test_search_attributes_are_registered_listed_and_deleted(desk: Desk) -> None:
    created = (await register(desk, "Amount", "double")).expect(201)
    assert created.json == {"name": "Amount", "type": "double", "outcome": "created"}
    listed = (await desk.get("/api/search-attributes")).expect(200).json
    assert listed["custom_attributes"] == {"Amount": "double"}
    assert {"WorkflowType", "StartTime", "BuildId"} <= listed["system_attributes"].keys()
    assert listed["system_attributes"]["StartTime"] == "datetime"
    refused = (await register(desk, "Amount", "int")).refused(409, "attribute_already_exists")
    assert (refused.json["name"], refused.json["type"]) == ("Amount", "double")
    deleted = (await desk.delete("/api/search-attributes/Amount")).expect(200)
    assert deleted.json == {"name": "Amount", "outcome": "deleted"}
    (await desk.delete("/api/search-attributes/Amount")).refused(404, "attribute_not_found")
    (await register(desk, "Amount", "int")).expect(201)


async def test_search_attributes_belong_to_their_namespace_and_go_with_it(
    everywhere: Client, desk: Desk
) -> None:
    (await register(desk, "Amount", "double")).expect(201)
    other = Desk(everywhere, "quiet")
    assert "Amount" not in (await other.get("/api/search-attributes")).json["custom_attributes"]
    for _ in range(2):
        gone = await everywhere.request("DELETE", f"/api/namespaces/{desk.namespace}", role="admin")
        gone.expect(200)
        made = await everywhere.post("/api/namespaces", {"name": desk.namespace}, role="admin")
        made.expect(201)
        assert (await desk.get("/api/search-attributes")).json["custom_attributes"] == {}


@pytest.mark.parametrize("name", ["Status", "WorkflowType", "memo", "and", "ORDER"])
async def test_names_that_queries_need_cannot_be_registered(desk: Desk, name: str) -> None:
    (await register(desk, name, "keyword")).refused(409, "name_reserved")


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "é", "a" * 129, "a\n"])
async def test_names_that_are_no_names_are_refused(desk: Desk, name: str) -> None:
    (await register(desk, name, "keyword")).refused_fields("name")


async def test_a_registered_type_is_held_at_start(desk: Desk) -> None:
    for name, kind in (("Amount", "int"), ("Due", "datetime")):
        (await register(desk, name, kind)).expect(201)
    wrong = await desk.start("w1", search_attributes={"Amount": "much", "Due": "soon", "Free": "x"})
    wrong.refused_fields("search_attributes.Amount", "search_attributes.Due")
    assert await desk.find("w1") == []
    right = {"Amount": 7, "Due": "2026-01-01T00:00:00Z", "Free": {"any": 1}["any"]}
    (await desk.start("w1", search_attributes=right)).expect(201)
    assert await desk.find("Amount = 7 AND Due < '2026-01-02' AND Free = 1") == ["w1"]
    for query in ("Amount = 'much'", "Due = 7"):
        (await desk.get(f"/api/workflows?query={quote(query)}")).refused(422, "invalid_query")


async def test_a_misspelt_registered_attribute_is_told(desk: Desk) -> None:
    (await register(desk, "CustomerName", "keyword")).expect(201)
    query = quote("CustomerNmae = 'x'")
    reply = (await desk.get(f"/api/workflows?query={query}")).refused(422, "invalid_query")
    assert reply.json["expected"].startswith("CustomerName;")


@pytest.mark.parametrize("target", ["/api/workflows", "/api/workflows/count"])
async def test_an_unregistered_attribute_is_refused_instead_of_counted_as_zero(
    orders: Desk, target: str
) -> None:
    (await register(orders, "Customer", "keyword")).expect(201)
    for misspelt in ("custmer", "Costumers"):
        query = quote(f"{misspelt} = 'acme'")
        reply = (await orders.get(f"{target}?query={query}")).refused(422, "invalid_query")
        assert reply.json["expected"].startswith("Customer;"), reply.json
    body = {"operation": "cancel", "query": "custmer = 'acme'"}
    (await orders.post("/api/workflows/batch-operations", body)).refused(422, "invalid_query")


# ── Batches ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_dry_run_counts_and_shows_what_would_be_acted_on_and_does_nothing(orders: Desk) -> None:
    told = await orders.batch("terminate", "Customer = 'acme'", dry_run=True)
    assert (told["dry_run"], told["matched"], told["complete"], told["acted"]) == (True, 2, True, 0)
    assert [each["workflow_id"] for each in told["sample"]] == ["order-4", "order-2"]
    assert await orders.find("Status = 'running'") == ["order-4", "order-3", "order-2", "order-1"]


@pytest.mark.parametrize(("operation", "status"), [("cancel", "cancelled"), ("terminate", "terminated")])
async def test_a_batch_ends_the_open_runs_that_fit_and_only_those(
    orders: Desk, operation: str, status: str
) -> None:
    told = await orders.batch(operation, "Customer = 'acme'", reason="wild")
    assert (told["matched"], told["acted"], told["skipped"], told["failed"]) == (2, 2, 0, 0)
    assert told["next_token"] is None
    assert set(await orders.find(f"Status = '{status}'")) == {"order-4", "order-2"} | (
        {"order-0"} if status == "cancelled" else set()
    )
    again = await orders.batch(operation, "Customer = 'acme'", reason="wild")
    assert (again["matched"], again["acted"]) == (0, 0)


async def test_a_batch_goes_on_by_its_token_and_leaves_what_came_later(orders: Desk) -> None:
    first = await orders.batch("cancel", "Amount >= 0", max_runs=3)
    assert (first["acted"], first["next_token"] is None) == (3, False)
    (await orders.start("order-9", search_attributes={"Amount": 1})).expect(201)
    second = await orders.batch("cancel", "Amount >= 0", max_runs=3, token=first["next_token"])
    assert (second["acted"], second["next_token"]) == (1, None)
    assert await orders.find("Status = 'running'") == ["order-9"]


async def test_a_batch_signal_reaches_each_run_once_for_a_request_id(orders: Desk) -> None:
    for _ in range(2):
        told = await orders.batch(
            "signal", "Customer = 'acme'", signal_name="hurry", input=[1], request_id="b1"
        )
        assert (told["acted"], told["failed"], told["request_id"]) == (2, 0, "b1")
    described = (await orders.get("/api/workflows/order-4")).expect(200).json
    assert described["pending"]["signals"] == 1


async def test_a_run_that_ended_meanwhile_is_skipped(orders: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch_operations._one

    async def late(ctx: Any, batch: Any, run: Any) -> Any:
        if run.workflow_id == "order-4":
            (await orders.post("/api/workflows/order-4/cancel", {})).expect(200)
        return await one(ctx, batch, run)

    monkeypatch.setattr(batch_operations, "_one", late)
    told = await orders.batch("cancel", "Customer = 'acme'")
    assert (told["matched"], told["acted"], told["skipped"], told["failed"]) == (2, 1, 1, 0)


async def test_runs_that_refuse_are_told_with_their_reasons_and_the_others_are_reached(
    everywhere: Client, orders: Desk
) -> None:
    contracts = {"order": {"signals": ["hurry"]}, "refund": {"signals": ["stop"]}}
    worker = {
        "worker_id": "w",
        "task_queue": "q",
        "runtime": "python",
        "workflow_command_contracts": contracts,
    }
    worker |= {"supported_workflow_types": ["order", "refund"]}
    said = await everywhere.post("/api/worker/register", worker, role="worker", namespace=orders.namespace)
    said.expect(201)
    told = await orders.batch("signal", "Customer = 'acme'", signal_name="hurry")
    assert (told["matched"], told["acted"], told["skipped"], told["failed"]) == (2, 1, 0, 1)
    (failure,) = told["failures"]
    assert (failure["workflow_id"], failure["reason"]) == ("order-4", "unknown_signal")
    assert failure["message"]


BAD: tuple[tuple[Json, str], ...] = (
    ({"operation": "delete", "query": "Amount = 1"}, "operation"),
    ({"operation": "cancel"}, "query"),
    ({"operation": "cancel", "query": ""}, "query"),
    ({"operation": "cancel", "query": "Amount = 1", "max_runs": 501}, "max_runs"),
    ({"operation": "cancel", "query": "Amount = 1", "quary": "x"}, "quary"),
    ({"operation": "signal", "query": "Amount = 1"}, "signal_name"),
    ({"operation": "cancel", "query": "Amount = 1", "signal_name": "x"}, "signal_name"),
)


@pytest.mark.parametrize(("body", "field"), BAD)
async def test_a_batch_that_is_not_clear_does_nothing(orders: Desk, body: Json, field: str) -> None:
    (await orders.post("/api/workflows/batch-operations", body)).refused_fields(field)
    assert len(await orders.find("Status = 'running'")) == 4


@pytest.mark.parametrize("query", ["order", "Amount >", "Status = 'gone'", "Amount = 1 ORDER BY Amount"])
async def test_a_batch_takes_queries_only_and_never_part_of_an_id(orders: Desk, query: str) -> None:
    body = {"operation": "terminate", "query": query}
    (await orders.post("/api/workflows/batch-operations", body)).refused(422, "invalid_query")
    assert len(await orders.find("Status = 'running'")) == 4


async def test_a_token_that_nobody_gave_out_is_refused(orders: Desk) -> None:
    body = {"operation": "cancel", "query": "Amount >= 0", "token": "!"}
    (await orders.post("/api/workflows/batch-operations", body)).expect(400, "invalid_page_token")


async def test_only_operators_find_and_act(everywhere: Client) -> None:
    asked: tuple[Callable[[], Awaitable[Reply]], ...] = (
        lambda: everywhere.get("/api/workflows/count", role="worker"),
        lambda: everywhere.get("/api/search-attributes", role="worker"),
        lambda: everywhere.post("/api/workflows/batch-operations", {}, role="worker"),
    )
    for ask in asked:
        (await ask()).expect(403, "forbidden")
