"""Streams: one rendering for all who look, nothing for a scene that nobody sees, and only what changed is sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from itertools import count

import pytest
from msgspec.structs import replace

from penstock.errors import Reason, Unavailable
from penstock.server.dashboard import live, site
from penstock.server.dashboard.live import (
    COST_SHARE,
    RETRY_MS,
    STREAMS_MAX,
    LiveHub,
    Panels,
    Scene,
    cost_share,
)
from tests.support.patience import PATIENCE_S

SCENE = Scene("/queues", (), (), "default", "operator")


class Stage:
    """Renders scenes that a test writes."""

    def __init__(self) -> None:
        self.panels: dict[str, str] = {"head": "<p id=head>1</p>", "rows": "<p id=rows>1</p>"}
        self.rendered = 0
        self.trouble: Unavailable | None = None

    async def render(self, scene: Scene) -> Panels:
        self.rendered += 1
        if self.trouble is not None:
            raise self.trouble
        return dict(self.panels)


async def _next(events: AsyncIterator[bytes]) -> str:
    """The next event, without the time at which it was made."""
    event = (await asyncio.wait_for(anext(events), PATIENCE_S)).decode()
    assert re.search(r"^id: \d+$", event, re.MULTILINE), "a browser could not tell how late it is"
    return re.sub(r"^id: \d+\n", "", event, flags=re.MULTILINE)


async def test_all_who_look_at_one_scene_share_one_rendering() -> None:
    stage = Stage()
    hub = LiveHub(stage.render)
    streams = [hub.stream(SCENE, f"session-{number}") for number in range(50)]
    first = [await _next(each) for each in streams]
    assert len(set(first)) == 1
    assert stage.rendered == 1, "50 streams, one rendering"
    for each in streams:
        await each.aclose()  # type: ignore[attr-defined]
    assert hub.open_streams == 0


async def test_only_the_panels_that_changed_are_sent() -> None:
    stage = Stage()
    hub = LiveHub(stage.render)
    events = hub.stream(SCENE, "a")
    assert '#head"' in await _next(events)
    stage.panels["rows"] = "<p id=rows>2</p>"
    news = await _next(events)
    assert '<hx-partial hx-target="#rows" hx-swap="outerMorph"><p id=rows>2</p></hx-partial>' in news
    assert "#head" not in news
    await events.aclose()  # type: ignore[attr-defined]


async def test_a_scene_that_nobody_sees_is_not_rendered() -> None:
    stage = Stage()
    hub = LiveHub(stage.render)
    events = hub.stream(SCENE, "a")
    await _next(events)
    await events.aclose()  # type: ignore[attr-defined]
    tasks = [
        each for each in asyncio.all_tasks() if each.get_name() == "penstock-live" and not each.cancelling()
    ]
    assert tasks == []


async def test_streams_of_different_age_get_the_same_panels() -> None:
    """One event serves all that have sent the same before, and no other."""
    stage = Stage()
    hub = LiveHub(stage.render)
    early = hub.stream(SCENE, "a")
    await _next(early)
    stage.panels["rows"] = "<p id=rows>2</p>"
    assert "#head" not in await _next(early)
    late = hub.stream(SCENE, "b")
    first = await _next(late)
    assert "#head" in first
    assert "<p id=rows>2</p>" in first
    stage.panels["rows"] = "<p id=rows>3</p>"
    assert await _next(early) == await _next(late)
    for each in (early, late):
        await each.aclose()  # type: ignore[attr-defined]


async def test_a_stream_without_news_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser gives up a connection that is silent, as one of a machine that slept is."""
    monkeypatch.setattr(live, "ALIVE_S", 0.01)
    hub = LiveHub(Stage().render)
    events = hub.stream(SCENE, "a")
    while (event := await _next(events)) == "event: alive\ndata: \n\n":
        pass
    assert "#head" in event
    assert await _next(events) == "event: alive\ndata: \n\n"
    await events.aclose()  # type: ignore[attr-defined]


async def test_roles_and_namespaces_never_share() -> None:
    """What one role may see must not reach another through a shared rendering."""
    stage, number = Stage(), count()

    async def render(scene: Scene) -> Panels:
        return {"who": f"<p id=who>{scene.role} {scene.namespace} {next(number)}</p>"}

    hub = LiveHub(render)
    scenes = [SCENE, replace(SCENE, role="viewer"), replace(SCENE, namespace="elsewhere")]
    streams = [hub.stream(scene, "a") for scene in scenes]
    shown = [await _next(each) for each in streams]
    assert [
        each.role in text and each.namespace in text for each, text in zip(scenes, shown, strict=True)
    ] == [
        True,
        True,
        True,
    ]
    assert stage.rendered == 0
    for each in streams:
        await each.aclose()  # type: ignore[attr-defined]


async def test_a_session_with_too_many_streams_is_told_to_pause_and_its_pages_still_load() -> None:
    hub = LiveHub(Stage().render)
    streams = [hub.stream(SCENE, "a") for _ in range(STREAMS_MAX)]
    for each in streams:
        await _next(each)
    assert await _next(hub.stream(SCENE, "a")) == f"event: paused\nretry: {RETRY_MS}\ndata: too many\n\n"
    assert "#head" in await _next(hub.stream(SCENE, "b"))
    for each in streams:
        await each.aclose()  # type: ignore[attr-defined]


