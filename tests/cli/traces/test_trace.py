"""`penstock trace` and rehearsals on traces at the command line: the server's answers are those of a real journal."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.recorded_server import RecordedServer, Run
from tests.simulator.loads import backlog, journal_of, workers
from tests.simulator.traces.recorded import load

BEGAN_MS = round(time.time() * 1000) - 200_000


@cache
def lines() -> list[dict[str, object]]:
    """A journal that began some minutes ago, and has ended."""
    of = load(
        arrivals=[backlog(60, "tenant-big", takes="2s"), backlog(10, "tenant-a", takes="1s", starts="10s")],
        workers=[workers(slots=4)],
        queues={"q": {"max_active_leases": 2}},
    )
    return [json.loads(line) for line in asyncio.run(journal_of(replace(of, start_ms=BEGAN_MS)))]


def since(after_ms: int) -> str:
    """The option for a window that begins so long after the journal."""
    return f"{round(time.time() * 1000) - BEGAN_MS - after_ms}ms"


@pytest.fixture
def recording(server: RecordedServer) -> RecordedServer:
    answer_export(server)
    return server


def answer_export(server: RecordedServer) -> None:
    """Record the answers to one export."""
    half = len(lines()) // 2
    first, rest = lines()[:half], lines()[half:]
    server.answers.clear()
    server.answer("GET", "/system/journal", {"lines": first, "next_after": first[-1]["seq"]})
    server.answer("GET", "/system/journal", {"lines": rest, "next_after": None})
    server.answer("GET", "/workers", {"workers": []})
    server.answer("GET", "/task-queues/q/config", {"keys": []})


@pytest.fixture
def path(recording: RecordedServer, ask: Run, tmp_path: Path) -> str:
    name = str(tmp_path / "today.trace")
    result = ask("trace", "export", "--since", since(5_000), "-o", name)
    assert result.exit_code == 0, result.output
    assert f"Wrote {name}: " in result.stdout
    return name


def test_an_export_asks_for_all_pages_and_the_state_of_now(recording: RecordedServer, path: str) -> None:
    assert [(each.raw_path, each.query) for each in recording.requests] == [
        ("/api/system/journal", {"after": "0", "limit": "5000"}),
        ("/api/system/journal", {"after": str(lines()[len(lines()) // 2 - 1]["seq"]), "limit": "5000"}),
        ("/api/workers", {}),
        ("/api/task-queues/q/config", {"task_queue_type": "activity"}),
    ]


def test_a_trace_is_shown_with_what_it_holds_and_lacks(run: Run, path: str) -> None:
    shown = run("trace", "show", path)
    assert shown.exit_code == 0, shown.output
    assert "0 % of the tasks were caused by the end of another one" in shown.stdout
    assert "tasks were there before the window" in shown.stdout
    assert "complete" in shown.stdout
    facts = json.loads(run("trace", "show", path, "--json").stdout)
    assert facts["missing"] == []
    assert [(each["queue"], each["keys"], each["slots"]) for each in facts["queues"]] == [("q", 2, 4)]


def test_a_change_is_rehearsed_on_a_recorded_load(run: Run, path: str) -> None:
    result = run("simulate", path, "--set", "queue:q.max_active_leases=4")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("In q the p95 wait falls from ")
    assert "grants recorded, " in result.stdout
    assert "100 % of the tasks arrive at recorded moments" in result.stdout


def test_a_replay_that_is_not_to_be_trusted_says_so_first(run: Run, path: str, tmp_path: Path) -> None:
    *body, last = gzip.decompress(Path(path).read_bytes()).splitlines()
    tail = json.loads(last)
    tail["workers"] = [each | {"slots": 1} for each in tail["workers"]]
    broken = tmp_path / "broken.trace"
    broken.write_bytes(gzip.compress(b"\n".join([*body, json.dumps(tail).encode()]) + b"\n"))
    result = run("simulate", "run", str(broken))
    assert result.stdout.startswith("Do not trust this: ")
    assert json.loads(run("simulate", "run", str(broken), "--json").stdout)["calibration"]["is_met"] is False


def test_a_model_that_is_fitted_can_be_simulated(run: Run, path: str, tmp_path: Path) -> None:
    model = str(tmp_path / "today.toml")
    result = run("trace", "fit", path, "-o", model)
    assert result.exit_code == 0, result.output
    simulated = run("simulate", model, "--replications", "1")
    assert simulated.stdout.startswith("In q 95 % of the tasks wait at most ")


def test_an_anonymised_trace_has_no_name_and_the_same_load(
    server: RecordedServer, ask: Run, tmp_path: Path
) -> None:
    plain, anonymous = tmp_path / "plain.trace", tmp_path / "anonymous.trace"
    for path, options in ((plain, ()), (anonymous, ("--anonymise",))):
        answer_export(server)
        result = ask("trace", "export", "--since", since(-60_000), *options, "-o", str(path))
        assert "missing: the first 60 s of the window" in result.stdout
    text = gzip.decompress(anonymous.read_bytes()).decode()
    for word in ("tenant", '"q"', '"task"', "default", "w0-0"):
        assert word not in text
    one, other = (json.loads(ask("simulate", str(each), "--json").stdout) for each in (plain, anonymous))
    waits = [[queue["waits"] for queue in each["base"]] for each in (one, other)]
    assert waits[0] == waits[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "--since", "1h", "--until", "2h", "-o", "x"), "--since 1h is not before --until 2h"),
        (("export", "--since", "often", "-o", "x"), "often"),
        (("show", "README.md"), "README.md is not a trace"),
        (("fit", "missing.trace", "-o", "x"), "missing.trace cannot be read"),
    ],
)
def test_what_cannot_be_recorded_or_read_is_a_usage_error(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    result = run("trace", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_server_without_a_journal_says_what_to_do(server: RecordedServer, ask: Run, tmp_path: Path) -> None:
    refusal = {"reason": "journal_off", "message": "This server keeps no lease journal."}
    server.answer("GET", "/system/journal", refusal, 409)
    result = ask("trace", "export", "-o", str(tmp_path / "x.trace"))
    assert result.exit_code == 1
    assert "journal_off" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_written_is_named(run: Run, path: str, tmp_path: Path) -> None:
    result = run("trace", "fit", path, "-o", str(tmp_path / "nowhere" / "today.toml"))
    assert result.exit_code == 1
    assert "today.toml cannot be written: No such file or directory" in result.stderr
