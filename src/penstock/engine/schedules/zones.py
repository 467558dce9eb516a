"""Time zones from the packaged `tzdata` only.

`zoneinfo` prefers the files of the operating system, of which two servers may have different versions: they would
compute different moments for one schedule. The version in use is recorded with every schedule.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from penstock.core.schedules.record import ScheduleRecord
from penstock.core.schedules.spec import ScheduleSpec
from penstock.core.schedules.spec_text import stored_spec
from penstock.schema.nearest import nearest

VERSION: Final = str(import_module("tzdata").IANA_VERSION)
"""Versions order as text: 2025b, 2026a."""


class UnknownZone(ValueError):
    """No zone has this name."""


@cache
def names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@cache
def zone(name: str) -> tzinfo:
    """The zone with an IANA name; raises `UnknownZone`."""
    if name == "UTC":
        return UTC
    if name not in names():
        near = nearest(name, names())
        raise UnknownZone(
            f"is not a time zone of the IANA database {VERSION}"
            + (f"; did you mean {near[0]}?" if near else ", such as Europe/Berlin")
        )
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


class Timing(Struct, frozen=True):
    """When a schedule fires: its specification and its zone."""

    spec: ScheduleSpec
    zone: tzinfo


def timing_of(record: ScheduleRecord) -> Timing:
    spec = stored_spec(record.spec, record.policies.jitter_s * 1000)
    return Timing(spec, zone(spec.time_zone))
