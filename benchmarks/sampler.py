"""Stacks of running processes, sampled by py-spy from outside, a hundred times a second.

A process is stopped for each of its samples, so the frames of C that lie below those of Python fit to them. That
makes it slower: what a sampled process took is never a figure, only how its time was shared.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.layers import Stacks
from benchmarks.peers.environments import environment
from benchmarks.workloads import Say

PY_SPY = ("py-spy==0.4.3",)
RATE = 100
ATTACH_SECONDS_MAX = 20.0
END_SECONDS_MAX = 30.0
READY = "Sampling process"
_numbers = itertools.count(1)


@dataclass(eq=False, slots=True)
class Spy:
    """One py-spy, and the process that it looks at."""

    process: subprocess.Popen[bytes]
    stacks: Path
    log: Path

    def wait_until_it_samples(self) -> None:
        ends_at = time.monotonic() + ATTACH_SECONDS_MAX
        while time.monotonic() < ends_at and self.process.poll() is None:
            if READY in self.log.read_text(errors="replace"):
                return
            time.sleep(0.02)

    @property
    def has_failed(self) -> bool:
        return self.process.poll() is not None

    def said(self) -> str:
        """Why it ended: what it wrote first that is not about its work."""
        return reason(self.log.read_text(errors="replace"))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_SECONDS_MAX)


@dataclass(eq=False, slots=True)
class Sampling:
    """Processes that are looked at, until the block ends; their stacks are known after it."""

    sampler: Sampler
    spies: dict[str, Spy] = field(default_factory=dict)
    stacks: dict[str, Stacks] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Processes without stacks, and why."""

    def attach(self, pids: Mapping[str, int], *, wait: bool = True) -> None:
        """Look at these, too, but for those that are looked at already."""
        new = {name: self.sampler.spy(pid) for name, pid in pids.items() if name not in self.spies}
        self.spies |= new
        for spy in new.values() if wait else ():
            spy.wait_until_it_samples()

    def end(self) -> None:
        for spy in self.spies.values():
            if not spy.has_failed:
                spy.process.send_signal(signal.SIGINT)
        for name, spy in self.spies.items():
            spy.end()
            if spy.stacks.exists():
                self.stacks[name] = read(spy.stacks.read_text(errors="replace").splitlines())
            else:
                self.failed[name] = spy.said()


class Sampler:
    """Raises `Absent` where py-spy is not here and may not be installed."""

    def __init__(self, folder: Path, say: Say, *, install: bool) -> None:
        self._program = environment(PY_SPY, say, install=install) / "bin" / "py-spy"
        self._folder = folder / f"sampled-{next(_numbers)}"
        self._folder.mkdir()
        self.is_native = True

    def try_on(self, pid: int) -> str:
        """Look at a process once, with the frames of C or else without; why it cannot be, if so."""
        why = ""
        for self.is_native in (True, False):
            spy = self.spy(pid)
            spy.wait_until_it_samples()
            why = spy.said() if spy.has_failed else ""
            spy.end()
            if not why:
                break
        return why

    @contextlib.contextmanager
    def sampling(self) -> Iterator[Sampling]:
        found = Sampling(self)
        try:
            yield found
        finally:
            found.end()

    def spy(self, pid: int) -> Spy:
        number = next(_numbers)
        stacks, log = (self._folder / f"{number}.{kind}" for kind in ("stacks", "log"))
        native = ("--native",) if self.is_native else ()
        command = (self._program, "record", "--pid", str(pid), "--rate", str(RATE), "--format", "raw")
        rest = ("--function", "--threads", *native, "--output", stacks)
        with log.open("wb") as said:
            return Spy(
                subprocess.Popen(
                    (*command, *rest), stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self._folder
                ),
                stacks,
                log,
            )


def reason(said: str) -> str:
    """The first line is the message; what may follow is a trace of py-spy's own code."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("py-spy>")]
    return lines[0].removeprefix("Error: ") if lines else "it ended and said nothing"


def read(lines: Iterable[str]) -> Stacks:
    """How often each stack was seen, whatever the number of its thread."""
    found: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if stack and count.isdigit():
            found[_without_thread(stack)] += int(count)
    return found


def _without_thread(stack: str) -> str:
    first, _, rest = stack.partition(";")
    return rest if first.startswith("thread (") and rest else stack
