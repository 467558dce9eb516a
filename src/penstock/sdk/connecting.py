"""Which server to talk to, and as whom: from arguments, the environment, a profile, or the default, in this order."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from penstock.sdk.transport import base_url

DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_NAMESPACE: Final = "default"
DEFAULT_PROFILE: Final = "default"
"""The profile that holds when none is named, if the file has it."""
PROFILES_VARIABLE: Final = "PENSTOCK_PROFILES"
PROFILE_VARIABLE: Final = "PENSTOCK_PROFILE"
VARIABLES: Final = {
    "url": "DURABLE_WORKFLOW_SERVER_URL",
    "namespace": "DURABLE_WORKFLOW_NAMESPACE",
    "token": "DURABLE_WORKFLOW_AUTH_TOKEN",
    "control_token": "DURABLE_WORKFLOW_CONTROL_TOKEN",
    "worker_token": "DURABLE_WORKFLOW_WORKER_TOKEN",
}
_TOKENS: Final = ("token", "control_token", "worker_token")


class ProfileError(ValueError):
    """The file of profiles cannot be used as it is; the message names the place."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """All that it takes to reach a server. Tokens do not show."""

    url: str = DEFAULT_URL
    namespace: str = DEFAULT_NAMESPACE
    token: str | None = field(default=None, repr=False)
    control_token: str | None = field(default=None, repr=False)
    """For starting, asking and ending; where it is missing, `token` counts."""
    worker_token: str | None = field(default=None, repr=False)
    """For workers; where it is missing, `token` counts."""
    insecure: bool = False
    """A token may leave this machine over plain http."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", base_url(self.url))

    @classmethod
    def resolve(
        cls,
        *,
        url: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        control_token: str | None = None,
        worker_token: str | None = None,
        insecure: bool | None = None,
        profile: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ConnectOptions:
        """What is given wins over the environment, and that over the profile. Blank variables count as unset.

        Tokens belong together: where one is given, those of the environment and the profile are not looked at;
        nor those of the profile where the environment has one.
        """
        around = os.environ if environment is None else environment
        given = {
            "url": url,
            "namespace": namespace,
            "token": token,
            "control_token": control_token,
            "worker_token": worker_token,
            "insecure": insecure,
        }
        said = {name: around.get(variable, "").strip() or None for name, variable in VARIABLES.items()}
        return cls(**_merged([given, said, _profile(profile, around)]))


def _merged(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for source in sources:
        knows_us = any(name in merged for name in _TOKENS)
        for name, value in source.items():
            if value is not None and not (name in _TOKENS and knows_us):
                merged.setdefault(name, value)
    return merged


def _profile(named: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    wanted = named or environment.get(PROFILE_VARIABLE, "").strip() or None
    path = _profiles_path(environment)
    try:
        profiles = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if wanted is None:
            return {}
        raise ProfileError(f"There is no profile {wanted!r}: {path} does not exist") from None
    except PermissionError:
        if wanted is None and PROFILES_VARIABLE not in environment:
            return {}  # nobody asked for what stands in somebody else's home
        raise ProfileError(f"{path} cannot be read: it is not yours to read") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{path} cannot be read: {error}") from None
    if wanted is None and DEFAULT_PROFILE not in profiles:
        return {}
    name = wanted or DEFAULT_PROFILE
    if not isinstance(profiles.get(name), dict):
        raise ProfileError(f"There is no profile {name!r} in {path}{_near(name, profiles)}")
    return _checked(profiles[name], f"[{name}] in {path}")


def _profiles_path(environment: Mapping[str, str]) -> Path:
    named = environment.get(PROFILES_VARIABLE, "").strip()
    return Path(named).expanduser() if named else Path("~/.config/penstock/profiles.toml").expanduser()


def _checked(profile: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = [each.name for each in fields(ConnectOptions)]
    for name, value in profile.items():
        if name not in known:
            raise ProfileError(f"{where} has an unknown key {name!r}{_near(name, known)}")
        kind, called = (bool, "true or false") if name == "insecure" else (str, "text")
        if not isinstance(value, kind):
            raise ProfileError(f"{where}: {name} must be {called}")
    return dict(profile)


def _near(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(sorted(known))}" if known else ""
