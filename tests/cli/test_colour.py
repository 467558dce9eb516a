"""Colour is for terminals, and only for those who want it."""

from __future__ import annotations

from tests.cli import bodies
from tests.cli.recorded_server import RecordedServer, Run
from tests.cli.terminal import on_a_terminal

FOUND = {"workflows": [bodies.completed("x")], "next_page_token": None}


def test_a_terminal_gets_colour(server: RecordedServer) -> None:
    server.answer("GET", "/workflows", FOUND)
    assert "\x1b[32mcompleted" in on_a_terminal(server, "workflow", "list")


def test_no_color_is_respected(server: RecordedServer) -> None:
    server.answer("GET", "/workflows", FOUND)
    output = on_a_terminal(server, "workflow", "list", NO_COLOR="1")
    assert "completed" in output
    assert "\x1b[32m" not in output


def test_no_color_is_respected_by_errors(server: RecordedServer) -> None:
    assert "\x1b[" in on_a_terminal(server, "worker", "list")
    assert "\x1b[" not in on_a_terminal(server, "worker", "list", NO_COLOR="1")


def test_a_pipe_gets_neither_colour_nor_cut_lines(ask: Run, server: RecordedServer) -> None:
    long = "order-" + "x" * 300
    server.answer("GET", "/workflows", {"workflows": [bodies.workflow(workflow_id=long)]})
    output = ask("workflow", "list").stdout
    assert long in output
    assert "\x1b" not in output
