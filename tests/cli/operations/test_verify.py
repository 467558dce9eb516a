"""`penstock verify`: files in, a report and an exit code out."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.program import program
from penstock.core.verify.findings import OF_LOAD, PROMISES, Law
from penstock.core.verify.observations import LimitsSet, ObservedFinal, Polled, Quiescent, Reported, StartSent
from tests.cli.recorded_server import Run
from tests.core.verify.model_server import LittleServer, Mutant

OPS = {
    Polled: "poll",
    StartSent: "start",
    LimitsSet: "set_limits",
    ObservedFinal: "observed_final",
    Quiescent: "quiescent",
}

GRANTED: dict[str, Any] = {
    "event": "granted",
    "namespace": "default",
    "task_queue": "payments",
    "kind": "activity",
    "attempt": 1,
    "worker_id": "w1",
    "key": "tenant-a",
    "level": 3,
    "phase": "running",
    "scopes": [
        {
            "scope": "queue:default/payments/activity",
            "max_active_leases": 1,
            "max_dispatches_per_minute": None,
            "window": "minute",
            "version": 5,
        }
    ],
}


def granted(seq: int, task_id: str, at_ms: int = 1_800_000_000_000, **more: Any) -> dict[str, Any]:
    lease = {"task_id": task_id, "lease": f"1.{task_id}", "expires_at_ms": at_ms + 30_000}
    return GRANTED | lease | {"seq": seq, "at_ms": at_ms} | more


def write(path: Path, lines: Iterable[dict[str, Any]]) -> str:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


RUN_EVENTS = {"RunAdmitted": "run_admitted", "RunClosed": "run_closed"}


def files_of(server: LittleServer, folder: Path) -> list[str]:
    """The journal and the clients' file of a little server, as the options of the command."""
    events = [
        dataclasses.asdict(line) | {"event": RUN_EVENTS.get(name) or name.removeprefix("Lease").lower()}
        for line in server.journal
        for name in [type(line).__name__]
    ]
    calls = []
    for seen in server.seen:
        line = dataclasses.asdict(seen)
        line |= line.pop("limits", {})
        calls.append(line if isinstance(seen, Reported) else line | {"op": OPS[type(seen)]})
    journal = write(folder / "journal.jsonl", events)
    return ["--journal", journal, "--client", write(folder / "clients.jsonl", calls)]


