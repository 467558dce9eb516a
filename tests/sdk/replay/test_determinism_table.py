"""The guide's table of what the determinism guard stops and lets through: each row is tried in workflow code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.sdk import workflow
from penstock.sdk.replay.errors import DeterminismViolationError
from tests.sdk.replay.histories_by_hand import Story, a_run

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "writing-workflows.md"
SHARED: list[int] = []
STOPPED = {
    "`time.time()`, `time.monotonic()`, `time.sleep()`": (
        *("import time; time.time()", "import time; time.monotonic()", "import time; time.sleep(0)"),
        "from time import perf_counter_ns as ns; ns()",
    ),
    "`datetime.now()`, `date.today()`": (
        "import datetime; datetime.datetime.now()",
        "import datetime; datetime.date.today()",
    ),
    "`random.random()`, `secrets`, `os.urandom()`": (
        *("import random; random.random()", "import random; random.choice([1, 2])"),
        *("import secrets; secrets.token_hex()", "import os; os.urandom(1)"),
    ),
    "`uuid.uuid4()`, `uuid.uuid1()`": ("import uuid; uuid.uuid4()", "import uuid; uuid.uuid1()"),
    "threads, executors": (
        "import threading; threading.Thread(target=print).start()",
        "from concurrent.futures import ThreadPoolExecutor as E; E().submit(print)",
    ),
    "sockets, names of hosts": (
        *("import socket; socket.socket()", "import socket; socket.gethostname()"),
        "import socket; socket.getaddrinfo('localhost', 80)",
    ),
    "files, directories, databases": (
        *(
            "open('/etc/hostname')",
            "import os; os.listdir('.')",
            "import pathlib; list(pathlib.Path().iterdir())",
        ),
        "import sqlite3; sqlite3.connect(':memory:')",
    ),
    "processes, `os.getpid()`, `os.getcwd()`, `os.cpu_count()`": (
        *("import subprocess; subprocess.run(['true'])", "import os; os.getpid()", "import os; os.getcwd()"),
        "import os; os.cpu_count()",
    ),
    "`os.environ`, `os.getenv()`": (
        *(
            "import os; os.environ['PATH']",
            "import os; os.environ.get('NONE')",
            "import os; os.getenv('PATH')",
        ),
        "import os; 'PATH' in os.environ",
    ),
    "`hash()` outside of a `__hash__`": ("hash('text')", "hash(('a', 1))"),
    "`input()`": ("input()",),
    "`asyncio.as_completed()` of coroutines": (
        "import asyncio as a\nasync def c(): 0\nx = c()\ntry:\n  a.as_completed([x])\nfinally:\n  x.close()",
    ),
}
LET_THROUGH = {
    "the order of a `set`": ("list({'a', 'b'})",),
    "globals and class attributes": ("SHARED.append(1); SHARED.clear()",),
    "`print()`": ("print('printed')",),
    "`id()`, `repr()` of an object": ("id(object()), repr(object())",),
    "`time.strftime()`, `time.localtime()` without a time": (
        "import time; time.strftime('%Y'); time.localtime()",
    ),
    "clocks and files inside C extensions": ("import zlib; zlib.crc32(b'no hook sees what it does')",),
}
NEVER_STOPPED = (
    "import json, decimal, graphlib",
    "import logging; logging.getLogger('mine').warning('logged')",
    "from dataclasses import make_dataclass as m; {m('P', ['x'], frozen=True)(1): 1}",
    "{'key': 1}['key'], {1, 2} == {2, 1}",
    "import zoneinfo; zoneinfo.ZoneInfo('Europe/Vienna')",
)
"""What workflow code may do with all of it."""


@workflow.defn
class Tries:
    @workflow.run
    async def run(self, code: str) -> None:
        exec(code, globals())


def tried(code: str) -> None:
    a_run(Tries).activate(Story(code).events)


@pytest.mark.parametrize("code", [each for codes in STOPPED.values() for each in codes])
def test_what_the_table_says_is_stopped_is(code: str) -> None:
    with pytest.raises(DeterminismViolationError):
        tried(code)


@pytest.mark.parametrize(
    "code", [*(each for codes in LET_THROUGH.values() for each in codes), *NEVER_STOPPED]
)
def test_what_the_table_says_is_let_through_is(code: str) -> None:
    tried(code)


def test_the_table_has_exactly_the_rows_that_are_tried() -> None:
    rows = re.findall(r"^\| (.+?) \| (stopped|let through) \|", GUIDE.read_text(), flags=re.MULTILINE)
    tried_rows = [(name, "stopped") for name in STOPPED] + [(name, "let through") for name in LET_THROUGH]
    assert rows == tried_rows


def test_a_block_may_do_what_the_guard_stops() -> None:
    tried("import os\nwith workflow.unsafe.sandbox_unrestricted():\n    os.environ.get('PATH'), hash('text')")
