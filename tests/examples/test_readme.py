"""The README as written: in a clone, with its server, its worker and its commands in order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clone import ROOT, clone
from tests.support.live import free_port
from tests.support.patience import PATIENCE_S

README = ROOT / "README.md"
BLOCK = re.compile(r"^```(toml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"Save this as `([\w.]+)`:\s*\Z")
OF_YOUR_OWN = re.compile(r"of your own[^\n]*:\s*\Z")
"""Ends the paragraph before commands that need something the reader does not have."""
DONE_FOR_US = ("make ",)
STAYS = (".venv/bin/penstock dev", ".venv/bin/python docs/examples/greeter.py")
SHOWN_PORT = "8080"


class Terminals:
    """The terminals of a reader, all in the clone and with the same exports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = str(free_port())
        outside = {
            k: v for k, v in os.environ.items() if not k.startswith(("DW_", "DURABLE_WORKFLOW_", "PENSTOCK_"))
        }
        self.environment = outside | {
            "DW_PORT": self.port,
            "DW_JOURNAL": "true",
            "DW_LOG_LEVEL": "error",
            "LC_ALL": "C.UTF-8",
        }
        self.staying: list[subprocess.Popen[str]] = []

    def stay(self, command: str) -> None:
        """Start a command that keeps its terminal; wait until a server reports that it is ready."""
        process = subprocess.Popen(
            command.split(),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if command.endswith("dev") else subprocess.DEVNULL,
            text=True,
        )
        self.staying.append(process)
        if process.stderr is not None:
            printed = list(iter(process.stderr.readline, "ready\n")) if process.poll() is None else []
            assert process.poll() is None, "".join(printed)

    def type(self, command: str) -> None:
        exported = re.fullmatch(r"export (\w+)=(.*)", command)
        if exported:
            asked = subprocess.run(
                ["bash", "-c", f"printf %s {exported[2]}"],
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=True,
            )
            self.environment[exported[1]] = asked.stdout
            return
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == 0, f"$ {command}\n{ended.stdout}{ended.stderr}"

    def close(self) -> None:
        for process in reversed(self.staying):
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)
            if process.stderr is not None:
                process.stderr.close()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(clone(tmp_path))
    yield made
    made.close()


@pytest.mark.acceptance
def test_every_command_of_the_readme_works_as_printed_where_the_reader_stands(terminals: Terminals) -> None:
    text = README.read_text()
    typed = 0
    for found in BLOCK.finditer(text):
        kind, body = found.groups()
        before = text[: found.start()]
        if kind == "toml":
            name = SAVED.search(before)
            assert name, "a file that is shown is saved"
            (terminals.folder / name[1]).write_text(body)
        elif not OF_YOUR_OWN.search(before):
            typed += run(terminals, body)
    assert typed > 20


def run(terminals: Terminals, block: str) -> int:
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
    for shown in commands:
        command = shown.replace(SHOWN_PORT, terminals.port)
        if command.startswith(DONE_FOR_US):
            continue
        if command in STAYS:
            terminals.stay(command)
        else:
            terminals.type(command)
    return len(commands)
