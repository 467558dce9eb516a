"""Wakeups inside one process."""

from __future__ import annotations

from structlog.testing import capture_logs

from penstock.wakeups.local import LocalWakeups


def test_everyone_who_listens_to_a_bell_is_called_once_a_ring():
    wakeups, heard = LocalWakeups(), list[str]()
    wakeups.listen("queue:1", lambda: heard.append("first"))
    wakeups.listen("queue:1", lambda: heard.append("second"))
    wakeups.listen("queue:2", lambda: heard.append("other"))
    wakeups.notify(["queue:1", "queue:1", "queue:3"])
    assert heard == ["first", "second"]


def test_whoever_stops_listening_is_not_called_again():
    wakeups, heard = LocalWakeups(), list[str]()
    stop = wakeups.listen("queue:1", lambda: heard.append("one"))
    wakeups.listen("queue:1", lambda: heard.append("two"))
    stop()
    stop()
    wakeups.notify(["queue:1"])
    assert heard == ["two"]


def test_one_callback_may_listen_twice_and_stop_once():
    wakeups, heard = LocalWakeups(), list[str]()

    def callback() -> None:
        heard.append("x")

    stop = wakeups.listen("queue:1", callback)
    wakeups.listen("queue:1", callback)
    stop()
    wakeups.notify(["queue:1"])
    assert heard == ["x"]


def test_a_listener_that_fails_is_logged_and_the_next_one_is_called():
    wakeups, heard = LocalWakeups(), list[str]()
    wakeups.listen("queue:1", lambda: heard.remove("nothing"))
    wakeups.listen("queue:1", lambda: heard.append("called"))
    with capture_logs() as logs:
        wakeups.notify(["queue:1"])
    assert heard == ["called"]
    assert [(line["event"], line["topic"]) for line in logs] == [("wakeup_listener_failed", "queue:1")]


def test_a_listener_may_stop_itself_and_others_while_the_bell_rings():
    wakeups, heard = LocalWakeups(), list[str]()

    def first() -> None:
        heard.append("first")
        stop_first()
        stop_second()

    stop_first = wakeups.listen("queue:1", first)
    stop_second = wakeups.listen("queue:1", lambda: heard.append("second"))
    wakeups.listen("queue:1", lambda: heard.append("third"))
    wakeups.notify(["queue:1"])
    assert heard == ["first", "third"]


def test_a_bell_that_nobody_hears_is_no_error():
    LocalWakeups().notify(["queue:1"])


def test_everybody_is_called_when_all_bells_ring():
    wakeups, heard = LocalWakeups(), list[str]()
    wakeups.listen("queue:1", lambda: heard.append("one"))
    wakeups.listen("queue:2", lambda: heard.append("two"))
    stop = wakeups.listen("queue:3", lambda: heard.append("gone"))
    stop()
    wakeups.notify_all()
    assert heard == ["one", "two"]


def test_what_is_foretold_is_told_once_and_only_to_those_who_ask_for_it():
    wakeups, heard = LocalWakeups(), list[str]()
    wakeups.listen("queue:1", lambda: heard.append("early"), before_commit=True)
    wakeups.listen("queue:1", lambda: heard.append("late"))
    announced = wakeups.notify_before_commit(["queue:1", "queue:2"])
    assert (heard, list(announced)) == (["early"], ["queue:1"])
    wakeups.notify(["queue:1", "queue:2"], announced)
    assert heard == ["early", "late"]


def test_a_bell_that_was_not_foretold_is_heard_by_everybody():
    wakeups, heard = LocalWakeups(), list[str]()
    wakeups.listen("queue:1", lambda: heard.append("early"), before_commit=True)
    wakeups.notify(["queue:1"], ["queue:2"])
    assert heard == ["early"]


def test_whoever_stops_listening_is_not_told_beforehand_either():
    wakeups, heard = LocalWakeups(), list[str]()
    stop = wakeups.listen("queue:1", lambda: heard.append("early"), before_commit=True)
    stop()
    assert not wakeups.notify_before_commit(["queue:1"])
    assert heard == []
