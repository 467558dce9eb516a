"""Traces: what they keep of a load, what they say is missing, and which files are refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.verify.journal import (
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    ScopeLimits,
    SettingChanged,
    SettingsChanged,
    TaskGone,
    TaskReady,
    WorkerChanged,
)
from penstock.errors import InvalidInput
from penstock.simulator.model_file import read_model
from penstock.simulator.traces.anonymiser import Anonymiser
from penstock.simulator.traces.fitted_model import fit
from penstock.simulator.traces.recorder import ServerState, record
from penstock.simulator.traces.replay import replay_of
from penstock.simulator.traces.trace_file import TraceTail, read_trace, write_trace
from penstock.wire.limits.limit_paths import LimitSettings, LimitTarget
from tests.simulator.loads import backlog, simulate, workers
from tests.simulator.traces.recorded import head, load, trace_of

MINUTE_MS = 60_000
FROM_MS = 1_800_000_000_000
WINDOW = (FROM_MS, FROM_MS + MINUTE_MS)
QUEUE = "queue:default/q/activity"


def ready(seq: int, task: str, at_ms: int, **more: Any) -> TaskReady:
    return TaskReady(seq, FROM_MS + at_ms, "default", "q", "activity", "t", task, **more)


def granted(
    seq: int, task: str, at_ms: int, worker: str = "w", attempt: int = 1, **more: Any
) -> LeaseGranted:
    fields: dict[str, Any] = {"worker_id": worker, "key": "", "level": 5}
    lease = str(attempt)
    return LeaseGranted(
        seq, FROM_MS + at_ms, "default", "q", "activity", task, lease, attempt, **(fields | more)
    )


def ended(seq: int, task: str, at_ms: int, how: Any = "completed", lease: str = "1") -> LeaseEnded:
    return LeaseEnded(seq, FROM_MS + at_ms, task, lease, how)


def worker(seq: int, at_ms: int, state: Any, slots: int = 3) -> WorkerChanged:
    return WorkerChanged(seq, FROM_MS + at_ms, "default", "w", state, "q", slots)


def recorded(*lines: JournalLine, state: ServerState | None = None) -> tuple[list[dict[str, Any]], TraceTail]:
    events, recorder = record(lines, "default", *WINDOW)
    return events, recorder.tail(state or ServerState())


ONE = (worker(1, -5, "registered"), ready(2, "a", 10), granted(3, "a", 20), ended(4, "a", 1_020))


def stream(key: str, per_minute: int, attempts: int) -> dict[str, Any]:
    """Tasks of which every fifth attempt fails."""
    takes = {"p50": "1s", "p90": "3s"}
    fields = {"queue": "q", "key": key, "per_minute": per_minute, "takes": takes}
    return fields | {"fails": 0.2, "attempts": attempts}


def written(path: Path, *lines: JournalLine) -> Path:
    events, tail = recorded(*lines)
    write_trace(path, head(*WINDOW), events, tail)
    return path


# ── The same again ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_replay_of_a_recorded_load_grants_the_same_at_the_same_moments(tmp_path: Path) -> None:
    of = load(
        duration="1m",
        arrivals=[
            stream("a", 60, attempts=3),
            backlog(30, "b", takes="2s", weight=2.5),
        ],
        workers=[workers(count=2, slots=2), workers(slots=1, joins="20s")],
        queues={"q": {"weights": {"a": 3}, "max_active_leases": 4, "queue_rps_limit": 5}},
        changes=[{"at": "30s", "queues": {"q": {"max_active_leases": 3, "weights": {"b": 2}}}}],
    )
    config = {"queue_rps_limit": {"value": 5}, "keys": [{"fairness_key": "a", "weight_override": 3}]}
    config["keys"].append({"fairness_key": "b", "weight_override": 2})  # type: ignore[attr-defined]
    now = ServerState(queues={("q", "activity"): config})
    replay = replay_of(await trace_of(of, tmp_path / "x.trace", (0, 10 * MINUTE_MS), now), 1_000)
    first, again = await simulate(of), await simulate(replay.workload)
    assert again.grants == first.grants
    assert len(first.grants) > 80


async def test_a_window_that_begins_later_carries_over_what_waits_and_runs(tmp_path: Path) -> None:
    of = load(arrivals=[backlog(20, takes="10s")], workers=[workers(slots=2)])
    trace = await trace_of(of, tmp_path / "x.trace", (25_000, 45_000))
    replay = replay_of(trace, 1_000)
    assert trace.tail.missing == ()
    assert len(replay.tasks) == 16, "four have ended before, two run, fourteen wait"
    assert len(replay.running) == 2
    running = [each for each in replay.tasks if each.granted_at_ms and each.granted_at_ms[0] < 0]
    assert [
        replay.workload.arrivals[replay.tasks.index(each)].attempts[0].duration_ms for each in running
    ] == [
        5_000,
        5_000,
    ]


def test_an_arrival_with_a_cause_comes_after_the_end_of_that_task() -> None:
    lines = (*ONE, ready(5, "b", 1_520, after="a"), granted(6, "b", 1_600), ended(7, "b", 1_700))
    trace_events, tail = recorded(*lines)
    assert tail.missing == ()
    assert [each.get("after") for each in trace_events if each["event"] == "ready"] == [None, "a"]


async def test_what_an_end_causes_comes_earlier_when_that_end_does(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.trace",
        *ONE[:1],
        ready(2, "a", 0),
        ready(3, "b", 0),
        granted(4, "a", 0),
        ended(5, "a", 10_000),
        granted(6, "b", 10_000),
        ended(7, "b", 20_000),
        ready(8, "c", 20_500, after="b"),
        granted(9, "c", 20_500),
        ended(10, "c", 21_000),
    )
    replay = replay_of(read_trace(path), 10)
    assert replay.closed == 1
    simulated = await simulate(replay.workload)
    assert simulated.grants == [(0, 0), (0, 1), (10_500, 2)], "three slots: b need not wait for a"


# ── What is missing ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_journal_that_begins_after_the_window_is_named() -> None:
    _, tail = recorded(ready(1, "a", 30_000))
    assert tail.missing == ("the first 30 s of the window: the journal begins later",)


def test_tasks_without_an_arrival_and_unknown_workers_are_named() -> None:
    _, tail = recorded(ready(1, "a", -1), granted(2, "old", 10, "stranger"), ended(3, "old", 20))
    assert tail.missing == (
        "the arrivals of 1 tasks, which waited before the journal began",
        "the slots of workers that are not registered any more: stranger",
    )
    assert [(each.worker_id, each.slots, each.joins_ms) for each in tail.workers] == [("stranger", 1, 10)]


def test_a_clock_that_was_set_back_is_named() -> None:
    _, tail = recorded(*ONE, ready(5, "b", 30_000), ready(6, "c", 5_000))
    assert tail.clock_steps == (FROM_MS + 5_000,)


def test_a_worker_has_the_slots_and_the_time_that_it_was_there() -> None:
    _, tail = recorded(
        worker(1, -9, "registered", 3),
        *ONE[1:],
        worker(5, 20_000, "registered", 5),
        worker(6, 40_000, "silent", 5),
    )
    spans = [(each.slots, each.joins_ms, each.leaves_ms, each.dies_ms) for each in tail.workers]
    assert spans == [(3, 0, 20_000, None), (5, 20_000, None, 40_000)]


def test_a_worker_without_a_line_was_there_all_the_time() -> None:
    shown = {
        "worker_id": "w",
        "task_queue": "q",
        "status": "active",
        "last_heartbeat_at": "2027-01-15T08:00:59Z",
        "max_concurrent_activity_tasks": 7,
        "max_concurrent_workflow_tasks": 0,
        "supported_activity_types": ["t"],
    }
    _, tail = recorded(ready(1, "x", -1), *ONE[1:], state=ServerState((shown,)))
    assert [(each.worker_id, each.slots, each.types) for each in tail.workers] == [("w", 7, ("t",))]
    assert tail.missing == ()


def test_limits_are_those_of_the_beginning_with_every_change() -> None:
    cap: dict[str, Any] = {
        "scopes": (ScopeLimits(QUEUE, max_active_leases=8), ScopeLimits("group:default/llm", 20))
    }
    lower: dict[str, Any] = {
        "scopes": (ScopeLimits(QUEUE, max_active_leases=2), ScopeLimits("group:default/llm", 20))
    }
    changed = SettingsChanged(
        5,
        FROM_MS + 30_000,
        QUEUE,
        4,
        (SettingChanged("max_running", "8", "2"), SettingChanged("queue_rps_limit", "9000000", None)),
    )
    weight = SettingsChanged(
        6, FROM_MS + 40_000, QUEUE, 5, (SettingChanged("fairness_weight_override", None, "2500", "a"),)
    )
    now = {"keys": [{"fairness_key": "a", "weight_override": 2.5}]}
    _, tail = recorded(
        *ONE[:2],
        granted(3, "a", 20, **cap),
        ended(4, "a", 1_020),
        changed,
        weight,
        ready(7, "b", 50_000),
        granted(8, "b", 50_000, **lower),
        state=ServerState(queues={("q", "activity"): now}),
    )
    queue, kind = LimitTarget("queue", "q"), {"task_queue_type": "activity"}
    assert tail.limits[0] == LimitSettings(
        queue, {"queue_rps_limit": 9, "dispatch_budget_group": "llm"} | kind
    )
    assert LimitSettings(queue, {"max_active_leases": 8} | kind) in tail.limits
    assert LimitSettings(LimitTarget("group", "llm"), {"max_active_leases": 20}) in tail.limits
    assert LimitSettings(queue, {"queue_rps_limit": None} | kind, 30_000) in tail.limits
    assert LimitSettings(queue, {"weights": {"a": 2.5}} | kind, 40_000) in tail.limits
    assert [each.at_ms for each in tail.limits if each.settings.get("max_active_leases") == 2] == [40_000]


def test_how_many_approvals_changes_need_is_no_part_of_a_load() -> None:
    wanted = SettingsChanged(
        5, FROM_MS + 30, "namespace:default", 1, (SettingChanged("change_approvals", None, "1"),)
    )
    _, tail = recorded(*ONE, wanted)
    assert not [each for each in tail.limits if "change_approvals" in each.settings]


def test_a_task_that_is_cancelled_while_it_waits_is_gone() -> None:
    events, _ = recorded(*ONE, ready(5, "b", 30), TaskGone(6, FROM_MS + 40, "b"))
    assert events[-1]["event"] == "gone"


def test_a_task_that_a_pause_held_arrives_when_it_was_released(tmp_path: Path) -> None:
    lines: list[JournalLine] = [
        ready(1, "held", 100),
        TaskGone(2, FROM_MS + 200, "held", "delayed"),
        ready(3, "for good", 300),
        TaskGone(4, FROM_MS + 400, "for good", "delayed"),
        ready(5, "held", 5_000),
        granted(6, "held", 5_100),
        ended(7, "held", 6_000),
    ]
    events, recorder = record(lines, "default", *WINDOW)
    write_trace(tmp_path / "t.trace", head(*WINDOW), events, recorder.tail(ServerState()))
    replay = replay_of(read_trace(tmp_path / "t.trace"), 10)
    assert [(each.task_id, each.ready_at_ms, each.granted_at_ms) for each in replay.tasks] == [
        ("held", [5_000], [5_100])
    ]


# ── Files ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_trace_has_the_same_bytes(tmp_path: Path) -> None:
    one, other = written(tmp_path / "one.trace", *ONE), written(tmp_path / "other.trace", *ONE)
    assert one.read_bytes() == other.read_bytes()


def _repacked(path: Path, change: Any) -> Path:
    lines = gzip.decompress(path.read_bytes()).splitlines()
    path.write_bytes(gzip.compress(b"\n".join(change(lines)) + b"\n"))
    return path


def _foreign(lines: list[bytes]) -> list[bytes]:
    return [json.dumps(json.loads(lines[0]) | {"version": 7, "product": "9.9"}).encode(), *lines[1:]]


def _with(number: int, **fields: Any) -> Any:
    """The lines with other fields in one of them."""

    def change(lines: list[bytes]) -> list[bytes]:
        changed = json.dumps(json.loads(lines[number]) | fields).encode()
        return [changed if line is lines[number] else line for line in lines]

    return change


BROKEN: dict[str, tuple[Any, str]] = {
    "without its last line": (lambda lines: lines[:-1], "was cut off after 2 events"),
    "of another version": (
        _foreign,
        "a trace of format 7, written by penstock 9.9; this program reads format 1",
    ),
    "of another program": (lambda lines: [b'{"some":"thing"}', *lines[1:]], "is not a trace"),
    "that is empty": (lambda _: [], "is not a trace"),
    "with a window that ends before it begins": (_with(0, until_ms=1), "are no window of time"),
    "with a time beyond all calendars": (_with(0, until_ms=2**62), "are no window of time"),
    "with tasks of an unknown kind": (_with(1, kind="coffee"), "tasks of an unknown kind 'coffee'"),
    "with a head that is no text": (
        lambda lines: [lines[0].replace(b'"default"', b'"\xc1"'), *lines[1:]],
        "line 1: ",
    ),
    "with a broken line": (lambda lines: [lines[0], b"{", *lines[2:]], "line 1: "),
    "that lacks a line": (lambda lines: [lines[0], *lines[2:]], "has 2 events where its last line counts 3"),
}


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=list(BROKEN))
def test_a_file_that_is_no_whole_trace_is_refused_by_name(tmp_path: Path, change: Any, said: str) -> None:
    path = _repacked(written(tmp_path / "x.trace", *ONE), change)
    with pytest.raises(InvalidInput, match="x.trace.*" + said.replace("(", ".")):
        read_trace(path)


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.trace", *ONE)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match="was cut off"):
        read_trace(path)


def test_a_file_that_is_not_packed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.trace"
    path.write_text("[[arrivals]]\n")
    with pytest.raises(InvalidInput, match="is not a trace"):
        read_trace(path)
    with pytest.raises(InvalidInput, match=r"nothing.trace cannot be read: No such file"):
        read_trace(tmp_path / "nothing.trace")


# ── Words and models ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_name_has_the_same_word_and_no_name_stays() -> None:
    lines = (*ONE, ready(5, "b", 30, key="tenant-a", after="a"), ready(6, "c", 40, key="tenant-a"))
    events, tail = recorded(*lines)
    words = Anonymiser(b"secret")
    shown, end = [words.event(each) for each in events], words.tail(tail)
    assert shown[-1]["key"] == shown[-2]["key"] == words.word("key", "tenant-a")
    assert shown[-2]["after"] == shown[0]["task_id"]
    assert end.workers[0].queue == shown[0]["task_queue"]
    for name in ("tenant-a", '"q"', '"t"', '"w"', "default"):
        assert name not in json.dumps(shown) + json.dumps([each.queue for each in end.workers])
    assert words.event(events[0]) == shown[0]
    assert Anonymiser(b"other").event(events[0]) != shown[0]


def test_words_of_keys_have_the_order_of_the_keys() -> None:
    words, keys = Anonymiser(b"secret"), [f"key{number:03}" for number in range(200)]
    words.name_keys(reversed(keys))
    found = [words.word("key", each) for each in keys]
    assert found == sorted(set(found))


async def test_a_model_that_is_fitted_to_a_trace_has_the_same_load(tmp_path: Path) -> None:
    of = load(
        duration="10m",
        arrivals=[
            stream('a"b', 30, attempts=4),
            backlog(40, "b", takes="2s", priority=2),
        ],
        workers=[workers(count=3, slots=2)],
        queues={"q": {"max_active_leases": 5}},
    )
    trace = await trace_of(of, tmp_path / "x.trace", (0, 10 * MINUTE_MS))
    path = tmp_path / "x.toml"
    path.write_text(fit(trace))
    model = read_model(path)
    assert [(each.count, each.key) for each in model.arrivals if each.count] == [(40, "b")]
    (fitted,) = [each for each in model.arrivals if each.per_minute]
    assert (fitted.key, fitted.attempts) == ('a"b', 4)
    assert fitted.per_minute == pytest.approx(30, rel=0.2)
    assert fitted.fails == pytest.approx(0.2, abs=0.06)
    assert [(each.count, each.slots) for each in model.workers] == [(3, 2)]
    assert model.queues["q"]["max_active_leases"] == 5
