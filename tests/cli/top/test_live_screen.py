"""`penstock top` on a real terminal, with a real server that is killed and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.top.terminal_screen import terminal_screen
from tests.support.live import LiveServer, running
from tests.support.live import server as new_server

pytestmark = pytest.mark.acceptance


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LiveServer]:
    """A server with work in two queues and no worker."""
    from penstock.cli.transport.connection import ServerConnection, Target

    with running(new_server(tmp_path, f"sqlite:///{tmp_path}/penstock.db")) as (made,):
        connection = ServerConnection(Target.parse(made.url), token="operator-secret")
        for number, queue in enumerate(["letters", "letters", "parcels"]):
            body = {"workflow_id": f"post-{number}", "workflow_type": "deliver", "task_queue": queue}
            connection.post("workflows", body=body)
        yield made


def environment(server: LiveServer) -> dict[str, str]:
    return {"DURABLE_WORKFLOW_SERVER_URL": server.url, "DURABLE_WORKFLOW_AUTH_TOKEN": "operator-secret"}


def test_keys_choose_open_and_sort_and_the_terminal_is_left_as_it_was(shop: LiveServer) -> None:
    with terminal_screen(["top"], environment(shop)) as screen:
        shown = screen.shows("3 waiting, 0 running, by oldest wait", "letters", "parcels", "no_active")
        assert all(len(line) <= 80 for line in shown.splitlines())
        screen.press("?")
        screen.shows("sort by oldest wait, waiting")
        screen.press("?")
        screen.shows("letters", "by oldest wait")
        screen.press("ssss")
        screen.shows("by name")
        screen.press("\x1b[B\r")
        opened = screen.shows("parcels  workflow tasks  no_active_workers", "No worker polls this queue.")
        assert "letters" not in opened
        screen.press("\x1b")
        screen.shows("letters", "parcels", "by name")
        screen.press("q")
        assert screen.exit_code() == 0
        assert screen.everything.index("\x1b[?1049h") < screen.everything.index("\x1b[?1049l")
        assert "\x1b[?25h" in screen.everything.rpartition("\x1b[?25l")[2]


def test_a_server_that_dies_and_comes_back_is_shown_and_never_a_traceback(shop: LiveServer) -> None:
    with terminal_screen(["top"], environment(shop)) as screen:
        screen.shows("3 waiting")
        shop.kill()
        troubled = screen.shows("Asking again", "Cannot reach", "letters")
        assert "Traceback" not in screen.everything
        assert "3 waiting" in troubled
        shop.start()
        screen.wait_for(lambda text: "3 waiting" in text and "Asking again" not in text)
        screen.press("\x03")
        assert screen.exit_code() == 0


def test_a_paused_picture_says_so_and_goes_on_when_asked(shop: LiveServer) -> None:
    with terminal_screen(["top", "letters"], environment(shop), columns=60, lines=12) as screen:
        screen.shows("letters  workflow tasks", "2 waiting")
        screen.press("p")
        screen.shows("Paused: the numbers stay as they were.")
        screen.press(" ")
        screen.wait_for(lambda text: "2 waiting" in text and "Paused" not in text)
        screen.press("q")
        assert screen.exit_code() == 0


def test_without_a_server_it_ends_at_once_and_says_what_to_start() -> None:
    with terminal_screen(["--server", "http://127.0.0.1:1", "top"], {}) as screen:
        assert screen.exit_code() == 3
        assert "Start a server with `penstock dev`" in " ".join(screen.everything.split())
