"""Named environments of `dw`: server, namespace, source of the token and format, in the contract's own file.

The file and its place are those of the contract's command line, so that both read one set of environments. It may hold
a token: it is readable by its owner only, and is replaced as a whole.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.cli.contract.environment_place import ENVIRONMENT_VARIABLE, FOLDER_VARIABLE, path
from penstock.cli.output.exits import CommandError
from penstock.schema.nearest import nearest


class TokenSource(msgspec.Struct, frozen=True):
    """Where the token comes from: a variable, by its name, or the file itself."""

    type: Literal["env", "literal"]
    value: str


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What is preset for commands that run in an environment."""

    server: str | None = None
    namespace: str | None = None
    token_source: TokenSource | None = None
    tls_verify: bool = True
    output: Literal["table", "json", "jsonl"] | None = None

    def token(self) -> str | None:
        """The token at this moment."""
        source = self.token_source
        if source is None:
            return None
        return source.value if source.type == "literal" else os.environ.get(source.value) or None

    def described(self, name: str, *, show_token: bool = False) -> dict[str, object]:
        """The fields for people and scripts; a token is shown only if asked for."""
        source: dict[str, str] | None = None
        if self.token_source is not None and self.token_source.type == "env":
            source = {"type": "env", "env": self.token_source.value}
        elif self.token_source is not None:
            source = {"type": "literal", "value": self.token_source.value if show_token else "redacted"}
        return {"name": name, **msgspec.structs.asdict(self), "token_source": source}


class EnvironmentFile(msgspec.Struct, kw_only=True):
    """All environments, and the one that is used if none is named."""

    schema: str = "durable-workflow.cli.config"
    version: int = 1
    current_env: str | None = None
    envs: dict[str, Environment] = {}

    def named(self, name: str) -> Environment:
        """The environment with this name; another name is never taken in its place."""
        if name in self.envs:
            return self.envs[name]
        near = nearest(name, self.envs)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise EnvironmentProblem(
            "environment_unknown",
            f"There is no environment {name!r}.{hint}",
            f"Create it with `dw env:set {name}`.",
        )

    def change(self, name: str, fields: Mapping[str, Any]) -> None:
        """Set these fields of an environment, which is created if it is new."""
        self.envs[name] = msgspec.structs.replace(self.envs.get(name, Environment()), **fields)

    def write(self) -> None:
        """Replace the file, by one that only its owner may read."""
        place = path()
        text = msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=4)
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
            with os.fdopen(handle, "wb") as file:
                file.write(text + b"\n")
            Path(name).replace(place)
        except OSError as error:
            raise EnvironmentProblem(
                "environments_not_written",
                f"{place} cannot be written: {error.strerror}.",
                f"Choose another folder with {FOLDER_VARIABLE}.",
            ) from error


class EnvironmentProblem(CommandError):
    """An environment that is not there, or a file that cannot be used (exit code 2)."""

    exit_code = 2


def read() -> EnvironmentFile:
    """All environments; none if there is no file."""
    try:
        found = msgspec.json.decode(path().read_bytes())
        if isinstance(found, dict) and found.get("envs") == []:
            del found["envs"]  # how PHP writes an object without fields
        return msgspec.convert(found, EnvironmentFile)
    except FileNotFoundError:
        return EnvironmentFile()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(
            "environments_unreadable", f"{path()} cannot be read: {error}.", "Correct the file, or remove it."
        ) from error


def selected(flag: str | None) -> Environment | None:
    """The environment that `--env` names, else the variable, else the current one; None if none is selected."""
    environments = read()
    name = flag or os.environ.get(ENVIRONMENT_VARIABLE) or environments.current_env
    return environments.named(name) if name else None
