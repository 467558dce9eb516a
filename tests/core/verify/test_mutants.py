"""Who checks the checker: a server that keeps its promises is clean, and each known fault is found by name."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.core.verify.check import check
from penstock.core.verify.findings import OF_LOAD, Law
from penstock.core.verify.journal_clock import ClockOptions, Gaps
from tests.core.verify.model_server import LittleServer, Mutant
from tests.support.effort import times

SEEDS = range(6)
STEPS = 900


def found(server: LittleServer) -> Counter[Law]:
    book, _ = check(server.journal, server.seen, ClockOptions(gaps=Gaps.FOUND))
    return book.found


@pytest.mark.parametrize("window", ["minute", "sliding"])
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("seed", range(times(4)))
def test_a_server_that_keeps_its_promises_is_clean(seed: int, soft: bool, window: str) -> None:
    server = LittleServer(seed, soft=soft, window=window).run(STEPS).rest()
    book, _ = check(server.journal, server.seen, ClockOptions(gaps=Gaps.FOUND))
    assert book.findings == []
    assert {law for law in Law if not book.checked[law]} == OF_LOAD, "this server writes no arrivals"


CAUGHT_BY = {
    Mutant.DOUBLE_RELEASE: {Law.CAP, Law.CLIENT_CAP},
    Mutant.CAP_OFF_BY_ONE: {Law.CAP, Law.CLIENT_CAP},
    Mutant.CAP_IGNORED_AT_START: {Law.CAP},
    Mutant.MINUTE_BURST: {Law.RATE},
    Mutant.SLIDING_BURST: {Law.RATE},
    Mutant.COST_NOT_RESERVED: {Law.COST},
    Mutant.ZERO_IS_UNLIMITED: {Law.LIMIT_IN_FORCE, Law.CLOSED},
    Mutant.ZERO_IS_IGNORED: {Law.CLOSED},
    Mutant.PAUSE_IS_IGNORED: {Law.CLOSED},
    Mutant.GROUP_PER_QUEUE: {Law.CAP},
    Mutant.LIMIT_OF_YESTERDAY: {Law.LIMIT_IN_FORCE},
    Mutant.EXPIRY_RESURRECTED: {Law.ENDS_ONCE},
    Mutant.NO_EPOCH_GUARD: {Law.ENDS_ONCE, Law.ONE_OUTCOME},
    Mutant.ATTEMPT_STAYS: {Law.ATTEMPTS_RISE},
    Mutant.LEASED_TWICE: {Law.ONE_LEASE},
    Mutant.ACK_BEFORE_COMMIT: {Law.ACKNOWLEDGED},
    Mutant.GRANT_NOT_WRITTEN: {Law.ACKNOWLEDGED},
    Mutant.NAMESPACE_FROM_BODY: {Law.NAMESPACE},
    Mutant.NEWEST_FIRST: {Law.FIFO},
    Mutant.START_FORGOTTEN: {Law.LOST},
    Mutant.WAKEUP_LOST: {Law.LOST},
    Mutant.PERMIT_LEAKED: {Law.ENDS_ONCE},
    Mutant.UNDELIVERED_NOT_REFUNDED: {Law.DELIVERED},
    Mutant.UNDELIVERED_NOT_TOLD: {Law.DELIVERED},
    Mutant.REFUNDED_THOUGH_DELIVERED: {Law.DELIVERED},
    Mutant.LINE_SWALLOWED: {Law.SEQUENCE},
    Mutant.JOURNAL_REORDERED: {Law.CALL_ORDER},
    Mutant.RUN_CAP_OFF_BY_ONE: {Law.RUN_CAP},
}


def test_every_mutant_has_a_law_that_catches_it() -> None:
    assert set(CAUGHT_BY) == set(Mutant)


@pytest.mark.parametrize("mutant", Mutant)
def test_a_mutant_is_caught_under_the_name_of_its_law(mutant: Mutant) -> None:
    """The same servers without the fault are clean, so what is found comes of the fault."""
    total: Counter[Law] = Counter()
    for seed in SEEDS:
        soft = mutant is Mutant.CAP_IGNORED_AT_START
        window = "sliding" if mutant is Mutant.SLIDING_BURST else "minute"
        total += found(LittleServer(seed, mutant, soft, window).run(STEPS).rest())
        if CAUGHT_BY[mutant] <= set(total):
            break
    assert CAUGHT_BY[mutant] <= set(total), total
