"""Protocol versions: which are supported, and the errors for others."""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def check_version(plane: Plane, headers: Mapping[str, str], *, required: bool = True) -> None:
    """Raise if the request's version is unsupported, or missing although `required`."""
    name = HEADERS[plane]
    value = headers.get(name.lower(), "").strip()
    if not value and not required:
        return
    if not value:
        missing = (
            Reason.MISSING_CONTROL_PLANE_VERSION
            if plane is Plane.CONTROL
            else Reason.MISSING_PROTOCOL_VERSION
        )
        raise InvalidInput(missing, f"The header {name} is missing.", **_details(plane, None))
    if _is_served(plane, value):
        return
    unknown = (
        Reason.UNSUPPORTED_CONTROL_PLANE_VERSION
        if plane is Plane.CONTROL
        else Reason.UNSUPPORTED_PROTOCOL_VERSION
    )
    raise InvalidInput(
        unknown, f"{name}: {value[:40]!r} is not supported by this server.", **_details(plane, value[:40])
    )


def _is_served(plane: Plane, value: str) -> bool:
    if plane is Plane.CONTROL:
        return value == CONTROL_VERSION
    found = re.fullmatch(r"1\.(\d{1,3})", value, flags=re.ASCII)
    return found is not None and int(found[1]) <= _WORKER_MINOR_MAX


def _details(plane: Plane, requested: str | None) -> dict[str, str | None]:
    served = VERSIONS[plane]
    accepted = served if plane is Plane.CONTROL else f"1.0 to {served}"
    return {
        "supported_version": served,
        "requested_version": requested,
        "remediation": f"Send {HEADERS[plane]}: {served} (accepted: {accepted}), or upgrade the client.",
    }
