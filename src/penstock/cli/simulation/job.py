"""`penstock simulate job`: what a server starts for a simulation that was asked for over its API."""

from __future__ import annotations

import base64
import binascii
import os
import sys
import tempfile
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.grammar import CommandReach, verb
from penstock.cli.simulation.background_runs import (
    in_background,
    limit_process,
    parsed_changes,
    read_load,
    run_workload,
    simulated,
)
from penstock.cli.simulation.find import find_change, live_load
from penstock.errors import InvalidInput, PenstockError, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.simulator.changes import Change
    from penstock.simulator.live.live_model import LiveModel
    from penstock.simulator.load_source import LoadSource

MEMORY_BYTES = 2 * 1024**3
CPU_S = 300
TASKS_MAX = 50_000
_NICENESS = 19


@verb("job", reach=CommandReach.TEXT, example="penstock simulate job < job.json")
def job() -> None:
    """Run the simulation that is read as one line of JSON, until the input ends; print its result as JSON."""
    import msgspec

    os.nice(_NICENESS)
    limit_process(MEMORY_BYTES, CPU_S)
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        answer: dict[str, Any] = {"result": _answer(msgspec.json.decode(line))}
    except PenstockError as refused:
        answer = {"problem": {"reason": refused.reason.value, "message": refused.message}}
    except MemoryError:
        answer = {
            "problem": {"reason": "simulation_too_large", "message": "It took more memory than it may."}
        }
    except Exception:
        traceback.print_exc()
        os._exit(1)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()
    os._exit(0)  # The thread that reads the input holds its lock, so the interpreter cannot end by itself.


job.hidden = True


def _end_with_input() -> None:
    """End the process once the other end of its input is gone: nobody waits for the result."""
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(1)


def _answer(asked: Mapping[str, Any]) -> Any:
    import msgspec

    changes = parsed_changes(asked["set"], asked["workers"], asked["keys"], asked["kills"])
    if asked.get("change_set_items"):
        from penstock.simulator.changes import of_change_set

        changes += of_change_set(asked["change_set_items"])
    if asked["live"] is not None:
        found = _of_state(asked, changes)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = _of_load(asked, _load(asked, Path(folder)), changes)
    return msgspec.to_builtins(found)


def _of_state(asked: Mapping[str, Any], changes: Sequence[Change]) -> Any:
    """A forecast from the state of the server, or the smallest change that drains a backlog in time."""
    from importlib.metadata import version

    from penstock.simulator.live.forecast import LiveForecast
    from penstock.simulator.search.targets import parse_target

    if asked["kills"]:
        raise _invalid("kills are times of a load; the state of a server has none")
    state = _state(asked)
    if asked["target"] is not None:
        target = parse_target(asked["target"])
        load = live_load(state, target)
        return find_change(
            load.with_changes(changes) if changes else load, target, asked["may"], **_sampling(asked)
        )
    forecast = LiveForecast(state, changes, seed=asked["seed"])
    with in_background() as on_progress:
        run = partial(run_workload, on_progress)
        import asyncio

        return asyncio.run(forecast.find(run, version("penstock"), asked["live"]["queue"]))


def _state(asked: Mapping[str, Any]) -> LiveModel:
    import msgspec

    from penstock.simulator.live.live_model import Given, live_model
    from penstock.simulator.live.server_bodies import QueueBodies, ServerBodies, instant
    from penstock.simulator.model_file import milliseconds

    queues = [msgspec.convert(each, QueueBodies) for each in asked["state"]["queues"]]
    now_ms = max((instant(each.series["activity"]["as_of"]) for each in queues), default=0)
    takes = asked["live"]["takes"]
    given = Given(None if takes is None else milliseconds(takes), asked["live"]["arrivals_per_minute"])
    return live_model(ServerBodies(now_ms, queues, asked["state"]["workers"]), given)


def _of_load(asked: Mapping[str, Any], load: LoadSource, changes: Sequence[Change]) -> Any:
    """A comparison on a model or a trace, or the smallest change on it."""
    from penstock.simulator.search.targets import parse_target

    if asked["target"] is not None:
        found = load.with_changes(changes) if changes else load
        return find_change(found, parse_target(asked["target"]), asked["may"], **_sampling(asked))
    return simulated(load, changes, **_sampling(asked))[1]


def _sampling(asked: Mapping[str, Any]) -> dict[str, int]:
    return {"seed": asked["seed"], "replications": asked["replications"], "tasks_max": TASKS_MAX}


def _load(asked: Mapping[str, Any], folder: Path) -> LoadSource:
    if asked["model"] is not None:
        from penstock.simulator.load_source import ModelLoad
        from penstock.simulator.model_file import model_of

        return ModelLoad(model_of(asked["model"], "The model"))
    path = folder / "x.trace"
    try:
        path.write_bytes(base64.b64decode(asked["trace"], validate=True))
    except (binascii.Error, ValueError):
        raise _invalid("trace is no base64") from None
    try:
        return read_load(path, TASKS_MAX)
    except InvalidInput as refused:
        raise _invalid(refused.message.replace(str(path), "The trace")) from None


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(Reason.VALIDATION_FAILED, message)
