"""The tutorial as written: its files are saved, its commands run, its outputs compared."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.clone import clone
from tests.support.live import free_port
from tests.support.patience import PATIENCE_S

PAGES = Path(__file__).parents[2] / "docs" / "tutorial"
ORDER = ("index.md", "kill-the-worker.md", "kill-the-server.md", "test-it.md")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"[Ss]ave this as `([\w.]+)`:\s*\Z")
DONE_FOR_US = ("make ", ". .venv/bin/activate")
"""Commands that are not needed in this environment."""
SHOWN_PORT = "8080"
END = "—the end of a command—"


@dataclass(frozen=True)
class Step:
    """A file to save, or a command and what it prints."""

    text: str
    saved_as: str | None = None
    printed: str = ""


def steps(page: str) -> Iterator[Step]:
    text = (PAGES / page).read_text()
    for found in BLOCK.finditer(text):
        kind, body = found.groups()
        if kind == "python":
            name = SAVED.search(text[: found.start()])
            assert name, f"{page}: a block of code is not saved: {body[:60]}"
            yield Step(body, saved_as=name[1])
        else:
            yield from commands(body)


def commands(block: str) -> Iterator[Step]:
    starts = [match.start() for match in re.finditer(r"^\$ ", block, re.MULTILINE)]
    for start, end in pairwise([*starts, len(block)]):
        command, _, printed = block[start:end].removeprefix("$ ").partition("\n")
        yield Step(command, printed=printed)


class Terminal:
    """One shell in which a reader types. Its output is read command by command."""

    def __init__(self, folder: Path) -> None:
        self.port = str(free_port())
        around = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DW_", "DURABLE_WORKFLOW_", "PENSTOCK_", "PYTEST_", "PYTHON"))
        }
        around |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "DW_PORT": self.port,
            "LC_ALL": "C.UTF-8",
        }
        self.folder = folder
        self.jobs: set[int] = set()
        self.shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=around,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _kill(self) -> None:
        """Kill the shell and what it started, which would keep its output open."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGKILL)

    def type(self, command: str) -> str:
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f"{command.replace(SHOWN_PORT, self.port)}\necho '{END}' $(jobs -p)\n")
        self.shell.stdin.flush()
        too_long = threading.Timer(PATIENCE_S, self._kill)
        too_long.start()
        printed: list[str] = []
        for line in self.shell.stdout:
            if line.startswith(END):
                too_long.cancel()
                self.jobs = {int(pid) for pid in line.removeprefix(END).split()}
                return "".join(printed)
            if not re.search(r"\bKilled\b|\bTerminated\b", line):  # messages of the shell about its jobs
                printed.append(line.replace(self.port, SHOWN_PORT))
        raise AssertionError(f"$ {command}\n{''.join(printed)}\n(it does not end)")

    def save(self, name: str, text: str) -> None:
        (self.folder.parent / "tea" / name).write_text(text)

    def close(self) -> None:
        """Stop what the page started, by process id, whether it reached its end or not."""
        for pid in self.jobs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._kill()
        self.shell.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = Terminal(clone(tmp_path_factory.mktemp("tutorial")))
    yield terminal
    terminal.close()


def plain(output: str) -> list[str]:
    """Return lines without what differs between runs: ids, times, numbers, column widths."""
    varying = r"\b[0-9a-f]{20,}\b|\d{4}-\d\d-\d\dT[\d:.]+Z|just now|\d+ \w+ ago|\d+(\.\d+)?"
    lines = [re.sub(varying, "#", line) for line in output.splitlines()]
    return [found for line in lines if (found := " ".join(line.split()))]


@pytest.mark.acceptance
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("page", ORDER)
def test_whoever_does_what_the_page_says_sees_what_it_shows(page: str, terminal: Terminal) -> None:
    for step in steps(page):
        if step.saved_as is not None:
            terminal.save(step.saved_as, step.text)
        elif not step.text.startswith(DONE_FOR_US):
            printed = terminal.type(step.text)
            assert plain(printed) == plain(step.printed), f"$ {step.text}\n{printed}"


def test_every_page_of_the_tutorial_is_done_here() -> None:
    assert {path.name for path in PAGES.glob("*.md")} == set(ORDER)
