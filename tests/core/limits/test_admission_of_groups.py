"""Limits of budget groups, whoever put a queue into one."""

from __future__ import annotations

from penstock.core.limits.admission import Admission, Declaration, LimitField, group_scope
from penstock.core.limits.policies import LimitSetting, Policy, SettingValue

OPENAI: dict[LimitField, int | str | None] = {LimitField.GROUP: "openai", LimitField.GROUP_DISPATCHES: 600}


def test_a_queue_that_an_operator_puts_into_a_group_goes_by_what_is_declared_beside_its_fellows():
    admission = Admission(declaration=Declaration(overrides={"production:payments": {"activity": OPENAI}}))
    joined = Policy(1, {LimitSetting.GROUP: SettingValue("openai", "ann", 0)})
    (group,) = admission.of("production", "refunds", "activity", joined, 0).scopes
    assert (group.name, group.dispatches) == (group_scope("production", "openai", "activity"), 600)
    assert admission.of("staging", "refunds", "activity", joined, 0).scopes == ()
