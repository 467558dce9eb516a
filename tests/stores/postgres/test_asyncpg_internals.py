"""The internals of asyncpg that we rely on. A release that changes them fails here, not in production.

`postgres.pipeline` puts statements of its own into what asyncpg writes, and `postgres.errors` reads from its errors
why a session ended. `pyproject.toml` names the versions of asyncpg for which this was tried; raise its upper bound
when these tests pass with the next one.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.postgres import pipeline
from penstock.stores.postgres.errors import DISCONNECTED, is_timeout, was_ended_idle
from penstock.stores.postgres.pipeline import NAME_AT, SYNC, PipelinedConnection
from penstock.stores.postgres.transactions import prepare_piggybacked
from tests.faults.deadlines import until

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
QUESTION = "SELECT $1::bigint + 1"


class Recorder:
    """A transport that records what is written."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.pieces: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: memoryview) -> None:
        self.pieces.append(bytes(data))
        self._transport.write(data)

    def kinds(self) -> list[str]:
        """The message types in each write."""
        return ["".join(_kinds(piece)) for piece in self.pieces]


def _kinds(piece: bytes) -> list[str]:
    found = []
    while piece:
        found.append(chr(piece[0]))
        piece = piece[1 + int.from_bytes(piece[1:5], "big") :]
    return found


@pytest.fixture
async def wired(postgres_url: str) -> AsyncIterator[PipelinedConnection]:
    connection = await pipeline.connect(postgres_url)
    await prepare_piggybacked(connection)
    yield connection
    connection.terminate()


@pytest.fixture
def recorder(wired: PipelinedConnection) -> Recorder:
    found = Recorder(wired._pipelined_transport._transport)
    wired._pipelined_transport._transport = found  # type: ignore[assignment]
    return found


def test_the_installed_asyncpg_is_one_that_was_tried():
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    [bounds] = [each for each in declared if each.startswith("asyncpg")]
    found = re.fullmatch(r"asyncpg>=0\.(\d+),<0\.(\d+)", bounds)
    assert found is not None, f"an upper bound is missing: {bounds}"
    minor = int(asyncpg.__version__.split(".")[1])
    assert int(found[1]) <= minor < int(found[2])


def test_a_connection_is_made_of_a_protocol_and_a_transport_and_takes_a_loop_and_a_class():
    """asyncpg creates a `PipelinedConnection` and passes it the transport."""
    assert list(inspect.signature(asyncpg.Connection.__init__).parameters)[1:3] == ["protocol", "transport"]
    for make in (asyncpg.connect, asyncpg.create_pool):
        assert {"loop", "connection_class"} <= inspect.signature(make).parameters.keys()
    assert "name" in inspect.signature(asyncpg.Connection.prepare).parameters


async def test_the_transport_that_asyncpg_writes_to_is_ours(wired: PipelinedConnection):
    transport = getattr(wired, "_transport")  # noqa: B009
    assert isinstance(transport, pipeline.PipelinedTransport)
    assert transport is wired._pipelined_transport


async def test_a_prepared_statement_is_sent_in_one_piece_that_ends_with_sync(
    wired: PipelinedConnection, recorder: Recorder
):
    await wired.fetch(QUESTION, 1)
    recorder.pieces.clear()
    assert await wired.fetchval(QUESTION, 1) == 2
    assert recorder.kinds() == ["BES"]
    assert recorder.pieces[0].endswith(SYNC)


async def test_bind_names_an_unnamed_portal_and_then_the_statement(
    wired: PipelinedConnection, recorder: Recorder
):
    statement = await wired.prepare(QUESTION, name="known")
    recorder.pieces.clear()
    await statement.fetch(1)
    assert recorder.kinds() == ["BES"]
    assert recorder.pieces[0][NAME_AT:].startswith(b"known\0")


async def test_a_statement_that_is_new_is_parsed_first_and_then_bound(
    wired: PipelinedConnection, recorder: Recorder
):
    await wired.fetch(QUESTION, 1)
    first, *_, last = recorder.kinds()
    assert first.startswith("P")
    assert last == "BES"


async def test_a_statement_that_is_prepared_in_a_transaction_leaves_its_session_idle_and_not_active(
    wired: PipelinedConnection, recorder: Recorder, postgres_url: str
):
    """A client that was suspended there kept its row locks, because its session did not count as idle."""
    await wired.execute("BEGIN")
    await wired.prepare(QUESTION)
    assert recorder.kinds()[-1] == "PDS"
    other = await asyncpg.connect(postgres_url)
    asked = "SELECT state FROM pg_stat_activity WHERE pid = $1"
    assert await other.fetchval(asked, wired.get_server_pid()) == "idle in transaction"
    await other.close()
    assert await wired.fetchval(QUESTION, 1) == 2
    await wired.execute("COMMIT")


