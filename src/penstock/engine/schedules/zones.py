"""Time zones from the packaged `tzdata` only.

`zoneinfo` prefers the files of the operating system, of which two servers may have different versions: they would
compute different moments for one schedule. The version in use is recorded with every schedule.

Invariant `newest-zone-data`: moments are computed from the newest zone data that any server has brought. A server with
newer data recomputes the next moments of all active schedules (`recompute`); one with older data neither fires nor
plans a schedule whose version is newer than its own, and says so where it is asked (`timing_of` raises). Versions only
grow, so two servers cannot alternate. A schedule in UTC needs no zone data and has no version.
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
from penstock.errors import Reason, Unavailable
from penstock.ports.store import Tx
from penstock.schema.nearest import nearest

VERSION: Final = str(import_module("tzdata").IANA_VERSION)
"""Versions order as text: 2025b, 2026a."""
NOT_NEEDED: Final = ""
"""The version of a schedule in UTC."""


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
    """When a schedule fires; raises `Unavailable` if its moments come from newer zone data than this server has."""
    if is_newer(record):
        raise outdated(record.zone_version)
    spec = spec_of(record)
    return Timing(spec, zone(spec.time_zone))


def spec_of(record: ScheduleRecord) -> ScheduleSpec:
    return stored_spec(record.spec, record.policies.jitter_s * 1000)


def is_newer(record: ScheduleRecord) -> bool:
    """Whether a schedule was computed from newer zone data than this server has."""
    return record.zone_version > VERSION


def is_older(record: ScheduleRecord) -> bool:
    """Whether a schedule in a time zone was computed from older zone data than this server has."""
    return NOT_NEEDED < record.zone_version < VERSION


def version_for(spec: ScheduleSpec) -> str:
    """The version to record for moments of a specification."""
    return NOT_NEEDED if spec.time_zone == "UTC" else VERSION


async def check_version(tx: Tx, spec: ScheduleSpec) -> None:
    """Raise `Unavailable` if a new specification needs zone data and this server's are older than those in use."""
    if version_for(spec) == NOT_NEEDED:
        return
    newest = await tx.schedules.newer_zone_data(VERSION)
    if newest is not None:
        raise outdated(newest)


def outdated(newest: str) -> Unavailable:
    return Unavailable(
        Reason.ZONE_DATA_OUTDATED,
        f"This server has zone data {VERSION}, and schedules were computed from {newest}. Ask another server, or "
        f"install tzdata {newest} or newer on this one and restart it.",
        zone_data_version=VERSION,
        newest_zone_data_version=newest,
    )
