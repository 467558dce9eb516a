"""The client process: takes one order as JSON on stdin, carries it out, writes the outcome on stdout."""

from __future__ import annotations

import sys

import msgspec
import uvloop

from benchmarks.driving import drive
from benchmarks.work import Order


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(drive(order))))


if __name__ == "__main__":
    main()
