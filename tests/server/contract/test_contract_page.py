"""The page about the contract names tests that exist, and everything that the program has."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.core.audit.trail import DERIVED_TYPES
from penstock.core.history.events import EventType
from penstock.wire.workflows.commands import SUPPORTED
from tests.server.contract.conftest import FIXTURES, Tenant

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "contract.md").read_text()
OURS = "Recorded besides those of the contract"
CONTRACT_ONLY = {"start_service_operation"}


def checks() -> list[tuple[str, str, str]]:
    """The rows that have a test: what, how it is here, and the test."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in PAGE.splitlines()
        if line.startswith("| ")
    ]
    return [(row[0], row[1], row[2].strip(" |")) for row in rows if len(row) == 3]


def test_every_row_names_a_test_that_exists_or_says_why_there_is_nothing_to_test() -> None:
    tests = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tests |= set(re.findall(r"def (test_\w+)\(", path.read_text()))
    rows = [
        each for each in checks() if each[2] not in ("Checked by", "---", "`id`") and "auth" not in each[1]
    ]
    assert len(rows) > 50
    for what, _, test in rows:
        if "`test_" in test:
            assert set(re.findall(r"`(test_\w+)`", test)) <= tests, what


def test_what_differs_or_is_not_here_has_a_reason() -> None:
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) > 1 and cells[1] in ("differs", "not here"):
            raise AssertionError(f"{cells[0]}: say why")


def test_the_page_has_all_commands_and_all_events_of_the_contract_that_were_missing() -> None:
    assert set(SUPPORTED) <= set(re.findall(r"`(\w+)`", PAGE))
    assert set(DERIVED_TYPES) <= set(re.findall(r"`(\w+)`", PAGE))
    listed = set(re.findall(r"`(\w+)`", PAGE[PAGE.index(OURS) :].split("\n\n")[0]))
    assert listed <= set(EventType)


def test_each_fixture_of_the_contract_is_used() -> None:
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in FIXTURES if f'"{name}"' not in sources] == []


async def test_a_command_of_the_contract_that_is_not_served_is_refused_by_name(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    for kind in CONTRACT_ONLY:
        assert kind not in SUPPORTED
        reply = await tenant.complete(task, {"type": kind, "endpoint_name": "billing"})
        reply.expect(422, "validation_failed")
        assert kind in str(reply.json["errors"])


async def test_an_activity_that_asks_for_a_worker_session_is_refused_by_name(tenant: Tenant) -> None:
    await tenant.register()
    await tenant.start("order-1")
    task = (await tenant.poll())["task"]
    command = {"type": "schedule_activity", "activity_type": "charge", "queue": "orders"}
    reply = await tenant.complete(task, command | {"worker_session": {"session_id": "s1"}})
    reply.expect(422, "validation_failed")
    assert list(reply.json["errors"]) == ["commands.0.worker_session"]
    (await tenant.complete(task, command | {"worker_session": None})).expect(200)