async def test_a_session_whose_client_is_frozen_after_preparing_a_statement_is_ended(
    wired: PipelinedConnection, postgres_url: str
):
    await wired.execute("SET idle_in_transaction_session_timeout = 200")
    await wired.execute("BEGIN")
    await wired.prepare(QUESTION)
    other = await asyncpg.connect(postgres_url)

    async def is_gone() -> bool:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1"
        return await other.fetchval(asked, wired.get_server_pid()) == 0

    await until("the session is ended", is_gone)
    await other.close()


async def test_a_statement_that_cannot_be_prepared_is_refused_and_the_connection_can_be_used(
    wired: PipelinedConnection,
):
    for _ in range(2):
        with pytest.raises(asyncpg.PostgresSyntaxError):
            await wired.fetch("SELEKT $1::bigint", 1)
        assert await wired.fetchval(QUESTION, 1) == 2
    await wired.execute("BEGIN")
    with pytest.raises(asyncpg.UndefinedTableError):
        await wired.fetch("SELECT * FROM nowhere WHERE n = $1::bigint", 1)
    await wired.execute("ROLLBACK")
    assert await wired.fetchval(QUESTION, 2) == 3


@given(cuts=st.lists(st.integers(0, 60), max_size=8), before=st.integers(0, 2), after=st.integers(0, 2))
def test_one_ready_for_query_is_taken_out_however_the_bytes_arrive(cuts: list[int], before: int, after: int):
    ready, row = b"Z\0\0\0\5T", b"T\0\0\0\x0bZ\0\0\0\5IZ"
    sent = row * before + ready + (row + ready) * after
    edges = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    transport = SwitchingTransport()
    pipeline._ReadyFilter.on(transport)  # type: ignore[arg-type]
    for begin, end in itertools.pairwise(edges):
        transport.protocol.data_received(sent[begin:end])
    assert transport.protocol is transport.own
    assert transport.own.received == row * before + (row + ready) * after


class Sink:
    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


class SwitchingTransport:
    """The part of a transport that `_ReadyFilter` uses."""

    def __init__(self) -> None:
        self.own = Sink()
        self.protocol: Any = self.own

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol


async def test_a_statement_without_values_is_a_simple_query(wired: PipelinedConnection, recorder: Recorder):
    await wired.execute("BEGIN")
    await wired.execute("COMMIT")
    assert recorder.kinds() == ["Q", "Q"]


async def test_answers_to_statements_that_asyncpg_did_not_send_are_passed_over(
    wired: PipelinedConnection, recorder: Recorder
):
    await wired.execute_between(b"", QUESTION, (1,), b"")
    before = pipeline.bind_and_execute("penstock_begin")
    assert [row[0] for row in await wired.fetch_after(before, QUESTION, 1)] == [2]
    assert wired.is_in_transaction()
    after = pipeline.bind_and_execute("penstock_commit")
    assert await wired.execute_between(b"", QUESTION, (1,), after) == "COMMIT"
    assert not wired.is_in_transaction()
    assert recorder.kinds()[-1] == "BEBES"


async def test_what_is_sent_is_counted(wired: PipelinedConnection):
    """The count tells whether a COMMIT may have been sent."""
    before = wired.writes
    await wired.execute_between(b"", "SELECT 1", (), b"")
    assert wired.writes == before + 1
    wired.terminate()
    with pytest.raises(DISCONNECTED):
        await wired.execute_between(b"", "COMMIT", (), b"")
    assert wired.writes == before + 1, "nothing is sent on a connection that is closed"


async def test_the_error_of_a_session_that_was_ended_while_idle_says_so(
    wired: PipelinedConnection, postgres_url: str
):
    """It is read after the next statement was sent, and tells that this one was never executed."""
    await wired.execute("SET idle_in_transaction_session_timeout = '50ms'")
    await wired.execute("BEGIN")
    wired._pipelined_transport.pause_reading()
    await _ended(wired, postgres_url)
    asked = asyncio.create_task(wired.execute("SELECT 1"))
    await asyncio.sleep(0)  # it is sent
    wired._pipelined_transport.resume_reading()
    with pytest.raises(DISCONNECTED) as broken:
        await asked
    assert was_ended_idle(broken.value)


async def test_a_statement_that_took_too_long_is_a_timeout_and_leaves_the_session(wired: PipelinedConnection):
    await wired.execute("SET statement_timeout = '50ms'")
    with pytest.raises(asyncpg.QueryCanceledError) as cancelled:
        await wired.execute("SELECT pg_sleep(5)")
    assert is_timeout(cancelled.value)
    assert not wired.is_closed()


async def _ended(wired: PipelinedConnection, url: str) -> None:
    """Wait until the session is gone from the database."""
    outsider = await asyncpg.connect(url)
    try:
        while await outsider.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", wired.get_server_pid()
        ):
            await outsider.execute("SELECT pg_sleep(0.02)")
    finally:
        await outsider.close()
