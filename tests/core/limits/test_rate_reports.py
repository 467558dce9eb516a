"""Whose word about a queue's rate holds, for how long, and when two workers are at odds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits.admission import Admission, Declaration
from penstock.core.limits.policies import NO_POLICY, LimitSetting, Policy, SettingValue, rules
from penstock.core.limits.rate_reports import (
    CONFLICT_SHOWN_MS,
    CONFLICT_WITHIN_MS,
    REPORT_TTL_DEFAULT_MS,
    RateReport,
    RateSource,
    RateUpdate,
    WorkerRate,
    apply_report,
    effective_rate,
    is_renewed,
)
from penstock.core.limits.rates import Rate
from penstock.core.model import Queue, QueueId, TaskKind
from tests.core.scheduling.queue_model import per_second

HOLDS = REPORT_TTL_DEFAULT_MS
NOW = 10**9
maybe_rate = st.one_of(st.none(), st.integers(1, 10**9))
words = st.builds(
    RateReport, st.sampled_from([5, 50, 500]), st.sampled_from("abc"), st.sampled_from([None, 0, 1_000])
)
said = st.lists(
    st.tuples(st.sampled_from([0, 1, 1_000, 14_000, 30_000, 61_000, 299_000, 400_000]), words), max_size=30
)
"""How long after the word before, and what."""


def hear(known: WorkerRate | None, word: RateReport, now_ms: int, *, lives: bool = True) -> RateUpdate:
    return apply_report(known, word, now_ms, HOLDS, rival_lives=lives)


class TestPrecedence:
    @pytest.mark.parametrize(
        ("system", "operator", "worker", "expected"),
        [
            (None, None, None, (None, RateSource.NONE)),
            (None, None, 5, (5, RateSource.WORKER)),
            (None, 50, 5, (50, RateSource.OPERATOR)),
            (None, 5, 50, (5, RateSource.OPERATOR)),
            (None, 0, 50, (0, RateSource.OPERATOR)),
            (10, None, None, (10, RateSource.SYSTEM)),
            (10, None, 5, (5, RateSource.WORKER)),
            (10, None, 50, (10, RateSource.SYSTEM)),
            (10, 50, 5, (10, RateSource.SYSTEM)),
            (10, 10, 5, (10, RateSource.OPERATOR)),
            (10, 0, None, (0, RateSource.OPERATOR)),
        ],
    )
    def test_the_operator_beats_the_workers_up_and_down_and_nobody_is_above_the_system(
        self,
        system: int | None,
        operator: int | None,
        worker: int | None,
        expected: tuple[int | None, RateSource],
    ) -> None:
        assert effective_rate(system, operator, worker) == expected

    @given(system=maybe_rate, operator=st.one_of(maybe_rate, st.just(0)), worker=maybe_rate)
    def test_it_is_the_least_of_the_system_and_of_who_is_heard(
        self, system: int | None, operator: int | None, worker: int | None
    ) -> None:
        asked = worker if operator is None else operator
        limits = [each for each in (system, asked) if each is not None]
        found, source = effective_rate(system, operator, worker)
        assert found == min(limits, default=None)
        assert (source is RateSource.NONE) == (found is None)

    def test_only_an_operator_pauses(self) -> None:
        paused = Policy(1, {LimitSetting.QUEUE_RATE: SettingValue(0, "operator", NOW)})
        conveyed = WorkerRate(per_second(50), "w1", NOW)
        held = rules(paused, worker_rate=conveyed, rate_max_micro=per_second(10))
        assert held.queue_rate is not None
        assert held.queue_rate.is_closed

    @pytest.mark.parametrize(
        ("operator", "worker", "expected"),
        [(None, None, 1_000), (None, 100, 100), (250, 100, 250), (0, 100, 0)],
    )
    def test_the_burst_is_the_operators_else_the_workers_else_a_second(
        self, operator: int | None, worker: int | None, expected: int
    ) -> None:
        settings = (
            {} if operator is None else {LimitSetting.QUEUE_BURST: SettingValue(operator, "operator", NOW)}
        )
        conveyed = WorkerRate(per_second(50), "w1", NOW, burst_ms=worker)
        assert rules(Policy(1, settings), worker_rate=conveyed).queue_rate == Rate(per_second(50), expected)

    def test_the_system_speaks_of_activities_only(self) -> None:
        admission = Admission(1, Declaration(rate_max_micro=per_second(7)))
        found = {kind: admission.of("default", "q", kind, NO_POLICY, NOW).rate_max_micro for kind in TaskKind}
        assert found == {TaskKind.WORKFLOW: None, TaskKind.ACTIVITY: per_second(7)}


class TestWords:
    @given(script=said)
    def test_who_spoke_last_is_heard_and_only_what_is_new_is_written_down(
        self, script: list[tuple[int, RateReport]]
    ) -> None:
        known, now = None, NOW
        for after_ms, word in script:
            now += after_ms
            if is_renewed(known, word, now, HOLDS):
                assert known is not None
                assert (known.micro, known.burst_ms) == (word.micro, word.burst_ms)
            else:
                known = hear(known, word, now).rate
                assert (known.micro, known.burst_ms, known.worker_id) == (
                    word.micro,
                    word.burst_ms,
                    word.worker_id,
                )
            assert known.holds_at(now + HOLDS - 1)

    @given(script=said, holds_ms=st.integers(1_000, 86_400_000))
    def test_it_lapses_when_it_was_not_said_for_its_time_and_a_twentieth_at_most(
        self, script: list[tuple[int, RateReport]], holds_ms: int
    ) -> None:
        known, now = None, NOW
        for after_ms, word in [*script, (0, RateReport(5, "a"))]:
            now += after_ms
            if not is_renewed(known, word, now, holds_ms):
                known = apply_report(known, word, now, holds_ms).rate
        assert known is not None
        assert known.holds_at(now + holds_ms - 1)
        assert not known.holds_at(now + holds_ms + holds_ms // 20 + 1)

    def test_a_worker_that_repeats_itself_is_written_down_four_times_a_minute_at_most(self) -> None:
        known, writes = None, 0
        for second in range(600):
            if not is_renewed(known, RateReport(5, "ab"[second % 2]), NOW + second * 1_000, HOLDS):
                known = hear(known, RateReport(5, "ab"[second % 2]), NOW + second * 1_000).rate
                writes += 1
        assert writes <= 40

    def test_the_same_said_for_longer_is_no_change_but_after_a_lapse_it_is(self) -> None:
        first = hear(None, RateReport(5, "a"), NOW)
        assert first.is_change
        assert not hear(first.rate, RateReport(5, "b"), NOW + 20_000).is_change
        assert hear(first.rate, RateReport(5, "b"), NOW + 2 * HOLDS).is_change
        assert hear(first.rate, RateReport(5, "a", burst_ms=0), NOW).is_change

    def test_a_clock_that_was_set_back_does_not_hold_a_word_for_long(self) -> None:
        known = hear(None, RateReport(5, "a"), NOW + 86_400_000).rate
        assert not is_renewed(known, RateReport(5, "a"), NOW, HOLDS)

    def test_what_was_written_before_words_lapsed_holds_until_somebody_speaks(self) -> None:
        old = WorkerRate(5, "a", 0)
        assert old.holds_at(NOW)
        assert not is_renewed(old, RateReport(5, "a"), NOW, HOLDS)

    def test_a_queue_goes_by_a_word_while_it_holds(self) -> None:
        known = hear(None, RateReport(per_second(5), "a"), NOW).rate
        assert known.until_ms is not None
        line = {
            at_ms: Queue(QueueId(1), "default", "q", TaskKind.ACTIVITY, worker_rate=known, at_ms=at_ms)
            for at_ms in (NOW, known.until_ms - 1, known.until_ms)
        }
        assert [each.rules.queue_rate_source.value for each in line.values()] == ["worker", "worker", "none"]


class TestConflicts:
    def test_different_words_of_two_live_workers_within_a_minute_are_one_conflict(self) -> None:
        known, began = None, []
        for second in range(0, 600, 10):
            word = RateReport(5, "a") if second % 20 else RateReport(50, "b")
            told = hear(known, word, NOW + second * 1_000)
            known = told.rate
            began += [] if told.began is None else [second]
        assert began == [10]
        assert known is not None
        assert known.conflict is not None
        assert (known.conflict.since_ms, known.conflict.at_ms) == (NOW + 10_000, NOW + 590_000)
        assert {known.conflict.worker_id, known.conflict.by} == {"a", "b"}

    @pytest.mark.parametrize(
        ("second", "after_ms", "lives"),
        [
            (RateReport(5, "b"), 0, True),
            (RateReport(50, "a"), 0, True),
            (RateReport(50, "b"), CONFLICT_WITHIN_MS + 1, True),
            (RateReport(50, "b"), 0, False),
        ],
        ids=["the same value", "the same worker", "later", "the other is gone"],
    )
    def test_it_is_none_if_they_agree_or_do_not_meet(
        self, second: RateReport, after_ms: int, lives: bool
    ) -> None:
        first = hear(None, RateReport(5, "a"), NOW).rate
        told = hear(first, second, NOW + after_ms, lives=lives)
        assert (told.began, told.rate.conflict) == (None, None)

    def test_one_that_went_on_after_peace_is_told_again_and_an_old_one_is_forgotten(self) -> None:
        first = hear(None, RateReport(5, "a"), NOW).rate
        odds = hear(first, RateReport(50, "b"), NOW + 1_000)
        assert odds.began is not None
        assert odds.rate.conflict_at(NOW + 1_000 + CONFLICT_SHOWN_MS) == odds.began
        assert odds.rate.conflict_at(NOW + 1_001 + CONFLICT_SHOWN_MS) is None
        kept = hear(odds.rate, RateReport(50, "b"), NOW + 100_000)
        assert (kept.began, kept.rate.conflict) == (None, odds.began)
        again = hear(kept.rate, RateReport(5, "a"), NOW + 100_500)
        assert again.began is not None
        assert again.began.since_ms == NOW + 100_500
