"""The client process: takes orders as lines of JSON on stdin and writes each outcome as a line on stdout."""

from __future__ import annotations

import sys

import msgspec
import uvloop

from benchmarks.work import Order
from benchmarks.workload_loops import drive


def main() -> None:
    for line in sys.stdin.buffer:
        outcome = uvloop.run(drive(msgspec.json.decode(line, type=Order)))
        sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
