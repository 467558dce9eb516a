"""Simulations over the API: what is asked, and how a simulation is shown."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from penstock.core.operations.simulations import SimulationRecord
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.fields import Name
from penstock.wire.requests import RequestModel
from penstock.wire.responses import Body

TEXT_MAX = 1_000
Text = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
Texts = Annotated[list[Text], Meta(max_length=100)]
Time = str | int | float


class LiveState(RequestModel, forbid_unknown_fields=True, kw_only=True):
    """The state of the server now."""

    queue: Name | None = None
    """Only this queue, with those that share its budget group; left out: those with the longest backlogs."""
    takes: Time | None = None
    """How long tasks take; measured if left out."""
    arrivals_per_minute: Annotated[float, Meta(ge=0, le=10_000_000)] | None = None
    """Tasks that arrive in each queue; measured if left out."""


class SubmitSimulation(RequestModel, forbid_unknown_fields=True, kw_only=True):
    """A load, and what is changed in it. One of `live`, `model` and `trace` is given."""

    live: LiveState | None = None
    model: dict[str, Any] | None = None
    """A model file as JSON."""
    trace: Annotated[str, Meta(max_length=2_000_000)] | None = None
    """A trace file in base64."""
    set: Texts = field(default_factory=list)
    """Limits, as `queue:invoices.max_active_leases=5`."""
    workers: Texts = field(default_factory=list)
    """Numbers of workers, as `invoices=20` or `2x`."""
    keys: Texts = field(default_factory=list)
    """Loads of fairness keys, as `tenant-a=2x`."""
    kills: Texts = field(default_factory=list)
    """Deaths of workers, as `invoices@10m`; not with `live`."""
    change_set_id: Text | None = None
    """A change set whose settings are changed."""
    target: Text | None = None
    """What is to be met by raising what `may` names; left out: the changes are simulated as they are."""
    may: Texts = field(default_factory=list)
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 1
    replications: Annotated[int, Meta(ge=1, le=30)] = 10


class ListSimulations(RequestModel):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


def shown(record: SimulationRecord, *, with_result: bool = True) -> Body:
    """A simulation; lists show it without its result."""
    body = {
        "simulation_id": record.simulation_id,
        "namespace": record.namespace,
        "state": record.state.value,
        "author": record.author,
        "created_at": iso(record.created_at_ms),
        "ended_at": iso_or_none(record.ended_at_ms),
        "request": record.request,
        "problem": record.problem,
    }
    return body | ({"result": record.result} if with_result else {})
