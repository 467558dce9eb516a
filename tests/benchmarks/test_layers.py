"""Whose work a sampled stack is: the innermost frame that says so decides, and a thread that waits does not work."""

from __future__ import annotations

import pytest

from benchmarks.layers import Layer, Wait, frame, layer_of, profile, wait_of
from benchmarks.sampler import read, reason

LOOP = "Runner.run (asyncio/runners.py:86);run_forever (loop.c:33192);Handle__run (loop.c:70959)"
ANSWER = f"{LOOP};Endpoint._answer (penstock/server/handler.py:107)"
WRITER = "Thread.run (threading.py:971);SqliteStore._write (penstock/stores/sqlite/store.py:153)"
RUN = f"{WRITER};SqliteStore._run (penstock/stores/sqlite/store.py:202)"


def frames(stack: str) -> list[tuple[str, str]]:
    return [frame(each) for each in stack.split(";")]


@pytest.mark.parametrize(
    ("stack", "layer"),
    [
        (ANSWER, Layer.HTTP),
        (
            f"{LOOP};HttpToolsProtocol.data_received (uvicorn/protocols/http/httptools_impl.py:170)",
            Layer.HTTP,
        ),
        (f"{LOOP};cb (parser.c:12);llhttp__internal_execute (llhttp.c:3)", Layer.HTTP),
        (f"{ANSWER};compress (gzip.py:576);0x7f00 (libz.so.1.2.13)", Layer.HTTP),
        (f"{ANSWER};parse (penstock/wire/parsing.py:20)", Layer.WIRE),
        (f"{ANSWER};json_decode (msgspec/_core.cpython-311-x86_64-linux-gnu.so)", Layer.WIRE),
        (f"{ANSWER};start_activity (penstock/engine/starts.py:147)", Layer.ENGINE),
        (f"{RUN};settle (penstock/core/scheduling/dispatch.py:343)", Layer.SCHEDULING),
        (f"{RUN};record (penstock/core/history/recording.py:33)", Layer.HISTORY),
        (f"{RUN};Session.ask (penstock/stores/sql/session.py:5)", Layer.STORE),
        (f"{RUN};_pysqlite_query_execute (cursor.c:519);Py_DECREF (object.h:537)", Layer.DRIVER),
        (f"{LOOP};Connection.execute (asyncpg/connection.py:426)", Layer.DRIVER),
        (f"{RUN};pysqlite_step (cursor.c:33);sqlite3VdbeExec (sqlite3.c:102428)", Layer.SQLITE),
        (f"{RUN};pysqlite_step (cursor.c:33);sqlite3_step (libsqlite3.so.0.8.6)", Layer.SQLITE),
        (f"{RUN};sqlite3_step (sqlite3.c:9);seekAndWrite (sqlite3.c:4);pwrite64 (libc.so.6)", Layer.FILES),
        (f"{ANSWER};UVStream__try_write (loop.c:106818);write (libc.so.6)", Layer.SOCKETS),
        (f"{LOOP};Py_XDECREF (object.h:601)", Layer.LOOP),
        (
            f"{ANSWER};_PyObject_GC_New (libpython3.11.so.1.0);gc_collect_main (libpython3.11.so.1.0)",
            Layer.COLLECTING,
        ),
        (f"{ANSWER};MetricWrapperBase.labels (prometheus_client/metrics.py:138)", Layer.TELLING),
        (f"{LOOP};WorkflowRun._start (penstock/sdk/replay/instance.py:270)", Layer.REPLAY),
        ("main (somewhere/else.py:3)", Layer.REST),
    ],
)
def test_the_innermost_frame_that_says_whose_work_it_is_decides(stack: str, layer: Layer):
    assert wait_of(frames(stack)) is None
    assert layer_of(frames(stack)) is layer


