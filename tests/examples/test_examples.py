"""Every example runs on its own, prints its output and exits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.live import LiveServer, free_port, running, server
from tests.support.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"
TOLD = {
    "order_fulfilment": [
        "the bank takes 4000 euros (attempt 2)",
        "undo: the bank gives payment-order-",
        "undo: the warehouse frees shelf-order-",
        "is done: given up: NoSuchPlace: nobody delivers to the Moon",
        "Three orders, each of them whole",
    ],
    "tenants": [
        "whale     20  ████████████████████",
        "bakery    10  ██████████",
        "florist   10  ██████████",
    ],
    "human_approval": [
        "lunch: paid 30 euros",
        "a yacht: declined by Mia",
        "a lamp: closed without an answer",
    ],
    "every_minute": ["The worker stops. The loop does not notice", "runs of one workflow; no run is long."],
    "documents": [
        "careful: too many requests",
        "12. Chapter 12 is long. (careful)",
        "at once, of 4 that it bears",
        "careful: at most 2 at once, of 2",
    ],
    "app_tasks": [
        "called: 3; sent to a worker: 3",
        "20 more sent with one request; together: 380",
        "there are 303 primes below 2,000; and a letter, stamped",
        "half a second later: 42",
        "failed: ValueError: nobody is called Nemo",
        "expired: the news was not begun",
    ],
}


def play(name: str, environment: Mapping[str, str]) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("DW_", "DURABLE_"))}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env=clean | dict(environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("examples")
    settings = {
        "DW_AUTH_DRIVER": "none",
        "DW_WORKER_TOKEN": "",
        "DW_OPERATOR_TOKEN": "",
        "DW_ADMIN_TOKEN": "",
    }
    database = f"sqlite:///{folder / 'penstock.db'}"
    with running(server(folder, database, port=free_port(), settings=settings)) as (started,):
        yield started


@pytest.mark.acceptance
@pytest.mark.parametrize("name", TOLD)
def test_an_example_tells_its_story_on_the_server_that_is_named(name: str, live: LiveServer) -> None:
    told = play(name, {"DURABLE_WORKFLOW_SERVER_URL": live.url})
    missing = [line for line in TOLD[name] if line not in told]
    assert not missing, told


@pytest.mark.acceptance
def test_an_example_brings_a_server_of_its_own_when_none_is_named() -> None:
    told = play("human_approval", {})
    assert "No server is named, so one of our own starts." in told
    assert "a lamp: closed without an answer" in told


def test_every_example_is_listed_and_played_here() -> None:
    found = {path.stem for path in EXAMPLES.glob("[!_]*.py")}
    assert found == set(TOLD)
    page = (EXAMPLES / "README.md").read_text()
    assert all(f"({name}.py)" in page for name in found)
