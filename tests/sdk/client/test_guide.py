"""The calls in the client guide exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from penstock.sdk.clients.client import Client
from penstock.sdk.clients.handles import WorkflowHandle
from penstock.sdk.clients.starts import StandaloneActivityOptions, StartOptions
from penstock.sdk.clients.sync_client import SyncClient, SyncWorkflowHandle
from penstock.sdk.connection.connect_options import DEFAULT_URL, VARIABLES

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "client.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
OWN = {
    "args",
    "arg",
    "timeout",
    "wait_new_event",
    "by_status",
    "reason",
    "start_workflow_operation",
    "interceptors",
}


def calls(block: str) -> list[ast.Call]:
    tree = ast.parse(block)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_call_that_is_shown_exists(block: str) -> None:
    compile(block, "guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for call in calls(block):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            owner, name = call.func.value.id, call.func.attr
            if owner in ("client", "Client"):
                assert hasattr(Client, name), name
                assert hasattr(SyncClient, name), name
            if owner == "handle":
                assert hasattr(WorkflowHandle, name), name
                assert hasattr(SyncWorkflowHandle, name), name


@pytest.mark.parametrize("block", BLOCKS)
def test_every_option_of_a_start_that_is_shown_exists(block: str) -> None:
    options = {*StartOptions.__annotations__, *StandaloneActivityOptions.__annotations__, *OWN}
    for call in calls(block):
        if isinstance(call.func, ast.Attribute) and call.func.attr.startswith(("start_", "execute_")):
            assert {word.arg for word in call.keywords if word.arg} <= options


def test_the_table_of_sources_is_that_of_the_code() -> None:
    assert f"`{DEFAULT_URL}`" in GUIDE
    for option, variable in VARIABLES.items():
        assert re.search(rf"^\|[^|]+\| `{option}` \| `{variable}` \| `{option}` \|", GUIDE, re.MULTILINE)


def test_every_call_of_the_client_has_its_twin_without_async() -> None:
    for waits, plain in ((SyncClient, Client), (SyncWorkflowHandle, WorkflowHandle)):
        public = {name for name in vars(plain) if not name.startswith("_")}
        assert public - {"transport", "data_converter", "interceptors"} <= set(dir(waits))