async def test_trouble_is_told_and_the_stream_goes_on_when_it_is_over() -> None:
    stage = Stage()
    hub = LiveHub(stage.render)
    events = hub.stream(SCENE, "a")
    await _next(events)
    stage.trouble = Unavailable(Reason.STORE_UNAVAILABLE, "The database\ncannot be reached.", outcome="none")
    assert await _next(events) == "event: trouble\ndata: The database\ndata: cannot be reached.\n\n"
    stage.trouble, stage.panels["head"] = None, "<p id=head>2</p>"
    news = await _next(events)
    while news.startswith("event: trouble"):
        news = await _next(events)
    assert "<p id=head>2</p>" in news
    await events.aclose()  # type: ignore[attr-defined]


async def test_a_page_whose_rendering_was_interrupted_goes_on() -> None:
    """It stood still, and so did its stream, until everybody had left it."""
    stage = Stage()
    interrupted = [asyncio.CancelledError(), RuntimeError("broken"), TimeoutError()]

    async def render(scene: Scene) -> Panels:
        if interrupted:
            raise interrupted.pop(0)
        return await stage.render(scene)

    hub = LiveHub(render)
    events = hub.stream(SCENE, "a")
    while "hx-partial" not in (news := await _next(events)):
        assert "event: trouble" in news
    await events.aclose()  # type: ignore[attr-defined]
    assert not interrupted


async def test_streams_end_when_the_server_stops() -> None:
    hub = LiveHub(Stage().render)
    events = hub.stream(SCENE, "a")
    await _next(events)
    hub.close()
    assert [each async for each in events] == []


async def test_two_hundred_streams_of_one_session_leave_room_for_others() -> None:
    stage = Stage()
    hub = LiveHub(stage.render)
    streams = [hub.stream(SCENE, "greedy") for _ in range(200)]
    first = await asyncio.gather(*(_next(each) for each in streams))
    assert sum("event: paused" in each for each in first) == 200 - STREAMS_MAX
    assert stage.rendered < 20, "all that are shown share their renderings"
    assert "#head" in await _next(hub.stream(SCENE, "somebody else"))
    for each in streams:
        await each.aclose()  # type: ignore[attr-defined]


class StuckBrowser:
    """Takes the head of an answer and one event, and then reads no more; its connection stays."""

    def __init__(self) -> None:
        self.is_stuck = asyncio.Event()

    async def send(self, message: object) -> None:
        self.is_stuck.set()
        await asyncio.Event().wait()

    async def receive(self) -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError("it never leaves")


async def test_a_browser_that_reads_no_more_does_not_keep_its_page_rendered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A laptop that sleeps keeps its connection for many minutes."""
    monkeypatch.setattr(site, "SENDING_S", 0.05)
    hub, browser = LiveHub(Stage().render), StuckBrowser()
    events = hub.stream(SCENE, "a")
    await asyncio.wait_for(site.send_events(events, hub.closed(), browser.receive, browser.send), PATIENCE_S)
    assert browser.is_stuck.is_set()
    assert hub.open_streams == 0


async def test_a_browser_that_reads_no_more_does_not_hold_up_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "CLOSING_S", 0.05)
    hub, browser = LiveHub(Stage().render), StuckBrowser()
    sending = asyncio.create_task(
        site.send_events(hub.stream(SCENE, "a"), hub.closed(), browser.receive, browser.send)
    )
    await asyncio.wait_for(browser.is_stuck.wait(), PATIENCE_S)
    hub.close()
    await asyncio.wait_for(sending, PATIENCE_S)
    assert hub.open_streams == 0


async def test_a_slow_database_makes_no_page_older() -> None:
    """On a busy machine pages were more than a minute old: what a rendering had waited for was counted as its work."""
    waited_s, numbers = 0.5, count()

    async def render(scene: Scene) -> Panels:
        await asyncio.sleep(waited_s)
        return {"head": f"<p id=head>{next(numbers)}</p>"}

    hub = LiveHub(render)
    events = hub.stream(SCENE, "a")
    for _ in range(3):
        await _next(events)
    assert hub.cost_s < waited_s / 2, "waiting costs nothing"
    await events.aclose()  # type: ignore[attr-defined]


def test_pages_take_less_of_a_process_that_is_busy_with_its_work() -> None:
    assert cost_share(0.1) == COST_SHARE
    assert 1 / cost_share(0.9) <= 0.02, "fifty open pages may cost two per cent of the dispatches"


async def test_a_page_that_is_slow_does_not_make_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waited until the slow one was given up, half a minute a turn."""
    monkeypatch.setattr(live, "TURN_S", 0.01)
    stage, slow = Stage(), replace(SCENE, page="/slow")

    async def render(scene: Scene) -> Panels:
        if scene == slow:
            await asyncio.Event().wait()
        return await stage.render(scene)

    hub = LiveHub(render)
    stuck = asyncio.create_task(_next(hub.stream(slow, "a")))
    events = hub.stream(SCENE, "b")
    assert "#head" in await _next(events)
    stage.panels["head"] = "<p id=head>2</p>"
    assert "#head" in await _next(events)
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)
    await events.aclose()  # type: ignore[attr-defined]
