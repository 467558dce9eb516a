"""Every number on a page is the API's answer of the same moment."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from penstock.server.dashboard import formats
from penstock.server.dashboard.pages import PAGES as ALL_PAGES
from penstock.server.dashboard.view import View
from penstock.server.operations.table import OPERATIONS
from tests.server.client import Client
from tests.server.dashboard.conftest import NOW_MS, QUEUE
from tests.server.dashboard.visitors import Visitor

PAGES = (
    "",
    "/queues",
    f"/queues/{QUEUE}",
    "/why/charge-3",
    "/limits",
    "/changes",
    "/system",
    "/runs",
    "/runs/order-1",
    "/workers",
    "/workers/render-1",
    "/tasks",
    "/tasks/charge-1",
    "/schedules",
    "/schedules/nightly",
)
WITHOUT_COUNTS = (
    "/schedules/nightly",
    "/limits",
    "/changes",
    "/system",
    "/workers",
    "/workers/render-1",
    "/tasks",
    "/tasks/charge-1",
)
"""Pages of instants and names; what they are made of is compared below."""
_PATHS = {each.name: each.path for each in OPERATIONS}


def _fields(page: str) -> list[tuple[str, str]]:
    """The addressed numbers of a page: where the API has it, and what is shown."""
    found = re.findall(
        r'data-field="([^"]+)"[^>]*>(.*?)</(?:span|td|dd|b|strong|time|p|th|a)>', page, re.DOTALL
    )
    return [
        (html.unescape(address), html.unescape(re.sub("<[^>]*>", "", text)).strip())
        for address, text in found
    ]


async def _answer(api: Client, address: str) -> Any:
    operation, _, rest = address.partition(":")
    if operation == "why":
        body = (await api.get("/api/activities/charge-3/why")).expect(200).json
        return _at(body, rest)
    if operation == "list_task_queues":
        queue, kind, name = rest.split(":")
        queues = (await api.get("/api/task-queues")).expect(200).json["task_queues"]
        (found,) = (each for each in queues if each["name"] == queue)
        return found["stats"][f"{kind}_tasks"][name]
    run_id = (await api.get("/api/workflows/order-1")).expect(200).json["run_id"]
    values = _PARAMETERS | {"run_id": run_id}
    target = re.sub(r"\{(\w+)\}", lambda found: quote(values[found[1]]), _PATHS[operation])
    return _at((await api.get(target, role="admin")).expect(200).json, rest)


def _at(body: Any, path: str) -> Any:
    for part in path.split("."):
        body = body[int(part)] if isinstance(body, list) else body[part]
    return body


@pytest.mark.parametrize("page", PAGES)
async def test_every_number_on_a_page_is_the_answer_of_the_api(api: Client, somebody: Any, page: str) -> None:
    await _start_more(api)
    admin: Visitor = somebody()
    await admin.sign_in("admin-secret")
    text = await admin.page(f"/ui{page}")
    shown = [each for each in _fields(text) if each[0] != "as_of"]
    assert page in WITHOUT_COUNTS or shown, "a page of numbers addresses none"
    for address, value in shown:
        answer = await _answer(api, address)
        expected = answer if isinstance(answer, str) else formats.count(answer)
        assert value == expected, f"{address} is {answer!r} in the API and {value!r} on the page"


async def test_a_page_says_of_which_moment_it_is(api: Client, operator: Visitor) -> None:
    text = await operator.page(f"/ui/queues/{QUEUE}")
    answer = (await api.get("/api/metrics/series?queue=payments")).json["as_of"]
    assert f'datetime="{answer}" data-field="as_of"' in text


async def test_the_waiting_tasks_stand_in_the_order_of_the_api(api: Client, operator: Visitor) -> None:
    text = await operator.page(f"/ui/queues/{QUEUE}")
    tasks = (await api.get(f"/api/task-queues/{QUEUE}/waiting")).expect(200).json["tasks"]
    assert [each["ahead"] for each in tasks] == [0, 1, 2]
    assert re.findall(r'<tr id="wait-([^"]+)"', text) == [each["task_id"] for each in tasks]


async def test_a_task_that_no_worker_takes_has_no_expected_start(api: Client, operator: Visitor) -> None:
    """It was promised within a second, because no limit held it back."""
    body = {"activity_id": "alone", "activity_type": "export_ledger", "task_queue": "exports"}
    (await api.post("/api/activities", body)).expect(201)
    (task,) = (await api.get("/api/task-queues/exports/waiting")).expect(200).json["tasks"]
    assert task["expected_start"]["from"] is None
    assert "No active worker" in task["expected_start"]["unknown_because"]
    text = await operator.page("/ui/queues/exports")
    assert "no active worker" in text
    assert 'title="No active worker with slots takes it."' in text


async def test_a_queue_whose_limits_somebody_set_is_listed_while_it_is_idle(
    api: Client, operator: Visitor
) -> None:
    (await api.patch("/api/task-queues/asleep/limits", {"max_active_leases_per_queue": 3})).expect(200)
    assert "/ui/queues/asleep" in await operator.page("/ui/limits")


_PARAMETERS = {
    "name": QUEUE,
    "key": "acme",
    "id": "charge-3",
    "worker_id": "render-1",
    "activity_id": "charge-1",
    "schedule_id": "nightly",
    "workflow_id": "order-1",
    "event": "1",
    "stream": "tokens",
}
"""What the pages of the table are asked about; a page with another parameter fails until it has a value here."""
_ACTS = {
    "/builds": "drain",
    "/schedules": "pause",
    "/runs": "cancel",
    "/tasks": "pause",
    "/change-sets": "apply",
}
_QUERIES = {
    "/limits/change": "?scope=namespace:default",
    "/run-limits/change": "?scope=namespace",
    "/find": "?q=charge-1",
    "/runs/suggest": "?q=Sta",
}


@pytest.mark.parametrize("path", [page.path for page in ALL_PAGES])
async def test_every_page_is_made_of_nothing_but_answers_of_the_api(
    api: Client, somebody: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a template shows comes from these bodies, and each is what the API answers at that moment."""
    run_id = await _start_more(api)
    admin: Visitor = somebody()
    await admin.sign_in("admin-secret")
    reads: list[tuple[str, Mapping[str, str], Mapping[str, str], Any]] = []
    read = View.read

    async def recorded(
        view: View, operation: str, query: Mapping[str, str] | None = None, **at: str
    ) -> dict[str, Any]:
        body = await read(view, operation, query, **at)
        reads.append((operation, query or {}, at, msgspec.json.decode(msgspec.json.encode(body))))
        return body

    monkeypatch.setattr(View, "read", recorded)
    act = next((act for prefix, act in _ACTS.items() if path.startswith(prefix)), "")
    values = _PARAMETERS | {"run_id": run_id, "act": act, "change_set_id": await _propose(api)}
    target = re.sub(r"\{(\w+)\}", lambda found: quote(values[found[1]], safe=""), path)
    text = await admin.page(f"/ui{target}{_QUERIES.get(path, '')}")
    monkeypatch.undo()
    assert reads or path in ("/find", "/runs/suggest"), "a page that reads nothing shows nothing"
    for operation, query, at, body in reads:
        found = re.sub(r"\{(\w+)\}", lambda part, at=at: quote(at[part[1]], safe=""), _PATHS[operation])  # type: ignore[misc]
        answer = (await api.get(f"{found}?{urlencode(query)}", role="admin")).expect(200).json
        # Over HTTP some answers are wrapped in what all of them have in common.
        assert body == {name: answer.get(name) for name in body}, (
            f"{path} was made from another answer of {operation} than the API gives"
        )
    told = _told_by([*(each[3] for each in reads), *(each[2] for each in reads)])
    unheard = {each for each in _numbers(text) if each not in told}
    assert unheard <= _DERIVED.get(path, set()), f"{path} shows numbers that no answer has: {unheard}"


