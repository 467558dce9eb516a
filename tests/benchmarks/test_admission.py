"""The benchmarks of admission: limits are really looked at, leases really end, and the report has its shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.limited_lines import LimitedLines, Limits, declaration, limited_lines
from benchmarks.stands import StoreName
from penstock.core.limits.admission import Admission
from penstock.core.limits.policies import Policy
from penstock.core.limits.windows import Window
from penstock.core.model import TaskState
from penstock.core.scheduling.gates import ScopeState
from penstock.ports.store import Tx
from tests.benchmarks.runs import quick_run

STORES = {"sqlite", "postgres"}
SPREAD = {"median", "min", "max"}
SCOPES = [
    "cluster",
    "group:default/downstream",
    "group:default/downstream/activity",
    "namespace:default/activity",
]


@pytest.fixture
async def lines(tmp_path: Path) -> AsyncIterator[LimitedLines]:
    """Two queues with five tasks each."""
    async with limited_lines(StoreName.SQLITE, f"sqlite:///{tmp_path / 'bench.sqlite'}", 2) as opened:
        await opened.fill(5)
        yield opened


async def counted(lines: LimitedLines) -> dict[str, ScopeState]:
    async def operation(tx: Tx) -> dict[str, ScopeState]:
        return {state.name: state for state in await tx.scopes.find(SCOPES)}

    return await lines.ctx.store.read(operation)


def test_every_limit_is_on_in_every_scope_of_a_queue():
    found = Admission(declaration=declaration(Limits.EVERY)).of("default", "any", "activity", Policy(), 0)
    assert None not in (found.leases, found.dispatches, found.group)
    assert [scope.name for scope in found.scopes] == SCOPES
    assert all(scope.is_limited for scope in found.scopes)


def test_sliding_windows_are_the_same_limits_in_another_window():
    found = Admission(declaration=declaration(Limits.SLIDING)).of("default", "any", "activity", Policy(), 0)
    assert {found.window, *(scope.window for scope in found.scopes)} == {Window.SLIDING}
    assert [scope.name for scope in found.scopes] == SCOPES


async def test_limits_that_are_on_count_every_lease_until_it_ends(lines):
    await lines.limit(Limits.EVERY)
    taken = await lines.claim(2, 6)
    assert {name: state.running for name, state in (await counted(lines)).items()} == dict.fromkeys(SCOPES, 6)
    await lines.end(taken, 3)
    assert {state.running for state in (await counted(lines)).values()} == {0}


async def test_limits_that_are_off_count_nothing(lines):
    await lines.limit(Limits.EVERY)
    await lines.limit(Limits.NONE)
    assert all(task.scopes == "" for task in await lines.claim(2, 6))


async def test_claims_go_over_the_queues_in_turn_one_after_the_other_or_at_once(lines):
    assert [task.task_queue for task in await lines.claim(1, 4)] == ["bench-0", "bench-1"] * 2
    together = await lines.claim(1, 3, at_once=2)
    assert sorted(task.task_queue for task in together) == ["bench-0", "bench-0", "bench-1"]


async def test_what_was_taken_is_put_in_line_again(lines):
    for _ in range(4):
        taken = await lines.claim(2, 10)
        assert all(task.state is TaskState.LEASED for task in taken)
        await lines.end(taken, 5)
        await lines.refill(taken)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """One quick run of this part: its JSON and what it printed."""
    report, printed = quick_run(tmp_path_factory.mktemp("bench"), "admission", seconds_max=540)
    return report["admission"], printed


@pytest.mark.acceptance
@pytest.mark.slow
@pytest.mark.timeout(600)
class TestAQuickRun:
    def test_compares_claims_and_ends_with_all_limits_to_none_on_both_stores(self, run):
        report, _ = run
        for store in STORES:
            aimed = [row for row in report["ratios"] if row["store"] == store and row["target"] is not None]
            assert {row["limits"] for row in aimed} == {Limits.EVERY.value, Limits.SLIDING.value}
            assert {row["part"] for row in aimed} == {"claim", "claim and complete"}
            assert {row["batch"] for row in aimed} == {1, 50}
        assert all(set(row["rate"]) == set(row["cpu"]) == SPREAD for row in report["ratios"])

    def test_compares_many_queues_of_a_group_one_after_the_other_and_at_once(self, run):
        report, _ = run
        many = [row for row in report["ratios"] if row["limits"] == Limits.GROUP.value]
        assert {row["store"] for row in many} == STORES
        assert len({row["queues"] for row in many}) == 1
        assert {row["at_once"] for row in many} == {1, many[0]["queues"]}

    def test_has_a_group_on_three_servers_and_says_what_their_connections_do(self, run):
        report, _ = run
        rows = report["hot_group"]
        assert {row["servers"] for row in rows} == {1, 3}
        assert {row["limits"] for row in rows} == {Limits.NONE.value, Limits.GROUP.value}
        assert all(sum(row["waits"].values()) <= 1.01 for row in rows), "shares of what was seen"
        assert all(row["to_no_limit"]["median"] == 1 for row in rows if row["limits"] == Limits.NONE.value)

    def test_asks_why_beside_a_backlog_on_both_stores(self, run):
        report, _ = run
        assert {row["store"] for row in report["why"]} == STORES
        assert {row["task"] for row in report["why"]} == {"last of its key", "of a new key"}
        assert all(0 < row["p50_ms"] <= row["slowest_ms"] for row in report["why"])

    def test_prints_a_table_of_each(self, run):
        _, printed = run
        for title in (
            "by what limits them",
            "with limits to those without",
            "One budget group",
            "Why a task",
        ):
            assert title in printed
