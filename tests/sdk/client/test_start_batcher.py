"""Concurrent starts share requests, and each gets its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.sdk.clients import start_batcher
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.start_batcher import OPEN_MAX, StartBatcher
from penstock.sdk.failures import (
    InvalidRequest,
    ServerUnavailable,
    Unauthorized,
    Unreachable,
    WorkflowAlreadyStartedError,
    refusal,
)
from penstock.sdk.workflow import defn, run

Json = dict[str, Any]


class Played:
    """A transport whose requests are answered by the test, one by one."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Json, asyncio.Future[Json]]] = []
        self._seen = asyncio.Condition()

    async def control(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        idempotent: bool,
        timeout_s: float | None = None,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        assert method == "POST"
        assert idempotent, "a start has a key of its own, and may be sent again"
        assert body is not None
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        keyed = body if idempotency_key is None else body | {"idempotency_key": idempotency_key}
        async with self._seen:
            self.asked.append((path, keyed, answer))
            self._seen.notify_all()
        return await answer

    async def work(self, *_: Any, **__: Any) -> Json:
        raise AssertionError("no worker here")

    async def close(self) -> None: ...

    async def requests(self, count: int) -> list[tuple[str, Json, asyncio.Future[Json]]]:
        """The first `count` requests, once there are that many."""
        async with self._seen:
            await self._seen.wait_for(lambda: len(self.asked) >= count)
        return self.asked[:count]


async def _busy(count: int) -> tuple[Played, list[asyncio.Task[Json]]]:
    """Starts of which the first are in flight, and the others are queued behind them."""
    transport = Played()
    starts = StartBatcher(transport, "activities")
    sent = [asyncio.ensure_future(starts.send({"n": n}, f"key-{n}")) for n in range(count)]
    await transport.requests(OPEN_MAX)
    await asyncio.sleep(0)
    return transport, sent


def _outcomes(items: list[Json], status: int = 201) -> Json:
    return {"items": [{"http_status": status, "n": item["n"]} for item in items]}


async def test_a_start_that_meets_nobody_goes_alone_at_once() -> None:
    transport = Played()
    sent = asyncio.ensure_future(StartBatcher(transport, "workflows").send({"n": 1}, "key"))
    [(path, body, answer)] = await transport.requests(1)
    assert (path, body) == ("/workflows", {"n": 1, "idempotency_key": "key"})
    answer.set_result({"n": 1})
    assert await sent == {"n": 1}


async def test_starts_that_gathered_go_together_when_a_request_ends_and_each_is_told_its_own() -> None:
    transport, sent = await _busy(OPEN_MAX + 5)
    assert [path for path, _, _ in transport.asked] == ["/activities"] * OPEN_MAX
    transport.asked[0][2].set_result({"n": 0})
    path, body, answer = (await transport.requests(OPEN_MAX + 1))[-1]
    assert path == "/activities/batch"
    assert [item["idempotency_key"] for item in body["items"]] == [f"key-{OPEN_MAX + n}" for n in range(5)]
    answer.set_result(_outcomes(body["items"]))
    assert [(await each)["n"] for each in sent[OPEN_MAX:]] == list(range(OPEN_MAX, OPEN_MAX + 5))
    for n in range(1, OPEN_MAX):
        transport.asked[n][2].set_result({"n": n})
    assert [(await each)["n"] for each in sent[:OPEN_MAX]] == list(range(OPEN_MAX))
    assert len(transport.asked) == OPEN_MAX + 1


async def test_no_request_carries_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_batcher, "BATCH_ITEMS_MAX", 3)
    transport, sent = await _busy(OPEN_MAX + 5)
    for answered in range(OPEN_MAX + 2):
        path, body, answer = (await transport.requests(answered + 1))[answered]
        answer.set_result(_outcomes(body["items"]) if path.endswith("batch") else body)
    assert [(await each)["n"] for each in sent] == list(range(OPEN_MAX + 5))
    assert [len(body.get("items", "1")) for _, body, _ in transport.asked] == [1] * OPEN_MAX + [3, 2]