_RUN_PARTS = {"0%", "100%"}
_DERIVED = {
    "/runs": {"0"},  # how many are selected
    "/runs/{workflow_id}": _RUN_PARTS,
    "/runs/{workflow_id}/{run_id}": _RUN_PARTS,
}
"""Numbers that an answer does not have: parts of its whole, and what the browser counts."""
_UNIT = r"(?: (?:ms|s|min|h|d)\b|%)?"
_NUMBER = re.compile(rf"(?<![\w.:,-])(?:\d{1, 3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w:-]){_UNIT}")


def _numbers(page: str) -> set[str]:
    """The numbers in cells, facts and sentences of a page, with their units."""
    main = page.partition("<main")[2].partition("</main>")[0] or page
    cells = re.findall(r"<(td|dd|p|b|strong)\b[^>]*>(.*?)</\1>", main, re.DOTALL)
    texts = [html.unescape(re.sub("<[^>]*>", " ", inner)) for _, inner in cells]
    return {found for text in texts for found in _NUMBER.findall(text)}


def _told_by(body: object) -> set[str]:
    """The numbers of an answer, as the filters of templates write them."""
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    found = {number for each in inner for number in _told_by(each)}
    return found.union(*(_NUMBER.findall(text) for text in _writings(body)))


def _writings(value: object) -> Iterator[str]:
    """How the filters write a value."""
    if isinstance(value, list):
        yield formats.count(len(value))
    elif isinstance(value, str):
        yield value
        if formats.moment_ms(value) is not None:
            yield from (write(value, NOW_MS) for write in (formats.ago, formats.clock, formats.until))
    elif isinstance(value, int | float):
        yield str(value)
        yield formats.duration(value / 1000)
        for write in (formats.count, formats.duration, formats.percent, formats.per_minute):
            yield write(value)


async def _start_more(api: Client) -> str:
    """A run and a schedule, beside what the queue is furnished with."""
    start = {"workflow_id": "order-1", "workflow_type": "orders", "task_queue": QUEUE, "input": ["x"]}
    run_id = (await api.post("/api/workflows", start)).expect(201).json["run_id"]
    said = {"items": [{"payload": "Hello"}]}
    (await api.post(f"/api/workflows/order-1/runs/{run_id}/streams/tokens/items", said)).expect(200)
    schedule = {
        "schedule_id": "nightly",
        "spec": {"cron_expressions": ["0 3 * * *"]},
        "action": {"workflow_type": "orders", "task_queue": QUEUE},
    }
    (await api.post("/api/schedules", schedule)).expect(201)
    return str(run_id)


async def _propose(api: Client) -> str:
    """A change set that waits for whoever applies it."""
    body = {"reason": "slow database", "queues": {QUEUE: {"max_active_leases": 2}}}
    return str((await api.post("/api/change-sets", body)).expect(201).json["change_set_id"])
