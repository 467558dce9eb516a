"""The command line: `penstock`, and `dw`, the same commands in the spelling of the contract."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the program as `penstock`."""
    from penstock.cli.program import run

    run()


def dw() -> NoReturn:
    """Run the program as `dw`."""
    from penstock.cli.contract.program import run

    run()