class TestVerdict:
    def test_a_clean_history_is_exit_code_0_and_every_law_says_how_much_it_checked(
        self, run: Run, tmp_path: Path
    ) -> None:
        files = files_of(LittleServer(1, soft=True).run(600).rest(), tmp_path)
        result = run("verify", *files, "--json")
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert told["verdict"] == "clean"
        assert told["findings"] == []
        assert [law["law"] for law in told["laws"]] == [law.value for law in Law]
        assert {law["law"] for law in told["laws"] if not law["checked"]} == {*told["not_judged"]} == OF_LOAD
        assert told["evidence"]["granted"] > 100

    def test_a_broken_one_is_exit_code_1_and_the_law_is_named(self, run: Run, tmp_path: Path) -> None:
        files = files_of(LittleServer(1, Mutant.CAP_OFF_BY_ONE).run(600).rest(), tmp_path)
        result = run("verify", *files, "--json")
        assert result.exit_code == 1
        told = json.loads(result.stdout)
        assert told["verdict"] == "broken"
        assert {finding["law"] for finding in told["findings"]} >= {"cap", "client-cap"}

    def test_a_finding_is_drawn_with_its_instant_numbers_and_holders(self, run: Run, tmp_path: Path) -> None:
        journal = write(tmp_path / "j.jsonl", [granted(1, "a"), granted(2, "b", 1_800_000_000_250)])
        result = run("verify", "--journal", journal)
        assert result.exit_code == 1
        assert "2027-01-15T08:00:00.250+00:00 (number 2) 2 leases live where 1 may" in result.stdout
        assert "in queue:default/payments/activity" in result.stdout
        assert re.search(r"a 1\.a of w1 since 2027-01-15T08:00:00\.000", result.stdout)
        assert "2 journal lines (numbers 1 to 2): 2 granted" in result.stdout
        assert "1 finding. A promise was broken." in result.stderr

    def test_the_report_says_what_each_law_promises_and_what_could_not_be_checked(
        self, run: Run, tmp_path: Path
    ) -> None:
        result = run("verify", "--journal", write(tmp_path / "j.jsonl", [granted(1, "a")]))
        assert result.exit_code == 0, result.output
        for law, promise in PROMISES.items():
            assert re.search(rf"^{law.value} +\d+ +[0-] +{re.escape(promise)}$", result.stdout, re.MULTILINE)
        assert re.search(r"^client-cap +0 +-", result.stdout, re.MULTILINE)
        assert result.stderr == "Nothing was found.\n"

    def test_many_findings_of_one_law_are_counted_and_the_first_are_drawn(
        self, run: Run, tmp_path: Path
    ) -> None:
        journal = write(tmp_path / "j.jsonl", [granted(seq, f"t{seq}") for seq in range(1, 201)])
        drawn = run("verify", "--journal", journal).stdout
        assert "cap: 199 findings" in drawn
        assert "… and 189 more" in drawn
        told = json.loads(run("verify", "--journal", journal, "--json").stdout)
        assert len(told["findings"]) == 100
        assert next(law["found"] for law in told["laws"] if law["law"] == "cap") == 199

    def test_a_clock_that_was_set_back_is_told_and_is_no_finding(self, run: Run, tmp_path: Path) -> None:
        lines = [granted(1, "a"), granted(2, "b", 1_799_999_000_000, scopes=[])]
        journal = write(tmp_path / "j.jsonl", lines)
        result = run("verify", "--journal", journal)
        assert result.exit_code == 0
        assert "clock-step at number 2: the clock was set back by 1000000 ms" in result.stdout
        assert "clock-step" not in run("verify", "--journal", journal, "--clock-step-ms", "1000000").stdout

    def test_a_gap_in_the_numbers_is_a_finding_if_they_should_be_dense(
        self, run: Run, tmp_path: Path
    ) -> None:
        journal = write(tmp_path / "j.jsonl", [granted(1, "a"), granted(3, "b", scopes=[])])
        result = run("verify", "--journal", journal)
        assert result.exit_code == 0
        assert "gap at number 3: after number 1 comes 3" in result.stdout
        assert run("verify", "--journal", journal, "--dense").exit_code == 1

    def test_several_clients_write_several_files(self, run: Run, tmp_path: Path) -> None:
        journal = write(tmp_path / "j.jsonl", [granted(1, "a", scopes=[])])
        lease = {"task_id": "a", "lease": "1.a", "namespace": "default", "task_queue": "payments"}
        poll = {"op": "poll", "t_inv": 10, "t_ok": 20, "leases": [lease | {"kind": "activity"}]}
        limits = {"op": "set_limits", "t_inv": 0, "t_ok": 1, "scope": "cluster", "verdict": "accepted"}
        operator = write(tmp_path / "operator.jsonl", [limits | {"max_active_leases": 3}])
        worker = write(tmp_path / "worker.jsonl", [poll])
        result = run("verify", "--journal", journal, "--client", operator, "--client", worker, "--json")
        assert [finding["law"] for finding in json.loads(result.stdout)["findings"]] == ["limit-in-force"]

    def test_a_journal_can_come_through_a_pipe(self, tmp_path: Path) -> None:
        raw = "".join(f"{json.dumps(granted(seq, f't{seq}'))}\n" for seq in (1, 2))
        result = CliRunner().invoke(program, ["verify", "--journal", "-"], input=raw)
        assert result.exit_code == 1
        assert "2 leases live where 1 may" in result.stdout

    def test_names_in_a_journal_cannot_paint_on_the_terminal(self, run: Run, tmp_path: Path) -> None:
        lines = [granted(1, "a\x1b[2J"), granted(2, "b\x1b[2J")]
        result = run("verify", "--journal", write(tmp_path / "j.jsonl", lines))
        assert "\x1b" not in result.stdout