@pytest.mark.parametrize(
    ("stack", "wait"),
    [
        (f"{LOOP};uv__io_poll (linux.c:1452);epoll_pwait (libc.so.6)", Wait.IDLE),
        (f"{WRITER};PyThread_acquire_lock_timed (libpython3.11.so.1.0);0x7f2c (libc.so.6)", Wait.IDLE),
        (f"{WRITER};SqliteStore._next_group (penstock/stores/sqlite/store.py:164)", Wait.IDLE),
        ("Thread.run (threading.py:971);_worker (concurrent/futures/thread.py:69)", Wait.IDLE),
        ("_WorkItem.run (concurrent/futures/thread.py:53);read (libc.so.6)", Wait.IDLE),
        (f"{RUN};pysqlite_step (util.c:36);pthread_cond_timedwait (libc.so.6);0x7f2c (libc.so.6)", Wait.LOCK),
        (f"{RUN};walFrames (sqlite3.c:71738);unixSync (sqlite3.c:44129);fsync (libc.so.6)", Wait.DISK),
    ],
)
def test_a_thread_that_waits_is_told_by_its_innermost_frames(stack: str, wait: Wait):
    assert wait_of(frames(stack)) is wait


def test_shares_are_of_the_samples_in_which_a_thread_worked():
    stacks = {
        ANSWER: 3,
        f"{RUN};sqlite3_step (sqlite3.c:9)": 1,
        f"{LOOP};epoll_pwait (libc.so.6)": 1000,
        f"{RUN};sqlite3_step (sqlite3.c:9);fsync (libc.so.6)": 4,
    }
    found = profile(stacks, 10)
    assert (found["samples"], found["idle_samples"]) == (4, 1000)
    assert found["layers"] == {"HTTP": 0.75, "SQLite's own code": 0.25}
    assert found["waits"] == {"the disk": 0.5}


def test_in_the_kernel_no_more_counts_than_it_counted_itself():
    stacks = {ANSWER: 30, f"{ANSWER};UVStream__try_write (loop.c:1);write (libc.so.6)": 70}
    assert profile(stacks, 1)["layers"] == {"sockets (kernel)": 0.7, "HTTP": 0.3}
    found = profile(stacks, 2, kernel=0.2)
    assert found["layers"] == {"HTTP": 0.8, "sockets (kernel)": 0.2}
    assert [each["share"] for each in found["functions"]] == [0.8, 0.2]
    assert profile(stacks, 1, kernel=0.9)["layers"] == {"sockets (kernel)": 0.7, "HTTP": 0.3}


def test_a_function_is_named_with_what_was_done_for_it_elsewhere():
    stacks = {
        f"{RUN};sqlite3_step (sqlite3.c:9)": 3,
        f"{LOOP};_hints (penstock/sdk/activities/definition.py:335);ForwardRef.__init__ (typing.py:852)": 2,
        f"{RUN}": 1,
    }
    names = [each["function"] for each in profile(stacks, 10)["functions"]]
    assert names == [
        "SqliteStore._run (stores/sqlite/store.py) > SQLite's own code",
        "_hints (sdk/activities/definition.py): ForwardRef.__init__",
        "SqliteStore._run (stores/sqlite/store.py)",
    ]


def test_no_samples_have_no_shares():
    assert profile({}, 3) == {"samples": 0, "idle_samples": 0, "layers": {}, "waits": {}, "functions": []}


def test_stacks_of_several_threads_are_counted_together():
    lines = ["thread (12): writer;a (x.py:1) 2", "thread (13): reader;a (x.py:1) 3", "", "not a stack"]
    assert read(lines) == {"a (x.py:1)": 5}


def test_of_what_a_sampler_said_when_it_ended_the_message_is_kept():
    trace = (
        "py-spy> Sampling process\n\nError: Failed to find python version\n\nStack backtrace:\n   0: anyhow\n"
    )
    assert reason(trace) == "Failed to find python version"
    assert reason("\n") == "it ended and said nothing"
