"""Each law on a history of a few lines: what it allows, what it finds, and what it says then."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.verify.check import check
from penstock.core.verify.findings import FINDINGS_KEPT_MAX, Findings, Law, LawViolation
from penstock.core.verify.journal import (
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    LeaseRenewed,
    LeaseStarted,
    ScopeLimits,
)
from penstock.core.verify.journal_clock import ClockOptions, Gaps
from penstock.core.verify.observations import (
    LimitsSet,
    Observation,
    ObservedFinal,
    Polled,
    PolledLease,
    Quiescent,
    Reported,
    StartSent,
)

QUEUE = "queue:default/payments/activity"
MINUTE_MS = 60_000
NOON = 28_333_333 * MINUTE_MS


def cap(most: int | None, scope: str = QUEUE) -> ScopeLimits:
    return ScopeLimits(scope, max_active_leases=most)


def rate(most: int, window: Any = "minute") -> ScopeLimits:
    return ScopeLimits(QUEUE, max_dispatches_per_minute=most, window=window)


class Journal:
    """Writes lines with dense numbers."""

    def __init__(self) -> None:
        self.lines: list[JournalLine] = []

    def granted(self, task: str, at_ms: int, *scopes: ScopeLimits, **more: Any) -> Journal:
        told: dict[str, Any] = {
            "attempt": 1,
            "lease": "1",
            "worker_id": f"of-{task}",
            "expires_at_ms": at_ms + 30_000,
        }
        place: dict[str, Any] = {"namespace": "default", "task_queue": "payments", "kind": "activity"}
        return self._add(LeaseGranted(self._seq, at_ms, task_id=task, scopes=scopes, **(place | told | more)))

    def started(self, task: str, at_ms: int, *scopes: ScopeLimits, lease: str = "1") -> Journal:
        return self._add(LeaseStarted(self._seq, at_ms, task, lease, scopes))

    def renewed(self, task: str, at_ms: int, lease: str = "1") -> Journal:
        return self._add(LeaseRenewed(self._seq, at_ms, task, lease, at_ms + 30_000))

    def ended(
        self,
        task: str,
        at_ms: int,
        how: Any = "completed",
        lease: str = "1",
        cost: int | None = None,
        refunded: bool = False,
    ) -> Journal:
        return self._add(LeaseEnded(self._seq, at_ms, task, lease, how, cost, refunded))

    @property
    def _seq(self) -> int:
        return len(self.lines) + 1

    def _add(self, line: JournalLine) -> Journal:
        self.lines.append(line)
        return self


def looked(journal: Journal, *sightings: Observation) -> Findings:
    return check(journal.lines, sightings)[0]


def found(journal: Journal, *sightings: Observation) -> list[LawViolation]:
    return looked(journal, *sightings).findings


def laws(journal: Journal, *sightings: Observation) -> list[Law]:
    return [finding.law for finding in found(journal, *sightings)]


class TestCaps:
    def test_as_many_as_the_cap_may_live_together(self) -> None:
        journal = (
            Journal().granted("a", 0, cap(2)).granted("b", 1, cap(2)).ended("a", 2).granted("c", 3, cap(2))
        )
        assert laws(journal) == []

    def test_one_more_is_found_with_the_instant_the_numbers_and_the_holders(self) -> None:
        journal = Journal().granted("a", 10, cap(1)).granted("b", 20, cap(1))
        [finding] = found(journal)
        assert (finding.law, finding.at_ms, finding.seq, finding.scope) == (Law.CAP, 20, 2, QUEUE)
        assert (finding.count, finding.cap) == (2, 1)
        assert [(each.task_id, each.worker_id, each.since_ms) for each in finding.holders] == [
            ("a", "of-a", 10),
            ("b", "of-b", 20),
        ]

    def test_a_lowered_cap_stops_new_grants_only(self) -> None:
        lowered = Journal().granted("a", 0, cap(2)).granted("b", 1, cap(2)).renewed("a", 5).ended("a", 6)
        assert laws(lowered) == []
        assert laws(lowered.granted("c", 7, cap(1))) == [Law.CAP]

    def test_an_expired_lease_holds_its_place_until_somebody_ends_it(self) -> None:
        journal = Journal().granted("a", 0, cap(1)).granted("b", 50_000, cap(1))
        assert laws(journal) == [Law.CAP]

    def test_a_claimed_lease_counts_from_its_start(self) -> None:
        journal = Journal().granted("a", 0, cap(1)).granted("b", 1, cap(1), phase="claimed")
        assert laws(journal) == []
        assert laws(journal.started("b", 2, cap(1))) == [Law.CAP]

    def test_every_scope_is_counted_on_its_own(self) -> None:
        journal = Journal()
        for task, queue in (("a", "one"), ("b", "two")):
            own = cap(1, f"queue:default/{queue}/activity")
            journal.granted(task, 0, own, cap(1, "group:default/openai"), task_queue=queue)
        assert [(each.law, each.scope) for each in found(journal)] == [(Law.CAP, "group:default/openai")]

    @pytest.mark.parametrize("closed", [cap(0), rate(0)])
    def test_a_scope_with_a_limit_of_zero_gives_nothing(self, closed: ScopeLimits) -> None:
        assert laws(Journal().granted("a", 0, closed)) == [Law.CLOSED]
        claimed = Journal().granted("a", 0, closed, phase="claimed")
        assert laws(claimed) == []
        assert laws(claimed.started("a", 1, closed)) == [Law.CLOSED]


class TestRates:
    def test_a_calendar_minute_holds_as_many_as_the_rate(self) -> None:
        journal = Journal().granted("a", NOON + 59_000, rate(2)).granted("b", NOON + 59_999, rate(2))
        journal.granted("c", NOON + MINUTE_MS, rate(2)).granted("d", NOON + MINUTE_MS, rate(2))
        assert laws(journal) == []
        assert laws(journal.granted("e", NOON + MINUTE_MS + 59_999, rate(2))) == [Law.RATE]

    def test_a_sliding_window_sees_the_burst_around_the_turn_of_the_minute(self) -> None:
        journal = Journal().granted("a", NOON + 59_999, rate(1, "sliding"))
        assert laws(journal.granted("b", NOON + MINUTE_MS, rate(1, "sliding"))) == [Law.RATE]

    def test_what_went_sixty_seconds_ago_has_left_the_sliding_window(self) -> None:
        journal = Journal().granted("a", NOON, rate(1, "sliding"))
        assert laws(journal.granted("b", NOON + MINUTE_MS, rate(1, "sliding"))) == []

    def test_the_rate_of_the_grant_itself_is_the_one_that_counts(self) -> None:
        journal = Journal().granted("a", NOON, rate(5)).granted("b", NOON + 1, rate(5))
        assert laws(journal.granted("c", NOON + 2, rate(2))) == [Law.RATE]

    def test_who_waited_for_a_turn_counts_in_the_minute_in_which_it_came(self) -> None:
        """A transaction that read the clock before the minute turned, and wrote after others had."""
        journal = Journal().granted("a", NOON + MINUTE_MS + 2, rate(1))
        assert laws(journal.granted("b", NOON + MINUTE_MS - 1, rate(1))) == [Law.RATE]

    def test_a_clock_that_was_set_back_is_told_and_begins_new_windows(self) -> None:
        journal = Journal().granted("a", NOON + MINUTE_MS, rate(1)).granted("b", NOON, rate(1))
        book = looked(journal.granted("c", NOON + MINUTE_MS, rate(1)))
        assert book.findings == []
        assert [notice.about for notice in book.notices] == ["clock-step"]

    def test_reserved_cost_counts_until_it_is_settled(self) -> None:
        def group(cost: int) -> ScopeLimits:
            return ScopeLimits("group:default/g", max_cost_per_minute=100, cost=cost)

        journal = Journal().granted("a", NOON, group(80))
        assert laws(Journal().granted("a", NOON, group(80)).granted("b", NOON + 1, group(40))) == [Law.COST]
        assert laws(journal.ended("a", NOON + 1, cost=30).granted("b", NOON + 2, group(70))) == []
        assert laws(journal.granted("c", NOON + 3, group(1))) == [Law.COST]

    @pytest.mark.parametrize("window", ["minute", "sliding"])
    def test_a_refunded_dispatch_makes_room_for_another(self, window: str) -> None:
        journal = Journal().granted("a", NOON, rate(1, window))
        journal.ended("a", NOON + 1, "undelivered", refunded=True).granted("b", NOON + 2, rate(1, window))
        assert laws(journal) == []
        assert laws(journal.granted("c", NOON + 3, rate(1, window))) == [Law.RATE]

    def test_a_refund_of_the_minute_before_makes_no_room_in_this_one(self) -> None:
        journal = Journal().granted("a", NOON, rate(1)).granted("b", NOON + MINUTE_MS, rate(1))
        journal.ended("a", NOON + MINUTE_MS + 1, "undelivered", refunded=True)
        assert laws(journal.granted("c", NOON + MINUTE_MS + 2, rate(1))) == [Law.RATE]

    def test_a_refunded_cost_is_no_cost(self) -> None:
        group = ScopeLimits("group:default/g", max_cost_per_minute=100, cost=80)
        journal = Journal().granted("a", NOON, group)
        journal.ended("a", NOON + 1, "undelivered", refunded=True).granted("b", NOON + 2, group)
        assert laws(journal) == []

    def test_a_claimed_lease_was_dispatched_when_it_started(self) -> None:
        journal = Journal().granted("a", NOON, rate(1)).granted("b", NOON + 1, rate(1), phase="claimed")
        assert laws(journal) == []
        assert laws(journal.started("b", NOON + 2, rate(1))) == [Law.RATE]


class TestOutcomes:
    def test_a_task_has_one_lease_at_a_time(self) -> None:
        journal = Journal().granted("a", 0).granted("a", 1, attempt=2, lease="2")
        assert laws(journal) == [Law.ONE_LEASE]

    def test_attempts_rise(self) -> None:
        journal = (
            Journal().granted("a", 0, lease="x").ended("a", 1, "expired", "x").granted("a", 2, lease="y")
        )
        assert laws(journal) == [Law.ATTEMPTS_RISE]

    @pytest.mark.parametrize("how", ["handed_back", "throttled", "returned"])
    def test_an_attempt_that_was_not_charged_comes_again_under_another_token(self, how: str) -> None:
        journal = Journal().granted("a", 0, lease="x").ended("a", 1, how, "x").granted("a", 2, lease="y")
        assert laws(journal) == []

    def test_a_lease_ends_once(self) -> None:
        journal = Journal().granted("a", 0).ended("a", 1, "failed").ended("a", 2, "expired")
        assert laws(journal) == [Law.ENDS_ONCE]

    def test_nothing_ends_that_was_not_granted(self) -> None:
        assert laws(Journal().ended("a", 1)) == [Law.ENDS_ONCE]

    def test_a_journal_that_begins_late_may_end_what_it_did_not_grant(self) -> None:
        assert check([LeaseEnded(7, 0, "a", "1", "completed")])[0].findings == []

    @pytest.mark.parametrize("how", ["completed", "failed"])
    def test_a_report_of_an_expired_lease_is_late(self, how: str) -> None:
        assert laws(Journal().granted("a", 0).ended("a", 29_999, how)) == []
        assert laws(Journal().granted("a", 0).ended("a", 30_000, how)) == [Law.LATE_ANSWER]

    def test_a_renewed_lease_is_in_time_until_its_new_end(self) -> None:
        assert laws(Journal().granted("a", 0).renewed("a", 20_000).ended("a", 49_999)) == []
        assert laws(Journal().granted("a", 0).renewed("a", 30_001)) == [Law.LATE_ANSWER]

    def test_a_sweeper_may_end_an_expired_lease_at_any_time(self) -> None:
        assert laws(Journal().granted("a", 0).ended("a", 99_000, "expired")) == []

    def test_a_completed_task_is_not_granted_again(self) -> None:
        journal = Journal().granted("a", 0).ended("a", 1).granted("a", 2, attempt=2, lease="2")
        assert laws(journal) == [Law.ONE_OUTCOME]

    def test_a_claimed_lease_that_was_never_started_is_no_attempt(self) -> None:
        journal = Journal().granted("a", 0, lease="x", phase="claimed").ended("a", 1, "expired", "x")
        assert laws(journal.granted("a", 2, lease="y")) == []

    def test_a_gap_in_the_numbers_is_told_and_found_where_they_are_dense(self) -> None:
        journal = Journal().granted("a", 0).renewed("a", 1).ended("a", 2)
        del journal.lines[1]
        book = looked(journal)
        assert (book.findings, [notice.about for notice in book.notices]) == ([], ["gap"])
        dense, _ = check(journal.lines, (), ClockOptions(gaps=Gaps.FOUND))
        assert [finding.law for finding in dense.findings] == [Law.SEQUENCE]

    def test_numbers_that_do_not_rise_are_found(self) -> None:
        journal = Journal().granted("a", 0).ended("a", 1)
        assert [each.law for each in check([*journal.lines, *journal.lines[1:]])[0].findings] == [
            Law.SEQUENCE,
            Law.ENDS_ONCE,
            Law.ONE_OUTCOME,
        ]


class TestNamespaces:
    @pytest.mark.parametrize(
        "scope",
        [
            "queue:other/payments/activity",
            "queue:default/other/activity",
            "namespace:other/activity",
            "namespace:default/workflow",
            "group:other/openai",
            "cluster/workflow",
        ],
    )
    def test_a_grant_counts_nowhere_else(self, scope: str) -> None:
        assert laws(Journal().granted("a", 0, cap(9, scope))) == [Law.NAMESPACE]

    @pytest.mark.parametrize(
        "scope",
        [
            "namespace:default",
            "cluster",
            "cluster/activity",
            "group:*/openai",
            "group:default/openai/activity",
        ],
    )
    def test_a_grant_counts_in_all_that_it_belongs_to(self, scope: str) -> None:
        assert laws(Journal().granted("a", 0, cap(9, scope))) == []


def polled(task: str, t_inv: float, t_ok: float | None, lease: str = "1", **more: Any) -> Polled:
    told = {"expires_in_ms": 30_000.0} | more
    seen = PolledLease(task, lease, "default", "payments", "activity", **told)
    return Polled(t_inv, t_ok, f"of-{task}", (seen,))


def set_(t_inv: float, t_ok: float | None, **limits: Any) -> LimitsSet:
    return LimitsSet(t_inv, QUEUE, limits, t_ok, "accepted" if t_ok is not None else "unknown")


class TestClients:
    """What clients saw, beside a journal that tells the same or something else."""

    def test_leases_that_were_certainly_live_together_are_counted_whatever_the_journal_says(self) -> None:
        journal = Journal().granted("a", 20, cap(1)).ended("a", 25, "expired").granted("b", 30, cap(1))
        seen = (set_(0, 1, max_active_leases=1), polled("a", 10, 21), polled("b", 22, 31))
        [finding] = found(journal, *seen)
        assert (finding.law, finding.at_ms, finding.count, finding.cap) == (Law.CLIENT_CAP, 31, 2, 1)
        assert [each.task_id for each in finding.holders] == ["a", "b"]

    def test_a_lease_is_certain_only_until_its_report_was_sent(self) -> None:
        journal = Journal().granted("a", 20, cap(1)).ended("a", 25).granted("b", 30, cap(1))
        report = Reported("complete", 24, "a", "1", 40, "accepted")
        assert (
            laws(journal, set_(0, 1, max_active_leases=1), polled("a", 10, 21), report, polled("b", 22, 31))
            == []
        )

    def test_while_a_cap_changes_the_larger_one_counts(self) -> None:
        journal = Journal().granted("a", 20, cap(2)).granted("b", 30, cap(2))
        seen = (set_(0, 1, max_active_leases=2), polled("a", 10, 21), polled("b", 22, 31))
        assert laws(journal, *seen, set_(25, 35, max_active_leases=1)) == []
        assert Law.CLIENT_CAP in laws(journal, *seen, set_(21, 21.5, max_active_leases=1))

    def test_a_grant_carries_the_limit_that_was_acknowledged_before_it_was_asked_for(self) -> None:
        journal = Journal().granted("a", 20, cap(None))
        seen = polled("a", 10, 21)
        assert laws(journal, set_(0, 9, max_active_leases=4), seen) == [Law.LIMIT_IN_FORCE]
        assert laws(journal, set_(0, 11, max_active_leases=4), seen) == []
        assert laws(Journal().granted("a", 20, cap(4)), set_(0, 9, max_active_leases=4), seen) == []

    def test_a_grant_that_is_not_counted_in_a_limited_scope_is_found(self) -> None:
        journal = Journal().granted("a", 20)
        assert laws(journal, set_(0, 9, max_active_leases=4), polled("a", 10, 21)) == [Law.LIMIT_IN_FORCE]

    def test_whoever_unsets_a_limit_leaves_it_to_the_configuration(self) -> None:
        journal = Journal().granted("a", 20, cap(8))
        assert laws(journal, set_(0, 9, max_active_leases=None), polled("a", 10, 21)) == []

    def test_zero_that_was_taken_as_no_limit_is_found_twice(self) -> None:
        journal = Journal().granted("a", 20, cap(None))
        found_ = laws(journal, set_(0, 9, max_active_leases=0), polled("a", 10, 21))
        assert found_ == [Law.LIMIT_IN_FORCE, Law.CLOSED]

    def test_a_paused_scope_gives_nothing(self) -> None:
        journal = Journal().granted("a", 20)
        assert laws(journal, set_(0, 9, paused=True), polled("a", 10, 21)) == [Law.CLOSED]
        assert laws(journal, set_(0, 9, paused=True), set_(15, 30, paused=False), polled("a", 10, 21)) == []

    def test_a_poll_repeated_after_a_lost_answer_was_asked_for_when_it_was_first_sent(self) -> None:
        journal = Journal().granted("a", 3, cap(None))
        seen = polled("a", 10, 21)
        first = Polled(2, None, "of-a", poll_request_id="p")
        again = Polled(seen.t_inv, seen.t_ok, "of-a", seen.leases, "p")
        assert laws(journal, first, set_(4, 5, max_active_leases=1), again) == []

    def test_more_in_a_minute_than_two_calendar_minutes_allow_is_found(self) -> None:
        journal, seen = Journal(), [set_(0, 1, max_dispatches_per_minute=1)]
        for number in range(3):
            journal.granted(f"t{number}", NOON + number, cap(None))
        lines: list[Observation] = [*seen, *(polled(f"t{n}", 10 + n, 11 + n) for n in range(3))]
        assert Law.CLIENT_RATE in laws(journal, *lines)
        assert Law.CLIENT_RATE not in laws(journal, *lines[:3])

    def test_an_accepted_result_that_the_journal_does_not_know_is_found(self) -> None:
        report = Reported("complete", 24, "a", "1", 40, "accepted")
        assert laws(Journal().granted("a", 20), polled("a", 10, 21), report) == [Law.ACKNOWLEDGED]

    def test_a_result_without_an_answer_is_held_against_nobody(self) -> None:
        report = Reported("complete", 24, "a", "1")
        assert laws(Journal().granted("a", 20), polled("a", 10, 21), report) == []
        assert laws(Journal().granted("a", 20).ended("a", 30), polled("a", 10, 21), report) == []

    def test_a_refused_result_that_the_journal_counts_is_found(self) -> None:
        report = Reported("complete", 24, "a", "1", 40, "refused")
        assert laws(Journal().granted("a", 20).ended("a", 30), polled("a", 10, 21), report) == [
            Law.ACKNOWLEDGED
        ]

    def test_what_was_answered_before_something_was_sent_comes_first_in_the_journal(self) -> None:
        journal = Journal().granted("b", 20).granted("a", 20)
        assert laws(journal, polled("a", 10, 15), polled("b", 16, 21)) == [Law.CALL_ORDER]

    def test_a_task_of_another_namespace_than_was_polled_is_found(self) -> None:
        journal = Journal().granted("a", 20, namespace="other")
        assert laws(journal, polled("a", 10, 21)) == [Law.NAMESPACE]

    def test_a_clock_that_was_moved_ahead_is_told_and_ends_all_certainty(self) -> None:
        hour = 3_600_000
        journal = (
            Journal().granted("a", 20, cap(1)).ended("a", hour, "expired").granted("b", hour + 5, cap(1))
        )
        book = looked(journal, set_(0, 1, max_active_leases=1), polled("a", 10, 21), polled("b", 22, 31))
        assert book.findings == []
        assert [notice.about for notice in book.notices] == ["clock-moved"]

    def test_two_tasks_of_one_key_are_granted_in_the_order_of_their_starts(self) -> None:
        def start(task: str, t_inv: float, t_ok: float) -> StartSent:
            return StartSent(t_inv, t_ok, "accepted", task, task_queue="payments", key="k", level=3)

        journal = Journal().granted("b", 20).granted("a", 21)
        assert laws(journal, start("a", 1, 2), start("b", 3, 4)) == [Law.FIFO]
        assert laws(journal, start("a", 1, 3), start("b", 3, 4)) == []


class TestTheEnd:
    START = StartSent(1, 2, "accepted", "a", task_queue="payments")

    def test_what_was_acknowledged_and_is_not_there_is_lost(self) -> None:
        assert laws(Journal().granted("b", 0), self.START, Quiescent()) == [Law.LOST]
        assert laws(Journal().granted("b", 0), self.START, Quiescent(), ObservedFinal("waiting", "a")) == []

    def test_nothing_is_lost_before_all_has_come_to_rest(self) -> None:
        assert laws(Journal().granted("b", 0), self.START) == []

    def test_a_task_that_waits_though_nothing_is_full_is_lost(self) -> None:
        waits = ObservedFinal("ready", "a", task_queue="payments")
        rested = (self.START, waits, Quiescent())
        assert laws(Journal().granted("b", 0, cap(2)), *rested) == [Law.LOST]
        assert laws(Journal().granted("b", 0, cap(1)), *rested) == []
        assert laws(Journal().granted("b", 0), set_(1, 2, paused=True), *rested) == []
        assert laws(Journal().granted("b", 0), set_(1, 2, max_dispatches_per_minute=0), *rested) == []

    def test_a_lease_that_never_ended_keeps_a_place_for_ever(self) -> None:
        rested = (ObservedFinal("done", "a"), Quiescent())
        assert laws(Journal().granted("a", 0), *rested) == [Law.ENDS_ONCE]
        assert laws(Journal().granted("a", 0).ended("a", 1), *rested) == []


class TestDelivered:
    """Every dispatch that was counted reached its worker, or was refunded."""

    def poll(self, t_ok: float | None = 5.0, *leases: str) -> Polled:
        """A poll of a worker that also got a task of which the journal tells before."""
        told = [PolledLease(task, "1", "default", "payments", "activity") for task in ("before", *leases)]
        return Polled(1.0, t_ok, "of-a", tuple(told) if t_ok is not None else ())

    def journal(self) -> Journal:
        return Journal().granted("before", 2, worker_id="of-a")

    def test_what_was_not_delivered_is_refunded(self) -> None:
        journal = self.journal().granted("a", 3).ended("a", 4, "undelivered", refunded=True)
        assert laws(journal, self.poll()) == []
        assert laws(self.journal().granted("a", 3).ended("a", 4, "undelivered")) == [Law.DELIVERED]

    def test_what_its_worker_had_is_not_refunded(self) -> None:
        assert laws(self.journal().granted("a", 3).ended("a", 9, refunded=True)) == [Law.DELIVERED]
        journal = self.journal().granted("a", 3).ended("a", 9, "undelivered", refunded=True)
        beat = Reported("heartbeat", 6.0, "a", "1", 7.0, "accepted")
        assert laws(journal, self.poll(5.0, "a"), beat) == [Law.DELIVERED]

    def test_a_poll_that_was_answered_without_the_task_that_it_was_counted_for_is_found(self) -> None:
        journal = self.journal().granted("a", 3).ended("a", 4, "handed_back")
        assert laws(journal, self.poll()) == [Law.DELIVERED]
        assert laws(journal, self.poll(5.0, "a")) == []

    def test_a_worker_of_the_same_name_elsewhere_is_another_one(self) -> None:
        journal = self.journal().granted("a", 3, namespace="other").ended("a", 4, "handed_back")
        assert laws(journal, self.poll()) == []

    def test_a_poll_without_an_answer_is_held_against_nobody(self) -> None:
        journal = self.journal().granted("a", 3).ended("a", 4, "handed_back")
        assert laws(journal, self.poll(), self.poll(None)) == []

    def test_a_lease_that_reached_no_client_and_expired_is_told(self) -> None:
        book = looked(self.journal().granted("a", 3).ended("a", 60_000, "expired"), self.poll())
        assert book.findings == []
        assert [notice.about for notice in book.notices] == ["reached-no-client"]

    def test_a_claimed_lease_that_was_never_started_was_not_counted(self) -> None:
        journal = self.journal().granted("a", 3, phase="claimed").ended("a", 4, "handed_back")
        assert laws(journal, self.poll()) == []


def test_all_findings_are_counted_and_the_first_are_kept() -> None:
    journal = Journal()
    for number in range(300):
        journal.granted(f"t{number}", number, cap(1))
    book = looked(journal)
    assert book.found[Law.CAP] == 299
    assert len(book.findings) == FINDINGS_KEPT_MAX
