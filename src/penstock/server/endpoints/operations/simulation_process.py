"""Runs a simulation as `penstock simulate job` in a process of its own: niced, with limits of memory and time.

The process reads its job from its input and keeps looking at it: when the server goes away, the input ends, and so does
the process.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import msgspec

from penstock.ports.simulation_process import SimulationFailure

_ERRORS_SHOWN = 500


class PenstockSimulation:
    """Starts one process for each job."""

    async def run(self, job: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "penstock",
            "simulate",
            "job",
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=2**23,
        )
        try:
            assert process.stdin is not None, "its input is a pipe"
            process.stdin.write(job + b"\n")
            await process.stdin.drain()
            assert process.stdout is not None, "its output is a pipe"
            assert process.stderr is not None, "its errors are a pipe"
            answer, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return _result(answer, errors, process.returncode)


def _result(answer: bytes, errors: bytes, code: int | None) -> bytes:
    try:
        found = msgspec.json.decode(answer, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        said = errors.decode(errors="replace").strip()[-_ERRORS_SHOWN:]
        why = said or "it took more memory or time than a simulation may"
        raise SimulationFailure("simulation_ended", f"The process ended with {code}: {why}") from None
    if "problem" in found:
        problem = msgspec.json.decode(found["problem"], type=dict[str, str])
        raise SimulationFailure(problem["reason"], problem["message"])
    return bytes(found["result"])
