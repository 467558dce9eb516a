"""`Expect: 100-continue`, which curl sends with bodies of more than a megabyte, on a real socket."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.server.test_raw_sockets import AUTH, BODY, POST, Wire, workflows
from tests.support import live
from tests.support.live import LiveServer
from tests.support.patience import PATIENCE_S

EXPECT = "Expect: 100-continue\r\n"
LARGE = json.dumps({"workflow_type": "greet", "input": ["x" * 1_500_000]})
HEADERS = dict(line.split(": ", 1) for line in AUTH.strip().split("\r\n") if not line.startswith("Host"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("expecting")
    with live.running(live.server(folder, f"sqlite:///{folder / 'penstock.db'}")) as (started,):
        yield started


def test_a_client_that_waits_for_continue_gets_it_and_then_its_answer(server: LiveServer) -> None:
    with Wire(server.port) as wire:
        for number in range(2):
            body = b'{"workflow_type": "greet", "workflow_id": "expected-%d"}' % number
            wire.send(f"{POST}{EXPECT}Content-Length: {len(body)}\r\n\r\n")
            assert wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            status, answer = wire.send(body).answer()
            assert (status, answer["workflow_id"]) == (201, f"expected-{number}")
    assert {"expected-0", "expected-1"} <= {found["workflow_id"] for found in workflows(server)}


def test_a_client_that_does_not_wait_for_continue_is_answered_as_well(server: LiveServer) -> None:
    with Wire(server.port) as wire:
        wire.send(f"{POST}{EXPECT}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        received = wire.until(b'"workflow_id"')
    interim, final = received.split(b"\r\n\r\n", 1)
    assert interim == b"HTTP/1.1 100 Continue"
    assert final.startswith(b"HTTP/1.1 201 ")


def test_chunks_may_wait_for_continue_too(server: LiveServer) -> None:
    with Wire(server.port) as wire:
        wire.send(f"{POST}{EXPECT}Transfer-Encoding: chunked\r\n\r\n")
        assert wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        status, _ = wire.send(b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n").answer()
    assert status == 201


def test_a_refusal_without_continue_closes_so_that_no_request_is_taken_for_the_body(
    server: LiveServer,
) -> None:
    request = POST.replace("Host: 127.0.0.1", "Host: evil.example")
    with Wire(server.port) as wire:
        wire.send(f"{request}{EXPECT}Content-Length: {len(BODY)}\r\n\r\n")
        status, answer = wire.answer()
        assert (status, answer["reason"]) == (421, "misdirected_host")
        assert wire.is_closed()


def test_http_1_0_has_no_interim_responses(server: LiveServer) -> None:
    request = POST.replace("HTTP/1.1", "HTTP/1.0")
    with Wire(server.port) as wire:
        wire.send(f"{request}{EXPECT}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        status, _ = wire.answer()
    assert status == 201


async def test_aiohttp_may_send_a_large_body_that_waits_for_continue(server: LiveServer) -> None:
    headers = HEADERS | {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{server.url}/api/workflows", data=LARGE, expect100=True) as answer,
    ):
        assert answer.status == 201


if shutil.which("curl") is not None:

    @pytest.mark.parametrize("framing", [[], ["--header", "Transfer-Encoding: chunked"]])
    def test_curl_may_send_a_body_of_more_than_a_megabyte(
        server: LiveServer, tmp_path: Path, framing: list[str]
    ) -> None:
        body = tmp_path / "body.json"
        body.write_text(LARGE)
        headers = HEADERS | {"Content-Type": "application/json"}
        command = ["curl", "--silent", "--show-error", "--verbose", "--http1.1", "--data-binary", f"@{body}"]
        command += [part for name, value in headers.items() for part in ("--header", f"{name}: {value}")]
        command += [*framing, "--write-out", "%{http_code}", "--output", "/dev/null"]
        ended = subprocess.run(
            [*command, f"{server.url}/api/workflows"], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert ended.stdout == "201", ended.stderr
        assert "< HTTP/1.1 100 Continue" in ended.stderr
