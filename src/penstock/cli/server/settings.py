"""Reads the settings of a server for the commands that work on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.output.advice import ADVICE
from penstock.cli.output.exits import CommandError, ServerMisconfigured, warn
from penstock.errors import ConfigurationError, PenstockError

if TYPE_CHECKING:
    from penstock.settings import Settings


def load_settings(config: Path | None, flags: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that the file, the environment and the flags give; the last win.

    Every problem is named, and the command ends with exit code 78.
    """
    from penstock import settings

    with explained():
        loaded = settings.load(
            os.environ, config, flags=flags, server_id_default=f"{socket.gethostname()}-{os.getpid()}"
        )
    for warning in loaded.warnings:
        warn(warning)
    return loaded


@contextmanager
def explained() -> Iterator[None]:
    """Turn our own errors into a line with the reason, the message and what to do next."""
    try:
        yield
    except ConfigurationError as error:
        raise ServerMisconfigured(error.details.get("problems") or [error.message]) from error
    except PenstockError as error:
        raise CommandError(error.reason, error.message, ADVICE.get(error.reason, "")) from error


def listen_flags(host: str | None, port: int | None, processes: int | None = None) -> dict[str, str]:
    """The settings behind --host, --port and --processes, where they were given."""
    given = {"DW_HOST": host, "DW_PORT": port, "DW_SERVER_PROCESSES": processes}
    return {name: str(value) for name, value in given.items() if value is not None}
