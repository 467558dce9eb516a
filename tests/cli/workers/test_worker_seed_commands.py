"""Every command line of seed 002, with our name for its program: real processes that run as much as it says.

Its priority queues are run in test_worker_programs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock import Penstock
from tests.support.live import LiveServer
from tests.support.patience import PATIENCE_S
from tests.support.programs import Program, environment_of, program, sender_to, sent

SEEDS = Path(__file__).parents[4] / "shared" / "seeds"
CORES = os.cpu_count() or 1
CONFIGS = {
    "simple": "queue_mode=QueueMode.DEFAULT,",
    "capped": "queue_mode=QueueMode.DEFAULT, cluster_wide_cap=20,",
}
INSTANCE = """
from penstock import AppConfig, Penstock, PostgresConfig, QueueMode

config = AppConfig(
    {}
    broker=PostgresConfig(database_url="postgresql+psycopg://db/tasks"),
)
app = Penstock("myapp", config=config, include=["myapp.tasks"])
"""
TASKS = """
import os

from myapp.instance import app


@app.task
def hold(name: str, path: str) -> str:
    os.write(1, f"began {name}\\n".encode())
    with open(path) as pipe:
        said = pipe.read()
    os.write(1, f"ended {name}\\n".encode())
    return said
"""


@dataclass(frozen=True)
class Row:
    """What the seed writes, with which configuration, and what comes of it."""

    command: str
    config: str
    line: str
    at_once: int
    machines: int = 1
    more: tuple[str, ...] = field(default=())
    """Flags of ours, where the seed shows a line and no command for it."""


def line(processes: int, cap: object, held: int, batch: int) -> str:
    return (
        f"Concurrency config: processes={processes}, cluster_wide_cap={cap},"
        f" max_claim_per_worker={held}, max_claim_batch={batch}"
    )


EIGHT = "horsies worker myapp.instance:app --processes=8"
ROWS = {
    "single worker": Row(EIGHT, "simple", line(8, "unlimited", 8, 0), at_once=8),
    "two machines": Row(EIGHT, "capped", line(8, 20, 8, 0), at_once=16, machines=2),
    "batch": Row(
        "horsies worker myapp.instance:app --max-claim-batch=2",
        "capped",
        line(4, 20, 4, 2),
        at_once=4,
        more=("--processes=4",),
    ),
    "per worker": Row(
        "horsies worker myapp.instance:app --max-claim-per-worker=10",
        "simple",
        line(CORES, "unlimited", 10, 0),
        at_once=CORES,
    ),
}


def test_these_are_all_commands_of_the_seed() -> None:
    """Where the seeds are not at hand, the copies stand for them."""
    written = {row.command for row in ROWS.values()}
    for seed in SEEDS.glob("002_*.txt"):
        assert set(re.findall(r"^horsies worker .*$", seed.read_text(), re.MULTILINE)) == written
        assert ROWS["batch"].line in seed.read_text()


@pytest.fixture
def sender(live: LiveServer) -> Iterator[Penstock]:
    app = sender_to(live)
    yield app
    app.close_sync()


def home(folder: Path, config: str) -> Path:
    package = folder / "myapp"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "instance.py").write_text(INSTANCE.format(CONFIGS[config]))
    (package / "tasks.py").write_text(TASKS)
    return folder


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_command_of_the_seed_runs_as_much_at_once_as_it_says(
    live: LiveServer, sender: Penstock, tmp_path: Path, row: Row
) -> None:
    """The last task begins when one has ended, and not before: what tasks print is in the order of their doing."""
    words = row.command.removeprefix("horsies worker ").split()
    pipes = {f"{number}": tmp_path / f"{number}" for number in range(row.at_once + 1)}
    with contextlib.ExitStack() as stack:
        folder = home(tmp_path, row.config)
        machines = [
            stack.enter_context(program(folder, environment_of(live), *words, *row.more))
            for _ in range(row.machines)
        ]
        for pipe in pipes.values():
            os.mkfifo(pipe)
        handles = [sent(sender, "default", "hold", name, str(pipe)) for name, pipe in pipes.items()]
        at_work = [began(each, row.at_once // row.machines) for each in machines]
        first, last = at_work[0].pop(), set(pipes).difference(*at_work)
        pipes[first].write_text(first)
        assert machines[0].printed() == f"ended {first}"
        at_work.append(began(machines[0], 1))
        assert {first, *at_work[-1]} == last
        for name in itertools.chain(*at_work):
            pipes[name].write_text(name)
        assert {each.result_sync(timeout=PATIENCE_S) for each in handles} == set(pipes)
        assert [each.told_to_end() for each in machines] == [0] * row.machines
    for machine in machines:
        assert row.line + "\n" in machine.said
    if row.machines > 1:
        assert "cluster_wide_cap=20 cannot bind" in machines[0].said


def began(machine: Program, count: int) -> list[str]:
    lines = [machine.printed() for _ in range(count)]
    assert all(each.startswith("began ") for each in lines), (lines, machine.said)
    return [each.removeprefix("began ") for each in lines]
