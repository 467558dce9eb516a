"""A file that changes under a running program: a good change comes into force whole, a bad one never does."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.dispatch import DispatchConfig, DispatchConfigError
from penstock.dispatch.watcher import WatchedDispatch

_FILE = '[penstock.worker_config]\ndefault_activity_start_to_close_timeout = "{}"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dispatch.toml"
    path.write_text(_FILE.format("0:01:00"))
    return path


def _timeout(config: DispatchConfig) -> timedelta:
    return config.resolve("a").start_to_close_timeout


def test_a_changed_file_comes_into_force_and_says_what_changed(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = WatchedDispatch(file, environ={})
    heard: list[tuple[DispatchConfig, DispatchConfig]] = []
    watched.on_change(lambda old, new: heard.append((old, new)))
    before = watched.current
    assert not watched.reload_if_changed()
    file.write_text(_FILE.format("0:02:00.5"))
    with caplog.at_level(logging.INFO, "penstock.dispatch"):
        assert watched.reload_if_changed()
    assert _timeout(watched.current) == timedelta(minutes=2, milliseconds=500)
    assert _timeout(before) == timedelta(minutes=1)
    assert heard == [(before, watched.current)]
    assert "worker_config.default_activity_start_to_close_timeout: 0:01:00 -> 0:02:00.500000" in caplog.text
    assert watched.current.fingerprint[:12] in caplog.text


@pytest.mark.parametrize("content", ["[penstock", '[penstock.worker_config]\noops = 1\nalso = "x"\n', None])
def test_a_bad_file_is_refused_and_the_old_one_stays(
    file: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    watched = WatchedDispatch(file, environ={})
    before = watched.current
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    assert not watched.reload_if_changed()
    assert watched.current is before
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "stays in force" in record.getMessage()
    if content and "oops" in content:
        assert "worker_config.oops" in record.getMessage()
        assert "worker_config.also" in record.getMessage()
    caplog.clear()
    assert not watched.reload_if_changed()
    assert caplog.records == []
    file.write_text(_FILE.format("0:03:00"))
    assert watched.reload_if_changed()
    assert _timeout(watched.current) == timedelta(minutes=3)


def test_a_file_that_says_the_same_in_other_words_changes_nothing(file: Path) -> None:
    watched = WatchedDispatch(file, environ={})
    file.write_text(_FILE.format("60s"))
    assert not watched.reload()


def test_a_program_does_not_begin_with_a_bad_file(file: Path) -> None:
    file.write_text("[penstock]\nx = 1\n")
    with pytest.raises(DispatchConfigError):
        WatchedDispatch(file, environ={})


@pytest.mark.parametrize("how", ["file", "signal"])
async def test_watching_finds_the_change_by_itself_or_when_it_is_told(file: Path, how: str) -> None:
    watched = WatchedDispatch(file, environ={})
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    watched.on_change(lambda _old, _new: loop.call_soon_threadsafe(changed.set))
    watching = asyncio.create_task(
        watched.watch(every_s=0.01 if how == "file" else 3600, at_hangup=how == "signal")
    )
    await asyncio.sleep(0)
    file.write_text(_FILE.format("0:00:07"))
    if how == "signal":
        os.kill(os.getpid(), signal.SIGHUP)
    await changed.wait()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert _timeout(watched.current) == timedelta(seconds=7)


def test_a_file_that_nobody_can_read_or_a_listener_that_fails_does_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "dispatch.toml"
    file.write_text('[penstock.worker_config]\ndefault_task_queue = "one"\n')
    watched = WatchedDispatch(file)

    def fails(*_: object) -> None:
        raise RuntimeError("boom")

    watched.on_change(fails)
    file.write_text(f"penstock{'.a' * 600} = 1\n")
    assert not watched.reload()
    assert "stays in force" in caplog.text
    file.write_text('[penstock.worker_config]\ndefault_task_queue = "two"\n')
    assert watched.reload()
    assert watched.current.worker_config.default_task_queue == "two"
    assert "failed over a new one" in caplog.text


def test_a_file_that_is_empty_all_at_once_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "dispatch.toml"
    file.write_text('[penstock.worker_config]\ndefault_task_queue = "one"\n')
    watched = WatchedDispatch(file, environ={})
    file.write_text("")
    assert not watched.reload()
    assert watched.current.worker_config.default_task_queue == "one"
    assert "empty all at once" in caplog.text


@pytest.mark.parametrize("content", [_FILE.format("0:01:00"), _FILE.format("0:02:00"), "[penstock"])
def test_what_changed_between_reading_and_watching_is_heard_of_at_the_first_look(
    file: Path, content: str
) -> None:
    before = WatchedDispatch(file, environ={}).current
    file.write_text(content)
    watched = WatchedDispatch(file, environ={}, current=before)
    assert watched.current is before
    heard: list[DispatchConfig] = []
    watched.on_change(lambda _, new: heard.append(new))
    is_another = "0:02:00" in content
    assert watched.reload_if_changed() is is_another
    assert heard == ([watched.current] if is_another else [])
    assert not watched.reload_if_changed()