class TestBadInput:
    @pytest.mark.parametrize(
        ("bad", "problem"),
        [
            ("{", "line 2: Input data was truncated"),
            ("7", "line 2: Expected `object`, got `int`"),
            ('{"seq": 2}', "line 2: Object missing required field `event`"),
            (
                '{"event": "grantd"}',
                "line 2: event 'grantd' is unknown; did you mean 'granted'",
            ),
            (json.dumps(granted(2, "b", attempt="x")), "line 2: Expected `int`, got `str` - at `$.attempt`"),
            (
                json.dumps({**granted(2, "b"), "scopes": [{}]}),
                "missing required field `scope` - at `$.scopes[0]`",
            ),
            ('{"event":"ended","seq":2,"at_ms":1,"task_id":"a","lease":"1","how":"gone"}', "'gone'"),
        ],
    )
    def test_a_line_that_is_none_is_named_by_file_and_number(
        self, run: Run, tmp_path: Path, bad: str, problem: str
    ) -> None:
        path = tmp_path / "journal.jsonl"
        path.write_text(f"{json.dumps(granted(1, 'a'))}\n{bad}\n{json.dumps(granted(3, 'c'))}\n")
        result = run("verify", "--journal", str(path))
        assert result.exit_code == 2
        assert f"{path}, line 2: " in result.stderr
        assert problem in result.stderr
        assert result.stdout == ""

    @pytest.mark.parametrize(
        ("bad", "problem"),
        [
            ('{"op": "pol"}', "did you mean 'poll'"),
            ('{"op": "poll", "t_inv": 5, "t_ok": 4}', "returned before it was sent"),
            ('{"op": "set_limits", "t_inv": 1, "scope": "cluster", "max_active_leases": -1}', "`int` >= 0"),
            ('{"op": "set_limits", "t_inv": 1, "scope": "cluster", "max_active_leases": NaN}', "malformed"),
            ('{"op": "start", "t_inv": 1, "verdict": "maybe"}', "'maybe'"),
        ],
    )
    def test_so_is_a_line_of_a_client(self, run: Run, tmp_path: Path, bad: str, problem: str) -> None:
        journal = write(tmp_path / "j.jsonl", [granted(1, "a")])
        client = tmp_path / "c.jsonl"
        client.write_text(f'{{"op": "quiescent"}}\n\n{bad}\n')
        result = run("verify", "--journal", journal, "--client", str(client))
        assert result.exit_code == 2
        assert f"{client}, line 3: " in result.stderr
        assert problem in result.stderr

    def test_a_client_that_was_killed_in_the_middle_of_a_line_is_read_up_to_it(
        self, run: Run, tmp_path: Path
    ) -> None:
        journal = write(tmp_path / "j.jsonl", [granted(1, "a")])
        client = tmp_path / "c.jsonl"
        client.write_text('{"op": "poll", "t_inv": 1, "t_ok": 2}\n{"op": "poll", "t_i')
        result = run("verify", "--journal", journal, "--client", str(client), "--json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["evidence"]["client_lines"] == 1

    def test_a_journal_without_a_line_proves_nothing(self, run: Run, tmp_path: Path) -> None:
        result = run("verify", "--journal", write(tmp_path / "j.jsonl", []))
        assert result.exit_code == 2
        assert "nothing to check" in result.stderr

    def test_a_file_that_is_not_there_is_a_usage_error(self, run: Run, tmp_path: Path) -> None:
        result = run("verify", "--journal", str(tmp_path / "none"))
        assert result.exit_code == 2
        assert f"{tmp_path / 'none'} cannot be read: No such file" in result.stderr
        assert run("verify", "--journal", str(tmp_path)).exit_code == 2
        assert run("verify").exit_code == 2