async def test_one_that_is_large_does_not_make_a_request_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_batcher, "BATCH_BYTES_MAX", 100)
    transport = Played()
    starts = StartBatcher(transport, "activities")
    sizes = [1] * OPEN_MAX + [60, 60, 300, 1]
    sent = [asyncio.ensure_future(starts.send({"n": "x" * size}, "k")) for size in sizes]
    for answered in range(OPEN_MAX + 4):
        path, body, answer = (await transport.requests(answered + 1))[answered]
        answer.set_result(_outcomes(body["items"]) if path.endswith("batch") else body)
    assert [len((await each)["n"]) for each in sent] == sizes


async def test_one_that_is_refused_among_others_is_told_what_it_would_be_told_alone() -> None:
    transport, sent = await _busy(OPEN_MAX + 2)
    transport.asked[0][2].set_result({})
    _, body, answer = (await transport.requests(OPEN_MAX + 1))[-1]
    refused = {"http_status": 422, "reason": "validation_failed", "message": "No.", "n": 1}
    answer.set_result({"items": [refused, *_outcomes(body["items"][1:])["items"]]})
    assert (await sent[OPEN_MAX + 1])["n"] == OPEN_MAX + 1
    path, _, answer = (await transport.requests(OPEN_MAX + 2))[-1]
    assert path == "/activities"
    answer.set_exception(refusal(422, {"reason": "validation_failed", "message": "No, alone."}))
    with pytest.raises(InvalidRequest, match="No, alone"):
        await sent[OPEN_MAX]


@pytest.mark.parametrize("said", [{}, {"items": None}, {"items": []}, {"items": [{"n": 1}] * 3}])
async def test_an_answer_that_does_not_tell_of_each_lets_each_go_alone(said: Json) -> None:
    transport, sent = await _busy(OPEN_MAX + 2)
    for n in range(OPEN_MAX):
        transport.asked[n][2].set_result({"n": n})
    (await transport.requests(OPEN_MAX + 1))[-1][2].set_result(said)
    for path, body, answer in (await transport.requests(OPEN_MAX + 3))[-2:]:
        assert path == "/activities"
        answer.set_result(body)
    assert [(await each)["n"] for each in sent] == list(range(OPEN_MAX + 2))


async def test_starts_do_not_wait_for_requests_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_batcher, "SLOW_REQUEST_S", 0.01)
    transport, sent = await _busy(OPEN_MAX + 3)
    for path, body, answer in (await transport.requests(OPEN_MAX + 3))[OPEN_MAX:]:
        assert path == "/activities"
        answer.set_result(body)
    assert [(await each)["n"] for each in sent[OPEN_MAX:]] == [OPEN_MAX, OPEN_MAX + 1, OPEN_MAX + 2]
    for _, body, answer in transport.asked[:OPEN_MAX]:
        answer.set_result(body)
    await asyncio.gather(*sent)


