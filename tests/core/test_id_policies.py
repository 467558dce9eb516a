"""Which starts a known workflow id allows."""

from __future__ import annotations

import pytest

from penstock.core.id_policies import (
    CONTRACT,
    IdConflictPolicy,
    IdPolicy,
    IdReusePolicy,
    StartDecision,
    decide_start,
)
from penstock.core.model import RunStatus
from tests.support.builders import a_run

OPEN = [each for each in RunStatus if not each.is_terminal]
CLOSED = [each for each in RunStatus if each.is_terminal]


@pytest.mark.parametrize("status", OPEN)
@pytest.mark.parametrize("reuse", IdReusePolicy)
def test_an_open_run_is_a_matter_of_the_conflict_policy_alone(status: RunStatus, reuse: IdReusePolicy):
    found = {
        conflict: decide_start(a_run(status=status), IdPolicy(reuse, conflict))
        for conflict in IdConflictPolicy
    }
    assert found == {
        IdConflictPolicy.FAIL: StartDecision.REFUSE,
        IdConflictPolicy.USE_EXISTING: StartDecision.USE_EXISTING,
        IdConflictPolicy.TERMINATE_EXISTING: StartDecision.TERMINATE_AND_START,
    }


@pytest.mark.parametrize("status", CLOSED)
@pytest.mark.parametrize("conflict", IdConflictPolicy)
def test_a_closed_run_is_a_matter_of_the_reuse_policy_alone(status: RunStatus, conflict: IdConflictPolicy):
    found = {reuse: decide_start(a_run(status=status), IdPolicy(reuse, conflict)) for reuse in IdReusePolicy}
    failed = StartDecision.REFUSE if status is RunStatus.COMPLETED else StartDecision.START
    assert found == {
        IdReusePolicy.ALLOW_DUPLICATE: StartDecision.START,
        IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY: failed,
        IdReusePolicy.REJECT_DUPLICATE: StartDecision.REFUSE,
    }


def test_the_contract_never_reuses_an_id():
    assert {decide_start(a_run(status=each), CONTRACT) for each in RunStatus} == {StartDecision.REFUSE}
