"""All keys of a queue: by backlog, page by page, and those whose name contains a text."""

from __future__ import annotations

import base64
import itertools
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.server.client import Client
from tests.server.matching.test_backlogs import configure, start, take

NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"keys-{next(NUMBERS)}"


async def listed(client: Client, name: str, **query: Any) -> dict[str, Any]:
    body: dict[str, Any] = (
        (await client.get(f"/api/task-queues/{name}/keys?{urlencode(query)}")).expect(200).json
    )
    return body


async def names(client: Client, name: str, **query: Any) -> list[str]:
    return [each["fairness_key"] for each in (await listed(client, name, **query))["keys"]]


async def test_a_queue_that_nobody_used_has_no_keys(everywhere: Client, name: str) -> None:
    body = await listed(everywhere, name)
    assert (body["keys"], body["next_page_token"]) == ([], None)


async def test_pages_together_hold_every_key_once_by_backlog(everywhere: Client, name: str) -> None:
    for number in range(25):
        await start(everywhere, name, 2 if number >= 20 else 1, fairness_key=f"käse {number:02}")
    await configure(everywhere, name, keys={f"idle-{number}": {"max_running": 2} for number in range(6)})
    pages, query = [], {"page_size": 5}
    while True:
        body = await listed(everywhere, name, **query)
        pages.append(body["keys"])
        if body["next_page_token"] is None:
            break
        query["next_page_token"] = body["next_page_token"]
    assert [len(each) for each in pages] == [5] * 6 + [1]
    found = [each for page in pages for each in page]
    assert [each["backlog_count"] for each in found] == [2] * 5 + [1] * 20 + [0] * 6
    assert [each["fairness_key"] for each in found] == [
        *(f"käse {number:02}" for number in (*range(20, 25), *range(20))),
        *(f"idle-{number}" for number in range(6)),
    ]


async def test_a_page_that_ends_with_the_last_backlog_is_followed_by_the_other_keys(
    everywhere: Client, name: str
) -> None:
    await start(everywhere, name, fairness_key="busy")
    await configure(everywhere, name, keys={"idle": {"paused": True}})
    first = await listed(everywhere, name, page_size=1)
    second = await listed(everywhere, name, page_size=1, next_page_token=first["next_page_token"])
    assert [first["keys"][0]["fairness_key"], second["keys"][0]["fairness_key"]] == ["busy", "idle"]
    assert second["next_page_token"] is None


async def test_a_search_finds_its_text_as_it_is_in_every_key(everywhere: Client, name: str) -> None:
    for key in ("a_b", "axb", "100%", "100 km", "ACME", "acme-2"):
        await start(everywhere, name, fairness_key=key)
    await configure(everywhere, name, keys={"acme-idle": {"max_running": 1}, "other": {"max_running": 1}})
    assert await names(everywhere, name, search="_") == ["a_b"]
    assert await names(everywhere, name, search="%") == ["100%"]
    assert await names(everywhere, name, search="acme") == ["acme-2", "acme-idle"]
    assert await names(everywhere, name, search="'") == []


async def test_a_key_shows_its_weight_its_own_cap_and_rate_and_what_it_runs(
    everywhere: Client, name: str
) -> None:
    await start(everywhere, name, 3, fairness_key="acme")
    settings = {"max_running": 2, "rps_limit": 40.0}
    await configure(everywhere, name, keys={"acme": settings}, set_fairness_weight_overrides={"quiet": 3})
    assert await take(everywhere, name) == 1
    acme, quiet = (await listed(everywhere, name))["keys"]
    shown = ("backlog_count", "running", "max_running", "rps_limit", "weight", "share_asked", "share_got")
    assert [acme[each] for each in shown] == [2, 1, 2, 40.0, 1.0, 1.0, 1.0]
    assert [quiet[each] for each in shown] == [0, 0, None, None, 3.0, None, None]
    assert (quiet["weight_source"], quiet["state"], quiet["priority"]) == ("override", "ready", None)


@pytest.mark.parametrize("token", ["x", "MTo=", base64.b64encode(b"1:-1:a").decode(), "MTo5OiUwMA=="])
async def test_a_token_of_no_page_is_refused(everywhere: Client, name: str, token: str) -> None:
    query = urlencode({"next_page_token": token})
    reply = await everywhere.get(f"/api/task-queues/{name}/keys?{query}")
    reply.expect(400, "invalid_page_token")


@pytest.mark.parametrize("query", ["search=%00", "page_size=0", "page_size=101", "search=" + "x" * 65])
async def test_a_parameter_that_is_none_is_refused(everywhere: Client, name: str, query: str) -> None:
    (await everywhere.get(f"/api/task-queues/{name}/keys?{query}")).expect(422, "validation_failed")
