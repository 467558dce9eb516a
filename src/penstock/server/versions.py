"""Protocol versions: which are supported, and the errors for others."""

from __future__ import annotations

from typing import Final

from penstock.core.permissions import Plane
from penstock.errors import InvalidInput, Reason

CONTROL_VERSION: Final = "2"
WORKER_VERSION: Final = "1.20"
_WORKER_MINOR_MAX: Final = 20
HEADERS: Final = {
    Plane.CONTROL: "X-Durable-Workflow-Control-Plane-Version",
    Plane.WORKER: "X-Durable-Workflow-Protocol-Version",
}
VERSIONS: Final = {Plane.CONTROL: CONTROL_VERSION, Plane.WORKER: WORKER_VERSION}
SERVED: Final = {
    Plane.CONTROL: frozenset({CONTROL_VERSION}),
    Plane.WORKER: frozenset(
        f"1.{minor:0{digits}}" for minor in range(_WORKER_MINOR_MAX + 1) for digits in (1, 2, 3)
    ),
}
"""Every text of a supported version; minor versions may be written with leading zeros, in up to three digits."""
_MISSING: Final = {
    Plane.CONTROL: Reason.MISSING_CONTROL_PLANE_VERSION,
    Plane.WORKER: Reason.MISSING_PROTOCOL_VERSION,
}
_UNSUPPORTED: Final = {
    Plane.CONTROL: Reason.UNSUPPORTED_CONTROL_PLANE_VERSION,
    Plane.WORKER: Reason.UNSUPPORTED_PROTOCOL_VERSION,
}


def version_error(plane: Plane, value: str) -> InvalidInput:
    """The error for a request whose version header has this value; empty if it is missing."""
    name, served, requested = HEADERS[plane], VERSIONS[plane], value[:40] or None
    accepted = served if plane is Plane.CONTROL else f"1.0 to {served}"
    return InvalidInput(
        _UNSUPPORTED[plane] if value else _MISSING[plane],
        f"{name}: {requested!r} is not supported by this server."
        if value
        else f"The header {name} is missing.",
        supported_version=served,
        requested_version=requested,
        remediation=f"Send {name}: {served} (accepted: {accepted}), or upgrade the client.",
    )
