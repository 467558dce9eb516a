"""How the command line finds the server, what it sends, and what it refuses to send."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from tests.cli.recorded_server import TOKEN, RecordedServer, Run

NAMESPACES = {"namespaces": [{"name": "default", "status": "active", "retention_days": 30}]}


def test_token_namespace_and_control_plane_version_travel_as_headers(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workers", {"workers": []})
    assert ask("worker", "list", "--namespace", "orders").exit_code == 0
    headers = server.only_request.headers
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["x-namespace"] == "orders"
    assert headers["x-durable-workflow-control-plane-version"] == "2"
    assert "x-durable-workflow-protocol-version" not in headers


def test_without_a_namespace_the_choice_is_left_to_the_server(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workers", {"workers": []})
    ask("worker", "list")
    assert "x-namespace" not in server.only_request.headers


def test_flags_may_stand_before_the_noun(run: Run, server: RecordedServer) -> None:
    server.answer("GET", "/namespaces", NAMESPACES)
    result = run("--server", server.url, "--token", "t", "--json", "namespace", "list")
    assert json.loads(result.stdout) == NAMESPACES
    assert server.only_request.headers["authorization"] == "Bearer t"


def test_a_flag_after_the_verb_wins_over_one_before_the_noun_and_over_the_environment(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workers", {"workers": []})
    environment = {"DURABLE_WORKFLOW_NAMESPACE": "third"}
    ask("--namespace", "second", "worker", "list", "--namespace", "first", env=environment)
    ask("--namespace", "second", "worker", "list", env=environment)
    ask("worker", "list", env=environment)
    assert [request.headers["x-namespace"] for request in server.requests] == ["first", "second", "third"]


@pytest.mark.parametrize("url", ["http://192.0.2.7:8080", "http://example.invalid", "http://[2001:db8::1]"])
def test_a_token_is_never_sent_in_the_clear_to_another_machine(run: Run, url: str) -> None:
    result = run("worker", "list", "--server", url, "--token", TOKEN)
    assert result.exit_code == 2
    assert "--insecure" in result.stderr
    assert TOKEN not in result.output


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_token_may_travel_in_the_clear_on_this_machine(run: Run, server: RecordedServer, host: str) -> None:
    server.answer("GET", "/workers", {"workers": []})
    url = server.url.replace("127.0.0.1", host)
    assert run("worker", "list", "--server", url, "--token", TOKEN).exit_code == 0


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://x/api",
        "http://u:p@x",
        "http://x?a=1",
    ],
)
def test_an_address_that_cannot_be_right_is_a_usage_error(run: Run, url: str) -> None:
    assert run("worker", "list", "--server", url).exit_code == 2


@pytest.mark.parametrize("flag", ["--token", "--namespace"])
def test_a_value_that_would_break_out_of_its_header_is_refused_and_not_shown(
    ask: Run, server: RecordedServer, flag: str
) -> None:
    result = ask("worker", "list", flag, "canary\r\nX-Evil: 1")
    assert result.exit_code == 2
    assert "canary" not in result.output
    assert server.requests == []


def test_a_name_with_slashes_stays_one_segment_of_the_path(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workers/a%2F..%2Fb%3Fc", {"worker_id": "a/../b?c"})
    assert ask("worker", "describe", "a/../b?c").exit_code == 0


def test_nobody_listening_is_exit_code_3_with_advice(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = run("worker", "list", "--server", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert result.exit_code == 3
    assert "penstock dev" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("answer", [b"<html>It works!</html>", b"[1]", b"", b"\xff\xfe", b"[" * 100_000])
def test_another_program_on_that_port_is_exit_code_3(ask: Run, server: RecordedServer, answer: bytes) -> None:
    server.answer("GET", "/workers", answer)
    result = ask("worker", "list")
    assert result.exit_code == 3
    assert "another program" in result.stderr


def test_a_redirect_is_not_followed_so_the_token_stays_where_it_was_sent(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workers", {"message": "Moved."}, status=302)
    assert ask("worker", "list").exit_code == 1
    assert len(server.requests) == 1


class HangsUp:
    """A server that accepts one request and closes the connection without an answer."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with self.listener, self.listener.accept()[0] as caller:
            caller.recv(65536)


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (["worker", "list"], "Try again"),
        (["worker", "deregister", "w"], "may have taken effect"),
        (["workflow", "start", "--type", "t"], "may have taken effect"),
    ],
)
def test_a_lost_answer_says_whether_something_may_have_happened(
    run: Run, args: list[str], advice: str
) -> None:
    server = HangsUp()
    result = run(*args, "--server", server.url)
    server.thread.join()
    assert result.exit_code == 3
    assert advice in result.stderr


def test_https_to_a_server_that_speaks_http_is_explained(run: Run, server: RecordedServer) -> None:
    result = run("worker", "list", "--server", server.url.replace("http:", "https:"))
    assert result.exit_code == 3
    assert "speaks https" in result.stderr