def test_a_client_whose_loop_ended_in_the_middle_sends_in_the_next_one() -> None:
    class Silent(Played):
        async def control(self, *given: Any, **options: Any) -> Json:
            return {"n": "answered"} if self.answers else await asyncio.Event().wait()  # type: ignore[return-value]

        answers = False

    transport = Silent()
    starts = StartBatcher(transport, "activities")

    async def leave() -> None:
        sent = [asyncio.ensure_future(starts.send({"n": n}, "k")) for n in range(OPEN_MAX + 1)]
        await asyncio.wait(sent, timeout=0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    transport.answers = True
    assert asyncio.run(starts.send({"n": 1}, "k")) == {"n": "answered"}
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def test_one_that_is_put_off_is_tried_again_alone_with_its_key() -> None:
    """Sent alone it has the retries of a single request."""
    transport, sent = await _busy(OPEN_MAX + 1)
    transport.asked[0][2].set_result({})
    _, body, answer = (await transport.requests(OPEN_MAX + 1))[-1]
    answer.set_result(_outcomes(body["items"], 503))
    path, body, answer = (await transport.requests(OPEN_MAX + 2))[-1]
    assert (path, body) == ("/activities", {"n": OPEN_MAX, "idempotency_key": f"key-{OPEN_MAX}"})
    answer.set_result({"n": "later"})
    assert await sent[OPEN_MAX] == {"n": "later"}


async def test_what_is_refused_as_a_whole_goes_one_by_one() -> None:
    transport, sent = await _busy(OPEN_MAX + 2)
    transport.asked[0][2].set_result({})
    _, _, answer = (await transport.requests(OPEN_MAX + 1))[-1]
    answer.set_exception(refusal(413, {"reason": "payload_too_large", "message": "Too much."}))
    for path, body, answer in (await transport.requests(OPEN_MAX + 3))[-2:]:
        assert path == "/activities"
        answer.set_result(body)
    assert [(await each)["n"] for each in sent[OPEN_MAX:]] == [OPEN_MAX, OPEN_MAX + 1]


async def test_a_server_that_is_not_reached_is_told_to_all() -> None:
    transport, sent = await _busy(OPEN_MAX + 2)
    transport.asked[0][2].set_result({})
    _, _, answer = (await transport.requests(OPEN_MAX + 1))[-1]
    answer.set_exception(Unreachable("Cannot reach it"))
    outcomes = await asyncio.gather(*sent[OPEN_MAX:], return_exceptions=True)
    assert [str(each) for each in outcomes if isinstance(each, Unreachable)] == ["Cannot reach it"] * 2


async def test_whoever_goes_away_before_its_start_was_sent_starts_nothing() -> None:
    transport, sent = await _busy(OPEN_MAX + 3)
    sent[OPEN_MAX].cancel()
    await asyncio.wait([sent[OPEN_MAX]])
    transport.asked[0][2].set_result({})
    _, body, answer = (await transport.requests(OPEN_MAX + 1))[-1]
    assert [item["n"] for item in body["items"]] == [OPEN_MAX + 1, OPEN_MAX + 2]
    answer.set_result(_outcomes(body["items"]))
    assert [(await each)["n"] for each in sent[OPEN_MAX + 1 :]] == [OPEN_MAX + 1, OPEN_MAX + 2]


async def test_a_request_that_fails_lets_those_behind_it_go(monkeypatch: pytest.MonkeyPatch) -> None:
    transport, sent = await _busy(OPEN_MAX + 1)
    transport.asked[0][2].set_exception(refusal(401, {"reason": "unauthenticated", "message": "Who?"}))
    with pytest.raises(Unauthorized):
        await sent[0]
    _, body, answer = (await transport.requests(OPEN_MAX + 1))[-1]
    answer.set_result(_outcomes(body["items"]))
    assert (await sent[OPEN_MAX])["n"] == OPEN_MAX


@defn
class Nothing:
    @run
    async def run(self) -> None: ...


async def test_many_starts_at_once_are_each_started_once_and_refused_for_themselves(client: Client) -> None:
    await client.start_workflow(Nothing.run, id="taken", task_queue="q")
    ids = [f"w{n}" if n % 10 else "taken" for n in range(60)]
    outcomes = await asyncio.gather(
        *(client.start_workflow(Nothing.run, id=each, task_queue="q") for each in ids), return_exceptions=True
    )
    refused = [each for each in outcomes if isinstance(each, WorkflowAlreadyStartedError)]
    assert len(refused) == 6
    started = {each.id async for each in client.list_workflows()}
    assert started == set(ids)


async def test_many_activities_at_once_have_each_its_own_outcome(client: Client) -> None:
    ids = [f"a{n % 30}" for n in range(60)]
    outcomes = await asyncio.gather(
        *(client.start_activity("greet", id=each, task_queue="q") for each in ids), return_exceptions=True
    )
    assert sum(isinstance(each, WorkflowAlreadyStartedError) for each in outcomes) == 30
    assert len([each async for each in client.list_activities()]) == 30
    assert not any(isinstance(each, ServerUnavailable) for each in outcomes)
