"""Limits of budget groups, whoever put a queue into one."""

from __future__ import annotations

from penstock.core.admission import Admission, Declaration, Field, group_scope
from penstock.core.policies import Knob, Policy, Setting

OPENAI: dict[Field, int | str | None] = {Field.GROUP: "openai", Field.GROUP_DISPATCHES: 600}


def test_a_queue_that_an_operator_puts_into_a_group_goes_by_what_is_declared_beside_its_fellows():
    admission = Admission(declaration=Declaration(overrides={"production:payments": {"activity": OPENAI}}))
    joined = Policy(1, {Knob.GROUP: Setting("openai", "ann", 0)})
    (group,) = admission.of("production", "refunds", "activity", joined, 0).scopes
    assert (group.name, group.dispatches) == (group_scope("production", "openai", "activity"), 600)
    assert admission.of("staging", "refunds", "activity", joined, 0).scopes == ()
