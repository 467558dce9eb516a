"""Lost replies to COMMIT: the outcome is reported as unknown, and repeating the request resolves it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.checker import check
from tests.faults.deadlines import until
from tests.faults.load import Load, as_bytes, start_request
from tests.faults.lossy_proxy import swallowing_proxy
from tests.faults.observations import Kind, Start
from tests.faults.servers import Doomed, serving

pytestmark = pytest.mark.faults


async def test_a_start_whose_commit_got_no_reply_is_answered_honestly_and_exists_once(
    tmp_path: Path, postgres_database: str
) -> None:
    async with swallowing_proxy(postgres_database) as proxy:
        doomed = Doomed(tmp_path, proxy.url)
        async with serving(doomed), Load([doomed.url]) as load:
            start = Start(Kind.WORKFLOW, "lost-w1", sends=1)
            load.record.starts.append(start)
            path, body = start_request(start)
            proxy.of, proxy.to_swallow = start.id.encode(), 1
            status, answer = await load.client.once(
                "POST", path, as_bytes(body), role="operator", key=f"key-{start.id}"
            )
            assert (status, answer["reason"], answer["outcome"]) == (503, "outcome_unknown", "unknown")
            status, answer = await load.start(start)
            assert (status, answer["deduplicated"]) == (200, True)
            await load.put_to_work()
            found = await load.finished()
    assert check(load.record, found) == []


async def test_commits_without_replies_under_load_lose_and_double_nothing(
    tmp_path: Path, postgres_database: str
) -> None:
    async with swallowing_proxy(postgres_database) as proxy:
        doomed = Doomed(tmp_path, proxy.url)
        async with serving(doomed), Load([doomed.url]) as load:
            await load.put_to_work()
            starting = asyncio.create_task(load.start_many("r", workflows=30, activities=30))
            for _ in range(8):
                proxy.to_swallow = 1
                await until("a reply is swallowed", lambda: proxy.to_swallow == 0)
            await starting
            await load.start_again()
            found = await load.finished()
    assert check(load.record, found) == []
    assert (load.record.acknowledged, proxy.swallowed) == (60, 8)
