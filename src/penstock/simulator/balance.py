"""Flow balance: does a workload need more than its workers and limits can give? Answered without a simulation.

A queue keeps up only if, per minute, the tasks that arrive are no more than can be dispatched, and the slots that they
occupy on average (arrivals times mean duration: Little's law) are no more than there are, both of workers and under
each cap. Otherwise what waits grows for as long as tasks arrive, whatever the order of dispatch.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from penstock.simulator.model_file import ArrivalsModel, ModelFile, distribution


class Overload(Struct, frozen=True):
    """A queue of which one resource is not enough."""

    queue: str
    what: str
    needed: float
    there: float

    def __str__(self) -> str:
        return (
            f"{self.queue} will not keep up: what arrives needs {self.needed:,.4g} {self.what}, and there are "
            f"{self.there:,.4g}."
        )


def overloads(model: ModelFile) -> Iterator[Overload]:
    """Resources of single queues that streams exceed for as long as they last."""
    for queue in sorted({each.queue for each in model.arrivals}):
        yield from _of_queue(model, queue)


def _of_queue(model: ModelFile, queue: str) -> Iterator[Overload]:
    for kind in ("activity", "workflow"):
        streams = [
            each for each in model.arrivals if (each.queue, each.kind) == (queue, kind) and each.per_minute
        ]
        if not streams:
            continue
        per_minute = sum(_attempts_per_minute(each) for each in streams)
        occupied = sum(_attempts_per_minute(each) * _mean_ms(each) / 60_000 for each in streams)
        slots = sum(
            each.count * each.slots for each in model.workers if (each.queue, each.kind) == (queue, kind)
        )
        settings = model.queues.get(queue, {})
        if kind != settings.get("task_queue_type", "activity"):
            settings = {}
        if occupied > slots:
            yield Overload(queue, "slots of workers", occupied, slots)
        for name in ("max_active_leases", "max_active_leases_per_queue", "max_running"):
            cap = settings.get(name)
            if isinstance(cap, int) and occupied > cap:
                yield Overload(queue, f"places under {name}", occupied, cap)
        most = settings.get("max_dispatches_per_minute")
        if isinstance(most, int) and per_minute > most:
            yield Overload(queue, "dispatches per minute", per_minute, most)
        rate = settings.get("queue_rps_limit")
        if isinstance(rate, int | float) and not isinstance(rate, bool) and per_minute > rate * 60:
            yield Overload(queue, "dispatches per second", per_minute / 60, rate)


def _attempts_per_minute(stream: ArrivalsModel) -> float:
    """With retries: each attempt but the last may fail."""
    expected = sum(stream.fails**attempt for attempt in range(stream.attempts))
    return (stream.per_minute or 0.0) * expected


def _mean_ms(stream: ArrivalsModel) -> float:
    return distribution(stream.takes).mean
