"""Where a process spends its time: the layer that each sampled stack belongs to, and its busiest functions.

A stack is a line of frames from the outermost to the innermost, as py-spy writes them. The innermost frame that
says whose work it is decides. A thread that only waits is told by its stack, too: a sampler that stops a process
wakes its threads, so that some which sleep look as if they ran.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

Stacks = Mapping[str, int]
"""How often each stack was seen."""
DEEP = 6
"""So many frames from the innermost on say whether a thread waits."""


class Layer(StrEnum):
    HTTP = "HTTP"
    WIRE = "JSON and wire forms"
    ENGINE = "engine"
    SCHEDULING = "scheduling"
    HISTORY = "history and values"
    STORE = "store in Python"
    DRIVER = "database driver"
    SQLITE = "SQLite's own code"
    FILES = "files (kernel)"
    SOCKETS = "sockets (kernel)"
    LOOP = "event loop and threads"
    COLLECTING = "garbage collection"
    TELLING = "metrics and logs"
    SDK = "SDK"
    REPLAY = "workflow code and replay"
    TASKS = "tasks and activities"
    BENCHMARK = "the benchmark itself"
    REST = "everything else"


KERNEL = (Layer.FILES, Layer.SOCKETS)


class Wait(StrEnum):
    IDLE = "nothing to do"
    LOCK = "the interpreter lock"
    DISK = "the disk"


_FRAME = re.compile(r"^(?P<function>.*) \((?P<place>[^()]*?)(?::\d+)?\)$")
_LOCK_WAITS = ("pthread_cond_timedwait", "pthread_cond_wait", "take_gil")
_SLEEPS = (
    "PyThread_acquire_lock_timed",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "select",
    "clock_nanosleep",
    "sem_clockwait",
    "sem_wait",
)
_DISK_WAITS = ("fsync", "fdatasync")
_FILE_CALLS = ("pwrite64", "pread64", "pwrite", "pread", "ftruncate64", "openat", "unlink", "fcntl64")
_STREAM_CALLS = ("write", "writev", "read", "recv", "recvfrom", "send", "sendto", "sendmsg", "recvmsg")
_IDLE_FRAMES = (
    ("_worker", "concurrent/futures/thread.py"),
    ("SqliteStore._next_group", "penstock/stores/sqlite/store.py"),
    ("Condition.wait", "threading.py"),
    ("_DetectorThread._watch", "penstock/sdk/replay/deadlock_detector.py"),
)
"""Innermost Python frames of threads that wait, for stacks without the frames of C."""
_LAYERS: tuple[tuple[str, Layer], ...] = (
    ("penstock/server/metrics.py", Layer.TELLING),
    ("prometheus_client/", Layer.TELLING),
    ("structlog/", Layer.TELLING),
    ("logging/", Layer.TELLING),
    ("penstock/server/", Layer.HTTP),
    ("uvicorn/", Layer.HTTP),
    ("httptools/", Layer.HTTP),
    ("aiohttp/", Layer.HTTP),
    ("yarl/", Layer.HTTP),
    ("multidict/", Layer.HTTP),
    ("penstock/sdk/connection/transport.py", Layer.HTTP),
    ("penstock/wire/", Layer.WIRE),
    ("penstock/core/json_text.py", Layer.WIRE),
    ("penstock/core/payload_codec.py", Layer.WIRE),
    ("penstock/sdk/converters/", Layer.WIRE),
    ("msgspec/", Layer.WIRE),
    ("json/", Layer.WIRE),
    ("penstock/engine/", Layer.ENGINE),
    ("penstock/wakeups/", Layer.ENGINE),
    ("penstock/coordination/", Layer.ENGINE),
    ("penstock/world.py", Layer.ENGINE),
    ("penstock/core/scheduling/", Layer.SCHEDULING),
    ("penstock/core/admission.py", Layer.SCHEDULING),
    ("penstock/core/limits.py", Layer.SCHEDULING),
    ("penstock/core/rates.py", Layer.SCHEDULING),
    ("penstock/core/windows.py", Layer.SCHEDULING),
    ("penstock/core/policies.py", Layer.SCHEDULING),
    ("penstock/core/", Layer.HISTORY),
    ("penstock/stores/", Layer.STORE),
    ("asyncpg/", Layer.DRIVER),
    ("pysqlite3/", Layer.DRIVER),
    ("penstock/sdk/replay/", Layer.REPLAY),
    ("penstock/sdk/workflow.py", Layer.REPLAY),
    ("penstock/sdk/workflow_api/", Layer.REPLAY),
    ("penstock/sdk/activities/", Layer.TASKS),
    ("penstock/sdk/activity.py", Layer.TASKS),
    ("penstock/sdk/tasks/", Layer.TASKS),
    ("penstock/sdk/", Layer.SDK),
    ("penstock/dispatch/", Layer.SDK),
    ("benchmarks/", Layer.BENCHMARK),
    ("asyncio/", Layer.LOOP),
    ("concurrent/", Layer.LOOP),
    ("uvloop/", Layer.LOOP),
    ("threading.py", Layer.LOOP),
    ("selectors.py", Layer.LOOP),
    ("queue.py", Layer.LOOP),
)
"""By how the place of a frame begins, the first that fits. Places that are not here belong to whoever called them."""
_LAYERS_OF_C: Mapping[str, Layer] = {
    "sqlite3.c": Layer.SQLITE,
    "cursor.c": Layer.DRIVER,
    "statement.c": Layer.DRIVER,
    "connection.c": Layer.DRIVER,
    "microprotocols.c": Layer.DRIVER,
    "row.c": Layer.DRIVER,
    "protocol.c": Layer.DRIVER,
    "pgproto.c": Layer.DRIVER,
    "recordobj.c": Layer.DRIVER,
    "llhttp.c": Layer.HTTP,
    "parser.c": Layer.HTTP,
    "url_parser.c": Layer.HTTP,
    "_http_parser.c": Layer.HTTP,
    "_http_writer.c": Layer.HTTP,
    "_multidict.c": Layer.HTTP,
    "loop.c": Layer.LOOP,
    "core.c": Layer.LOOP,
    "stream.c": Layer.LOOP,
    "linux.c": Layer.LOOP,
    "async.c": Layer.LOOP,
    "_asynciomodule.c": Layer.LOOP,
    "_queuemodule.c": Layer.LOOP,
}
"""Of libraries that tell the names of their source files."""
_LIBRARIES = (("libsqlite3", Layer.SQLITE), ("libpq", Layer.DRIVER))


def frame(text: str) -> tuple[str, str]:
    """Its function, and its file or library without the line."""
    found = _FRAME.match(text)
    return (found["function"], found["place"]) if found else (text, "")


def wait_of(frames: Sequence[tuple[str, str]]) -> Wait | None:
    """What the thread waits for, if it does."""
    for function, place in frames[: -DEEP - 1 : -1]:
        if _is_python(place):
            break
        if function in _LOCK_WAITS:
            return Wait.LOCK
        if function in _DISK_WAITS:
            return Wait.DISK
        if function in _SLEEPS:
            return Wait.IDLE
    function, place = frames[-1]
    inner = next((each for each in reversed(frames) if _is_python(each[1])), ("", ""))
    if function == "read" and inner[1].startswith("concurrent/"):
        return Wait.IDLE  # a thread that reads what it is asked
    return Wait.IDLE if (function, place) in _IDLE_FRAMES else None


def layer_of(frames: Sequence[tuple[str, str]]) -> Layer:
    """Whose work it is."""
    innermost = [function for function, _ in frames[-DEEP:]]
    if any(function.startswith("gc_collect") for function in innermost):
        return Layer.COLLECTING
    layer = next((each for each in map(_layer_of_place, reversed(frames)) if each is not None), Layer.REST)
    call = frames[-1][0]
    if call in _FILE_CALLS or (call in _STREAM_CALLS and layer is Layer.SQLITE):
        return Layer.FILES
    return Layer.SOCKETS if call in _STREAM_CALLS and layer is Layer.LOOP else layer


def _layer_of_place(each: tuple[str, str]) -> Layer | None:
    place = each[1]
    if place in _LAYERS_OF_C:
        return _LAYERS_OF_C[place]
    for begin, layer in (*_LAYERS, *_LIBRARIES):
        if place.startswith(begin):
            return layer
    return None


def _is_python(place: str) -> bool:
    return place.endswith(".py") or place.startswith("<")


def profile(stacks: Stacks, functions: int, kernel: float = 1.0) -> dict[str, Any]:
    """Layers and functions by share of the samples in which a thread worked; waits by that of all but idle ones.

    A thread that has no core, for the one that it woke took it, looks as if it were still at work in the kernel. So
    no more counts there than `kernel`, the share of its CPU that the kernel itself counted.
    """
    layers: Counter[Layer] = Counter()
    waits: Counter[str] = Counter()
    busiest: Counter[tuple[str, Layer]] = Counter()
    for text, count in stacks.items():
        frames = [frame(each) for each in text.split(";")]
        wait = wait_of(frames)
        if wait is not None:
            waits[wait.value] += count
            continue
        layer = layer_of(frames)
        layers[layer] += count
        busiest[_function(frames, layer), layer] += count
    idle, weight = waits.pop(Wait.IDLE.value, 0), _weights(layers, kernel)
    shares = {layer.value: weight[layer] * count for layer, count in layers.items()}
    named = {name: weight[layer] * count for (name, layer), count in busiest.items()}
    waited = layers.total() + waits.total()
    return {
        "samples": layers.total(),
        "idle_samples": idle,
        "layers": dict(_largest(shares)),
        "waits": {name: round(count / waited, 4) for name, count in waits.most_common()},
        "functions": [{"function": name, "share": share} for name, share in _largest(named)[:functions]],
    }


def _weights(layers: Mapping[Layer, int], kernel: float) -> dict[Layer, float]:
    """What one sample of each layer counts, of all."""
    whole = sum(layers.values())
    seen = sum(layers.get(layer, 0) for layer in KERNEL)
    counted = min(seen, kernel * whole)
    if not seen or seen == whole:
        return dict.fromkeys(layers, 1 / whole) if whole else {}
    inside, outside = counted / seen / whole, (whole - counted) / (whole - seen) / whole
    return {layer: inside if layer in KERNEL else outside for layer in layers}


def _largest(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    ordered = sorted(shares.items(), key=lambda each: -each[1])
    return [(name, round(share, 4)) for name, share in ordered]


def _function(frames: Sequence[tuple[str, str]], layer: Layer) -> str:
    """The innermost function in Python that says whose work it is, and what was done for it elsewhere."""
    python = [each for each in frames if _is_python(each[1])] or [frames[-1]]
    own = next((each for each in reversed(python) if _layer_of_place(each) is not None), python[-1])
    name = f"{own[0]} ({own[1].removeprefix('penstock/')})"
    if own != python[-1]:
        name += f": {python[-1][0]}"
    return name if _layer_of_place(own) is layer else f"{name} > {layer.value}"
