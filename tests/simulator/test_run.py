"""What happens in one run: tasks, workers that join, leave and die, limits that change on the way."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.model import TaskKind
from penstock.errors import InvalidInput
from penstock.simulator.measures import HeldBackBy, quantile
from penstock.simulator.model_file import generate
from tests.simulator.loads import backlog, measured, model, simulate, workers

Q = ("q", TaskKind.ACTIVITY)


async def test_tasks_go_one_after_the_other_where_there_is_one_slot() -> None:
    queue = (await measured(arrivals=[backlog(5, takes="2s")], workers=[workers()])).queue(Q)
    assert queue.waits() == [0, 2_000, 4_000, 6_000, 8_000]
    assert queue.cleared_at_ms == 8_000
    assert queue.waiting_by_cause == {HeldBackBy.SLOTS: 20_000}


async def test_a_cap_holds_tasks_back_although_workers_are_free() -> None:
    limits = {"q": {"max_active_leases": 2}}
    queue = (
        await measured(arrivals=[backlog(6, takes="1s")], workers=[workers(slots=10)], queues=limits)
    ).queue(Q)
    assert max(running for _, _, running in queue.samples) <= 2
    assert queue.waits() == [0, 0, 1_000, 1_000, 2_000, 2_000]
    assert list(queue.waiting_by_cause) == [HeldBackBy.QUEUE_LEASE_CAP]


async def test_dispatches_per_minute_are_those_of_calendar_minutes() -> None:
    limits = {"q": {"max_dispatches_per_minute": 3}}
    queue = (await measured(arrivals=[backlog(7)], workers=[workers(slots=10)], queues=limits)).queue(Q)
    assert queue.waits() == [0, 0, 0, 60_000, 60_000, 60_000, 120_000]


async def test_a_budget_group_is_shared_by_its_queues() -> None:
    in_group = {"dispatch_budget_group": "llm"}
    queues = {"q": in_group, "r": in_group}
    arrivals = [backlog(4), backlog(4) | {"queue": "r"}]
    pools = [workers(slots=10), workers(slots=10) | {"queue": "r"}]
    found = await measured(
        arrivals=arrivals, workers=pools, queues=queues, groups={"llm": {"max_dispatches_per_minute": 4}}
    )
    waits = sorted(wait for each in found.queues.values() for wait in each.waits())
    assert waits == [0] * 4 + [60_000] * 4


async def test_shares_follow_weights() -> None:
    limits = {"q": {"weights": {"a": 3}}}
    arrivals = [backlog(40, "a"), backlog(40, "b")]
    simulation = await simulate(
        generate(model(arrivals=arrivals, workers=[workers()], queues=limits), 1, 1_000)
    )
    first = [simulation._workload.arrivals[index].key for _, index in simulation.grants[:40]]
    assert first.count("a") == 30


async def test_tasks_of_a_worker_that_dies_run_again_when_their_leases_are_over() -> None:
    found = await measured(
        arrivals=[backlog(3, takes="10s")],
        workers=[workers(slots=2, dies="5s"), workers(slots=1, joins="6s")],
        lease="60s",
    )
    of_key = found.queue(Q).key("")
    assert of_key.completed == 3
    assert of_key.dispatched == 5
    assert found.ended_at_ms == 85_000, (
        "killed at 5 s, leases over at 65 s, then two tasks of 10 s one after the other"
    )


async def test_a_worker_that_leaves_finishes_what_it_has() -> None:
    found = await measured(arrivals=[backlog(3, takes="10s")], workers=[workers(slots=2, leaves="5s")])
    queue = found.queue(Q)
    assert (queue.key("").completed, queue.waiting) == (2, 1)
    assert queue.cause is HeldBackBy.NO_WORKER


async def test_a_limit_that_changes_on_the_way_counts_from_then_on() -> None:
    found = await measured(
        arrivals=[backlog(4, takes="10s")],
        workers=[workers(slots=4)],
        queues={"q": {"max_active_leases": 1}},
        changes=[{"at": "15s", "queues": {"q": {"max_active_leases": 4}}}],
    )
    assert found.queue(Q).waits() == [0, 10_000, 15_000, 15_000]


async def test_a_paused_queue_says_so_and_ends_the_run() -> None:
    found = await measured(arrivals=[backlog(2)], workers=[workers()], queues={"q": {"paused": True}})
    assert (found.queue(Q).waiting, found.queue(Q).cause) == (2, HeldBackBy.PAUSED)


async def test_types_that_no_worker_takes_wait_for_one() -> None:
    found = await measured(arrivals=[backlog(2, type="rare")], workers=[workers(types=["common"])])
    assert found.queue(Q).cause is HeldBackBy.NO_WORKER_FOR_TYPE


async def test_attempts_that_fail_are_tried_again_after_the_pause() -> None:
    found = await measured(
        arrivals=[backlog(50, takes="1s", fails=0.5, attempts=3, backoff="5s")], workers=[workers(slots=50)]
    )
    of_key = found.queue(Q).key("")
    assert of_key.completed == 50
    assert of_key.dispatched == 50 + of_key.failed_attempts
    assert 0 < of_key.failed_attempts <= 100
    assert max(of_key.waits) == 0, "a pause before a retry is no wait"


async def test_workflow_tasks_are_tasks_of_their_own_kind() -> None:
    found = await measured(
        arrivals=[backlog(3, kind="workflow")], workers=[workers(kind="workflow")], queues={}
    )
    assert found.queue(("q", TaskKind.WORKFLOW)).waits() == [0, 1_000, 2_000]


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"max_active_leases": -1}, "max_active_leases"), ({"queue_rps_limit": "fast"}, "queue_rps_limit")],
)
async def test_a_limit_with_a_wrong_value_is_refused_as_the_server_refuses_it(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        await measured(arrivals=[backlog(1)], workers=[workers()], queues={"q": settings})


async def test_the_same_input_gives_the_same_run() -> None:
    stream = {"queue": "q", "key": "a", "per_minute": 120, "takes": {"p50": "1s", "p90": "3s"}}
    given = generate(model(duration="2m", arrivals=[stream], workers=[workers(slots=2)]), 7, 1_000)
    one, other = await simulate(given), await simulate(given)
    assert one.grants == other.grants
    assert one.measures.queue(Q) == other.measures.queue(Q)
    assert quantile(one.measures.queue(Q).waits(), 0.95) > 0
