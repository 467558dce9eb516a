"""Who may sign in, and when a session ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.operations.ui_sessions import IDLE_MS_MAX, SESSION_MS_MAX
from penstock.server.dashboard.sessions import CODE_MS
from tests.server.client import Client
from tests.server.dashboard.conftest import NOW_MS, serving
from tests.server.dashboard.visitors import ORIGIN, Visitor
from tests.support.clock import ManualClock

PLAIN = {"hx-request": ""}
"""A form that the browser sends itself, as the page for signing in does."""
Somebody = Callable[[], Visitor]


async def _is_in(visitor: Visitor) -> bool:
    reply = await visitor.get("/ui/queues")
    assert reply.status in (200, 303)
    return reply.status == 200


async def test_a_stranger_is_asked_to_sign_in(somebody: Somebody) -> None:
    reply = await somebody().get("/ui/queues")
    assert (reply.status, reply.headers["location"]) == (303, "/ui/sign-in?next=%2Fui%2Fqueues")


@pytest.mark.parametrize("token", ["operator-secret", "admin-secret", "viewer-secret"])
async def test_a_token_opens_a_session_whose_cookie_no_script_and_no_other_site_can_use(
    somebody: Somebody, token: str
) -> None:
    visitor = somebody()
    reply = await visitor.sign_in(token, "ops-on-call")
    cookie = reply.headers["set-cookie"]
    assert reply.status == 303
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert token not in cookie
    assert await _is_in(visitor)


@pytest.mark.parametrize("token", ["", "wrong", "worker-secret"])
async def test_a_wrong_token_and_that_of_a_worker_open_nothing(somebody: Somebody, token: str) -> None:
    visitor = somebody()
    reply = await visitor.sign_in(token)
    assert reply.status == 401
    assert "set-cookie" not in reply.headers
    assert not await _is_in(visitor)


async def test_who_guesses_tokens_is_told_to_wait(somebody: Somebody) -> None:
    replies = [await somebody().sign_in(f"guess-{number}") for number in range(12)]
    assert "Wait" in replies[-1].raw.decode()
    assert await _is_in(await _signed_in(somebody)), "a right token passes nevertheless"


async def _signed_in(somebody: Somebody) -> Visitor:
    visitor = somebody()
    await visitor.sign_in("operator-secret")
    return visitor


@pytest.mark.parametrize("name", ["admin", "webhook:stripe", "x" * 65, "a\nb"])
async def test_nobody_signs_in_under_a_name_that_means_something_else(somebody: Somebody, name: str) -> None:
    assert (await somebody().sign_in("operator-secret", name)).status == 401


async def test_signing_out_ends_the_session_on_the_server(operator: Visitor) -> None:
    kept = dict(operator.cookies)
    assert (await operator.post("/ui/session/end")).status == 303
    assert operator.cookies == {}
    operator.cookies = kept
    assert not await _is_in(operator)


async def test_a_session_ends_after_an_hour_without_a_visit(operator: Visitor, clock: ManualClock) -> None:
    clock.advance(IDLE_MS_MAX - 1)
    assert await _is_in(operator)
    clock.advance(IDLE_MS_MAX - 1)
    assert await _is_in(operator), "each visit counts"
    clock.advance(IDLE_MS_MAX)
    assert not await _is_in(operator)


async def test_a_session_ends_after_twelve_hours_however_busy_it_is(
    operator: Visitor, clock: ManualClock
) -> None:
    while clock.now_ms() < NOW_MS + SESSION_MS_MAX - IDLE_MS_MAX:
        clock.advance(IDLE_MS_MAX - 1)
        assert await _is_in(operator)
    clock.set(NOW_MS + SESSION_MS_MAX)
    assert not await _is_in(operator)


async def test_a_session_survives_a_restart_and_ends_with_its_token(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path / 'penstock.db'}", ManualClock(NOW_MS)
    async with serving(clock, url) as first:
        visitor = Visitor(first.application)
        await visitor.sign_in("operator-secret")
    async with serving(clock, url) as second:
        visitor.app = second.application
        assert await _is_in(visitor)
    async with serving(clock, url, DW_OPERATOR_TOKEN="another-secret") as third:
        visitor.app = third.application
        assert not await _is_in(visitor)
    async with serving(clock, url) as fourth:
        visitor.app = fourth.application
        assert not await _is_in(visitor), "it does not come back with the old token"


async def test_a_link_signs_in_once_and_within_a_minute(somebody: Somebody, clock: ManualClock) -> None:
    visitor = somebody()
    link = visitor.app.dashboard.one_time_link(ORIGIN, "ada")
    assert re.fullmatch(rf"{ORIGIN}/ui/sign-in#code=[\w-]{{20,}}", link), (
        "the code is where no server sees it"
    )
    code = link.partition("#code=")[2]
    assert (await visitor.post("/ui/session", {"code": code}, **PLAIN)).status == 303
    assert await _is_in(visitor)
    assert (await somebody().post("/ui/session", {"code": code}, **PLAIN)).status == 401
    late = visitor.app.dashboard.one_time_link(ORIGIN, "ada").partition("#code=")[2]
    clock.advance(CODE_MS)
    assert (await somebody().post("/ui/session", {"code": late}, **PLAIN)).status == 401


async def test_the_store_holds_nothing_that_opens_a_session(tmp_path: Path) -> None:
    path = tmp_path / "penstock.db"
    async with serving(url=f"sqlite:///{path}") as running:
        visitor = Visitor(running.application)
        await visitor.sign_in("operator-secret", "ops-on-call")
    (secret,) = visitor.cookies.values()
    raw = path.read_bytes()
    assert b"ops-on-call" in raw
    assert secret.encode() not in raw
    assert b"operator-secret" not in raw


async def test_without_authentication_everybody_is_in_and_changes_still_need_our_page(api: Client) -> None:
    async with serving(DW_AUTH_DRIVER="none") as running:
        visitor = Visitor(running.application)
        assert await _is_in(visitor)
        form = {"kind": "activity", "to": "3"}
        assert (await visitor.post("/ui/queues/payments/cap", form)).status == 200
        assert (
            await visitor.post("/ui/queues/payments/cap", form, origin="http://evil.example")
        ).status == 403


async def test_with_signed_requests_there_is_no_dashboard_and_it_says_so() -> None:
    async with serving(DW_AUTH_DRIVER="signature", DW_OPERATOR_SIGNATURE_KEY="k" * 40) as running:
        reply = await Visitor(running.application).get("/ui/queues")
        assert reply.status == 404
        assert b"DW_AUTH_DRIVER=signature" in reply.raw


async def test_a_setting_turns_it_off() -> None:
    async with serving(DW_UI="false") as running:
        reply = await Visitor(running.application).get("/ui/sign-in")
        assert reply.status == 404
        assert reply.headers["content-type"] == "application/json"


async def test_a_link_from_another_site_opens_the_page_after_one_reload(operator: Visitor) -> None:
    """A strict cookie is not sent with it, so the first answer is a page of ours that loads itself again."""
    cookies, operator.cookies = operator.cookies, {}
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert b'http-equiv="refresh"' in (await operator.get("/ui/queues", **headers)).raw
    operator.cookies = cookies
    assert await _is_in(operator)


async def test_who_signs_in_gets_the_page_that_they_asked_for(somebody: Somebody) -> None:
    visitor = somebody()
    asked = await visitor.get("/ui/queues/payments?kind=workflow")
    assert asked.headers["location"] == "/ui/sign-in?next=%2Fui%2Fqueues%2Fpayments%3Fkind%3Dworkflow"
    assert 'name="next" value="/ui/queues/payments?kind=workflow"' in await visitor.page(
        asked.headers["location"]
    )
    form = {"token": "operator-secret", "next": "/ui/queues/payments?kind=workflow"}
    reply = await visitor.post("/ui/session", form, **PLAIN)
    assert reply.headers["location"] == "/ui/queues/payments?kind=workflow"


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/ui/", "//evil.example", "/\\evil.example", "/ui/\r\nX: y", "/ui/../api"]
)
async def test_signing_in_leads_nowhere_else(somebody: Somebody, wanted: str) -> None:
    form = {"token": "operator-secret", "next": wanted}
    reply = await somebody().post("/ui/session", form, **PLAIN)
    assert (reply.status, reply.headers["location"]) == (303, "/ui")


async def test_a_session_is_renewed_within_a_page_and_its_changes_go_on(
    somebody: Somebody, clock: ManualClock
) -> None:
    visitor = somebody()
    await visitor.sign_in("operator-secret", "ops-on-call")
    await visitor.page("/ui/queues/payments")
    clock.advance(IDLE_MS_MAX)
    form = {"kind": "activity", "to": "3"}
    assert (await visitor.post("/ui/queues/payments/cap", form)).status == 401
    wrong = await visitor.post("/ui/session", {"token": "guess", "name": "ops-on-call"})
    assert (wrong.status, b"<html" in wrong.raw) == (401, False), "a fragment for the dialog"
    renewed = await visitor.post("/ui/session", {"token": "operator-secret", "name": "ops-on-call"})
    (visitor.csrf,) = re.findall('data-signed-in="([^"]+)"', renewed.raw.decode())
    assert (await visitor.post("/ui/queues/payments/cap", form)).status == 200
