"""The command line: `penstock`, and `dw`, the same commands in the spelling of the contract."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the program as `penstock`."""
    from penstock.cli.program import run

    try:
        run()
    finally:
        if "temporalio.bridge" in sys.modules:
            _leave(sys.exc_info()[1])


def dw() -> NoReturn:
    """Run the program as `dw`."""
    from penstock.cli.contract.program import run

    run()


def _leave(error: BaseException | None) -> None:
    """End the process at once, with the exit code of `error`, after everything was closed and written.

    The native threads of temporalio outlive the last command. One that releases a Python object while the interpreter
    is being torn down aborts the process (`PyGILState_Release`), whatever its exit code was to be.
    """
    import atexit
    import os

    if not isinstance(error, SystemExit) or not isinstance(error.code, int | None):
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(error.code or 0)
