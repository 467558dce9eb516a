"""The command line: `penstock` and `dw`, one program under two names."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the program as `penstock`."""
    _run("penstock")


def dw() -> NoReturn:
    """Run the program as `dw`."""
    _run("dw")


def _run(name: str) -> NoReturn:
    from penstock.cli.program import run

    run(name)
