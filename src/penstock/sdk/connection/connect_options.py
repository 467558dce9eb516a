"""Server address and credentials: from arguments, the environment, a profile, or defaults, in this order."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from penstock.schema.nearest import nearest
from penstock.sdk.connection.signing import PROFILE_VARIABLE as SIGNATURE_PROFILE_VARIABLE
from penstock.sdk.connection.signing import WORKER_KEY_VARIABLE, SigningKey, key_in
from penstock.sdk.connection.transport import server_urls

LOG = logging.getLogger("penstock.client")
DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_NAMESPACE: Final = "default"
DEFAULT_PROFILE: Final = "default"
"""The profile used if none is named and the file has it."""
PROFILES_VARIABLE: Final = "PENSTOCK_PROFILES"
PROFILE_VARIABLE: Final = "PENSTOCK_PROFILE"
VARIABLES: Final = {
    "url": "DURABLE_WORKFLOW_SERVER_URL",
    "namespace": "DURABLE_WORKFLOW_NAMESPACE",
    "token": "DURABLE_WORKFLOW_AUTH_TOKEN",
    "control_token": "DURABLE_WORKFLOW_CONTROL_TOKEN",
    "worker_token": "DURABLE_WORKFLOW_WORKER_TOKEN",
    "worker_signature_key": WORKER_KEY_VARIABLE,
    "signature_profile": SIGNATURE_PROFILE_VARIABLE,
}
CREDENTIALS: Final = ("token", "control_token", "worker_token", "signature_key", "worker_signature_key")


class ProfileError(ValueError):
    """The profiles file is invalid; the message names the place."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Everything needed to connect to a server. Tokens and keys are left out of its repr."""

    url: str = DEFAULT_URL
    """Address of the server, or several of servers that share a database, separated by commas."""
    namespace: str = DEFAULT_NAMESPACE
    token: str | None = field(default=None, repr=False)
    control_token: str | None = field(default=None, repr=False)
    """Token for client requests; `token` if not set."""
    worker_token: str | None = field(default=None, repr=False)
    """Token for worker requests; `token` if not set."""
    insecure: bool = False
    """Whether a token may be sent to another machine over plain http."""
    signature_key: str | None = field(default=None, repr=False)
    """Key that signs requests, for a server that requires signatures: `operator:secret`; without an id, shared."""
    worker_signature_key: str | None = field(default=None, repr=False)
    """Key for worker requests; `signature_key` if not set."""
    signature_profile: str | None = None
    """What is signed, as in the server's `DW_SIGNATURE_PROFILE`: `penstock` (the default) or `body`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", ",".join(server_urls(self.url)))
        self.control_key, self.worker_key  # noqa: B018 - raises if one is not well formed

    @property
    def control_key(self) -> SigningKey | None:
        """The key that signs client requests."""
        if self.signature_key is None:
            return None
        return SigningKey.parse(self.signature_key, profile=self.signature_profile)

    @property
    def worker_key(self) -> SigningKey | None:
        """The key that signs worker requests."""
        if self.worker_signature_key is None:
            return self.control_key
        return SigningKey.parse(self.worker_signature_key, "worker", self.signature_profile)

    @classmethod
    def resolve(
        cls,
        *,
        url: str | Sequence[str] | None = None,
        namespace: str | None = None,
        token: str | None = None,
        control_token: str | None = None,
        worker_token: str | None = None,
        signature_key: str | None = None,
        worker_signature_key: str | None = None,
        signature_profile: str | None = None,
        insecure: bool | None = None,
        profile: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ConnectOptions:
        """Combine the sources: arguments, then environment, then profile. Blank variables count as unset.

        Tokens and keys belong together: if one is given as an argument, those of the environment and the profile are
        ignored, and likewise those of the profile if the environment has one.
        """
        given = {
            name: value for name, value in locals().items() if name in {each.name for each in fields(cls)}
        }
        given["url"] = url if url is None or isinstance(url, str) else ",".join(server_urls(url))
        environ = os.environ if environment is None else environment
        variables = {name: environ.get(variable, "").strip() or None for name, variable in VARIABLES.items()}
        variables["signature_key"] = key_in(environ)
        merged = _merged([given, variables, _profile(profile, environ)])
        if "url" not in merged:
            _note_unread(environ)
        return cls(**merged)


_OF_TEMPORAL: Final = {
    "TEMPORAL_ADDRESS": VARIABLES["url"],
    "TEMPORAL_NAMESPACE": VARIABLES["namespace"],
    "TEMPORAL_API_KEY": VARIABLES["token"],
}


def _note_unread(environ: Mapping[str, str]) -> None:
    """Log the variables of Temporal that are set while ours are not: their user may expect them to be read."""
    for theirs, ours in _OF_TEMPORAL.items():
        if environ.get(theirs, "").strip():
            LOG.warning(
                "%s is set, and is not read: set %s. The server is taken to be %s", theirs, ours, DEFAULT_URL
            )


def _merged(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for source in sources:
        knows_us = any(name in merged for name in CREDENTIALS)
        for name, value in source.items():
            if value is not None and not (name in CREDENTIALS and knows_us):
                merged.setdefault(name, value)
    return merged


def _profile(named: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    wanted = named or environment.get(PROFILE_VARIABLE, "").strip() or None
    path = _profiles_path(environment)
    profiles = _profiles(path, wanted, is_optional=wanted is None and PROFILES_VARIABLE not in environment)
    if wanted is None and DEFAULT_PROFILE not in profiles:
        return {}
    name = wanted or DEFAULT_PROFILE
    if not isinstance(profiles.get(name), dict):
        raise ProfileError(f"There is no profile {name!r} in {path}{_near(name, profiles)}")
    return _checked(profiles[name], f"[{name}] in {path}")


def _profiles(path: Path, wanted: str | None, *, is_optional: bool) -> dict[str, Any]:
    """Read the profiles file. A missing file is an error only if a profile is wanted from it."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        if wanted is None:
            return {}
        raise ProfileError(f"There is no profile {wanted!r}: {path} does not exist") from None
    except PermissionError:
        if is_optional:
            return {}  # for example an unreadable home directory
        raise ProfileError(f"{path} cannot be read: permission denied") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{path} cannot be read: {error}") from None


def _profiles_path(environment: Mapping[str, str]) -> Path:
    named = environment.get(PROFILES_VARIABLE, "").strip()
    return Path(named).expanduser() if named else Path("~/.config/penstock/profiles.toml").expanduser()


def _checked(profile: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = [each.name for each in fields(ConnectOptions)]
    for name, value in profile.items():
        if name not in known:
            raise ProfileError(f"{where} has an unknown key {name!r}{_near(name, known)}")
        kind, called = (bool, "true or false") if name == "insecure" else (str, "text")
        if not isinstance(value, kind) and not (name == "url" and _is_text_list(value)):
            raise ProfileError(f"{where}: {name} must be {called}")
    return {name: ",".join(value) if isinstance(value, list) else value for name, value in profile.items()}


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _near(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    close = nearest(name, known)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(sorted(known))}" if known else ""
