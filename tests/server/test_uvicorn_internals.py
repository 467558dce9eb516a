"""What Penstock uses of uvicorn beyond its documented interface: fails by name if a new version changes it.

`server/protocol.py` extends uvicorn's HTTP protocol and gives its response cycle another transport; `assembly.py`
replaces its main loop and signal handling. None of these is public API. The version is therefore bounded above in
`pyproject.toml`; to raise the bound, install the new version, run the tests of `tests/server`, and read its changes of
`protocols/http/httptools_impl.py` and `server.py`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from penstock.server.protocol import BoundedProtocol, CoalescingTransport

ROOT = Path(__file__).parents[2]
OVERRIDDEN = {
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "on_message_begin": ["self"],
    "on_url": ["self", "url"],
    "on_header": ["self", "name", "value"],
    "on_headers_complete": ["self"],
    "on_message_complete": ["self"],
    "send_400_response": ["self", "msg"],
}
"""Methods of the protocol that ours calls through, with their parameters."""

TRANSPORT_METHODS = {"write", "close", "is_closing"}
"""What the response cycle asks of its transport."""


def attributes_of(source: object, owner: str) -> set[str]:
    """Every `x` in `self.<owner>.x` that a class mentions."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(source)))  # type: ignore[arg-type]
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == owner
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id == "self"
    }


def names_on_self(source: object) -> set[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(source)))  # type: ignore[arg-type]
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def test_the_response_cycle_asks_no_more_of_its_transport_than_was_read() -> None:
    assert attributes_of(RequestResponseCycle, "transport") == TRANSPORT_METHODS


def test_the_response_cycle_hands_its_transport_to_nobody() -> None:
    """Else another object could ask for more than the list above."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(RequestResponseCycle)))
    used_whole = [
        node
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for node in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(node, ast.Attribute) and node.attr == "transport"
    ]
    assert used_whole == []
    assert list(inspect.signature(FlowControl).parameters) == ["transport"], "it is given the real transport"


@pytest.mark.parametrize(
    "name", sorted(TRANSPORT_METHODS | {n for n in dir(asyncio.Transport) if n[0] != "_"})
)
def test_what_stands_in_for_a_transport_answers_for_all_of_it(name: str) -> None:
    class Whole(asyncio.Transport):
        pass

    loop = asyncio.new_event_loop()
    try:
        assert callable(getattr(CoalescingTransport(Whole(), loop), name))
    finally:
        loop.close()


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_a_method_that_ours_extends_has_the_parameters_that_it_had(name: str) -> None:
    assert name in vars(BoundedProtocol)
    assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters) == OVERRIDDEN[name]


def test_the_protocol_and_its_cycle_have_the_attributes_that_ours_reads() -> None:
    protocol = names_on_self(HttpToolsProtocol)
    assert protocol >= {
        "_unset_keepalive_if_required",
        "cycle",
        "logger",
        "loop",
        "timeout_keep_alive",
        "timeout_keep_alive_handler",
        "timeout_keep_alive_task",
        "transport",
    }
    cycle = names_on_self(RequestResponseCycle)
    assert cycle >= {
        "keep_alive",
        "response_complete",
        "response_started",
        "scope",
        "transport",
        "waiting_for_100_continue",
    }
    ours = (
        names_on_self(BoundedProtocol) - set(vars(BoundedProtocol)) - names_on_self(BoundedProtocol.__init__)
    )
    assert ours <= protocol | {"timeout_keep_alive_task"}, "a name of uvicorn's that this list does not know"


def test_the_server_has_the_hooks_that_ours_replaces() -> None:
    assert list(inspect.signature(uvicorn.Server.main_loop).parameters) == ["self"]
    assert list(inspect.signature(uvicorn.Server.capture_signals).parameters) == ["self"]
    assert list(inspect.signature(uvicorn.Server.on_tick).parameters) == ["self", "counter"]
    assert list(inspect.signature(uvicorn.Server.startup).parameters) == ["self", "sockets"]
    assert {"should_exit", "started"} <= names_on_self(uvicorn.Server)


def test_uvicorn_has_an_upper_bound_and_the_installed_one_is_within() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (wanted,) = [each for each in dependencies if each.startswith("uvicorn")]
    lower, upper = (
        tuple(int(part) for part in bound.lstrip("<>=").split("."))
        for bound in wanted.removeprefix("uvicorn").split(",")
    )
    installed = tuple(int(part) for part in version("uvicorn").split(".")[:2])
    assert lower <= installed < upper
