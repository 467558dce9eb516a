"""A full disk: writes fail with a reason, reads continue, and the server recovers once there is space."""

from __future__ import annotations

import contextlib
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.checker import check
from tests.faults.deadlines import until
from tests.faults.load import Load, as_bytes, start_request
from tests.faults.observations import Kind, Start
from tests.faults.servers import LAUNCHER, Doomed, serving

pytestmark = pytest.mark.faults

ROOM_BYTES = 200_000


class LimitedFiles:
    """No file of the server may grow any further: what a quota looks like."""

    expected = {("store_unavailable", 503), ("storage_full", 507)}

    def __init__(self, doomed: Doomed, folder: Path) -> None:
        self._pid = doomed.live.pid
        self._folder = folder

    def fill(self) -> None:
        largest = max(each.stat().st_size for each in self._folder.iterdir())
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (largest + ROOM_BYTES, resource.RLIM_INFINITY))

    def free(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class SmallDisk:
    """A disk of a few megabytes that only the server sees, seen from here through its process."""

    expected = {("storage_full", 507)}

    def __init__(self, doomed: Doomed, folder: Path) -> None:
        self._filler = Path(f"/proc/{doomed.live.pid}/root{folder}/filler")

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        self._filler.unlink()


def own_mounts() -> list[str] | None:
    """How a process gets mounts of its own here; None where the kernel does not let us."""
    for flags in (["-m"], ["-r", "-m"]):
        command = ["unshare", *flags]
        probe = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        with contextlib.suppress(OSError):
            if subprocess.run(probe, check=False, capture_output=True).returncode == 0:
                return command
    return None


def on_a_small_disk(tmp_path: Path) -> tuple[Doomed, type[SmallDisk] | type[LimitedFiles], Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    doomed = Doomed(tmp_path, f"sqlite:///{folder}/penstock.db")
    unshared = own_mounts()
    if unshared is None:
        return doomed, LimitedFiles, folder
    mount = f"mount -t tmpfs -o size=6m none {shlex.quote(str(folder))}"
    serve = shlex.join([sys.executable, str(LAUNCHER), str(doomed.order)])
    doomed.live.command = (*unshared, "sh", "-c", f"{mount} && exec {serve}")
    return doomed, SmallDisk, folder


def with_limited_files(tmp_path: Path) -> tuple[Doomed, type[SmallDisk] | type[LimitedFiles], Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    return Doomed(tmp_path, f"sqlite:///{folder}/penstock.db"), LimitedFiles, folder


@pytest.mark.parametrize("place", [with_limited_files, on_a_small_disk])
async def test_a_full_disk_refuses_new_work_with_a_reason_and_everything_goes_on_when_there_is_room(
    tmp_path: Path, place: Callable[[Path], tuple[Doomed, type[SmallDisk] | type[LimitedFiles], Path]]
) -> None:
    doomed, kind_of_disk, folder = place(tmp_path)
    async with serving(doomed), Load([doomed.url]) as load:
        await load.start_many("before", workflows=5, activities=5)
        disk = kind_of_disk(doomed, folder)
        disk.fill()
        refusals = [await refused(load, f"full{number}-1") for number in range(5)]
        assert set(refusals) <= disk.expected
        status, body = await load.client.once("GET", "/api/workflows/before-w1", role="operator")
        assert (status, body["workflow_id"]) == (200, "before-w1")
        disk.free()
        await load.put_to_work()
        await load.start_many("after", workflows=5, activities=5)
        found = await load.finished()
    assert check(load.record, found) == []
    assert doomed.live.process is not None
    assert len(found.runs) == 20 + sum(run.id.startswith("full") for run in found.runs)


async def test_a_server_that_cannot_even_open_its_file_again_says_so_and_goes_on_later(
    tmp_path: Path, sqlite_database: str
) -> None:
    doomed = Doomed(tmp_path, sqlite_database)
    async with serving(doomed), Load([doomed.url]) as load:
        await load.start_many("before", workflows=1, activities=0)
        disk, pid = LimitedFiles(doomed, tmp_path), doomed.live.pid
        few, many = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        disk.fill()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, many))
        for number in range(3):
            assert (await refused(load, f"stuck{number}-1"))[1] == 503
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, many))
        disk.free()
        await load.put_to_work()
        await load.start_many("after", workflows=1, activities=1)
        found = await load.finished()
    assert check(load.record, found) == []


async def refused(load: Load, name: str) -> tuple[str, int]:
    """Start large things until one is refused."""
    numbers = iter(range(10_000))

    async def attempt() -> tuple[str, int] | None:
        start = Start(Kind.WORKFLOW, f"{name}-x{next(numbers)}", sends=1)
        load.record.starts.append(start)
        path, body = start_request(start)
        raw = as_bytes(body | {"input": ["x" * 50_000]})
        status, answer = await load.client.once("POST", path, raw, role="operator", key=f"key-{start.id}")
        if status == 201:
            start.run_ids.append(answer["run_id"])
            return None
        return answer["reason"], status

    return await until("a start is refused", attempt)
